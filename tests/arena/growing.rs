//! Arenas over elastic ranges and reservations, on the simulated driver and on the machine's own.

use cuda_vmm::arena::{Arena, Extent, Fit};
use cuda_vmm::sim::Fault;
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, AllocationProps, Driver, ElasticRange, Error, Reservation};

use crate::rig::Rig;
use crate::support;

fn range(driver: &Driver, granules: usize) -> ElasticRange {
    let device = driver.device(0).unwrap();
    let props = AllocationProps::on(&device);
    let g = props.granularity().unwrap().minimum();
    let builder = ElasticRange::builder(granules * g, &props);
    builder
        .access(&device, Access::ReadWrite)
        .reserve()
        .unwrap()
}

fn commits_as_it_grows(driver: &Driver) {
    let mut range = range(driver, 16);
    let g = range.granularity();
    let mut arena = Arena::over([Extent::from(&range)], Fit::First).unwrap();
    let first = arena.allocate_in(&mut range, 100, 0).unwrap();
    assert_eq!(
        (first.address(), range.committed_bytes()),
        (range.base(), g)
    );
    let second = arena.allocate_in(&mut range, g, 256).unwrap();
    assert_eq!(second.address(), range.base() + 256);
    assert_eq!(range.committed_bytes(), 2 * g);
    let third = arena.allocate_in(&mut range, 64, 0).unwrap();
    assert_eq!(range.committed_bytes(), 2 * g);
    // What is handed out can be written to its last byte.
    let end = (third.address() - range.base()) as usize + third.size();
    range.fill(0, end, 7).unwrap();
    arena.allocate_in(&mut range, 5 * g, g).unwrap();
    assert_eq!(range.committed_bytes(), 7 * g);
    for piece in [first, second, third] {
        arena.free(piece).unwrap();
    }
    assert_eq!(arena.freed(), 164 + g);
    arena.reset();
    range.resize(0).unwrap();
    assert_eq!(range.retained_bytes(), 0);
    range.close().unwrap();
}

fn over_a_reservation(driver: &Driver) {
    let device = driver.device(0).unwrap();
    let props = AllocationProps::on(&device);
    let g = props.granularity().unwrap().minimum();
    let builder = Reservation::builder(8 * g).access(&device, Access::ReadWrite);
    let mut kv = builder.reserve(driver).unwrap();
    kv.map(0, g, &props).unwrap();
    kv.map(4 * g, 2 * g, &props).unwrap();
    let views = [kv.view(0, g).unwrap(), kv.view(4 * g, 2 * g).unwrap()];
    let mut arena = Arena::over(views.map(Extent::from), Fit::Best).unwrap();
    let small = arena.allocate(g / 2, 4096).unwrap();
    let large = arena.allocate(g + 1, 4096).unwrap();
    assert_eq!(small.address(), kv.base());
    assert_eq!(large.address(), kv.base() + 4 * g as u64);
    kv.fill(4 * g, large.size(), 1).unwrap();
    kv.close().unwrap();
}

#[test]
fn on_the_simulated_driver() {
    let rig = Rig::new();
    commits_as_it_grows(&rig.driver);
    over_a_reservation(&rig.driver);
    rig.leaves_nothing();
}

#[test]
fn on_the_machines_driver() {
    if let Err(why) = support::devices() {
        assert!(
            !support::gpu_required(),
            "{} is set: {why}",
            support::GPU_REQUIRED
        );
        eprintln!("SKIPPED: {why}");
        return;
    }
    let driver = Driver::load().unwrap();
    commits_as_it_grows(&driver);
    over_a_reservation(&driver);
}

#[test]
fn a_commit_that_fails_hands_out_nothing() {
    let rig = Rig::new();
    let mut range = range(&rig.driver, 8);
    let mut arena = Arena::over([Extent::from(&range)], Fit::First).unwrap();
    arena.allocate_in(&mut range, 10, 0).unwrap();
    let before = rig.sim.snapshot();
    for call in [Call::cuMemCreate, Call::cuMemMap, Call::cuMemSetAccess] {
        rig.sim.inject(Fault::on(call)).unwrap();
        let error = arena.allocate_in(&mut range, 4 << 20, 0).unwrap_err();
        assert_eq!(error.code(), Some(cuda_vmm::Code::ERROR_UNKNOWN));
        assert_eq!(rig.sim.snapshot(), before);
        assert_eq!(arena.used(), 10);
    }
    arena.allocate_in(&mut range, 4 << 20, 0).unwrap();
    range.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn an_extent_elsewhere_is_not_committed() {
    let rig = Rig::new();
    let (mut one, other) = (range(&rig.driver, 4), range(&rig.driver, 4));
    let mut arena = Arena::over([Extent::from(&other)], Fit::First).unwrap();
    let calls = rig.sim.calls();
    let error = arena.allocate_in(&mut one, 10, 0).unwrap_err();
    let bounds = |range: &ElasticRange| range.base()..range.base() + range.size() as u64;
    let expected = Error::ExtentElsewhere {
        extent: bounds(&other),
        range: bounds(&one),
    };
    assert_eq!(format!("{error:?}"), format!("{expected:?}"));
    assert_eq!((rig.sim.calls(), arena.used()), (calls, 0));
    one.close().unwrap();
    other.close().unwrap();
    rig.leaves_nothing();
}
