//! B. Partial failure and rollback.

use cuda_vmm::sim::{Fault, SimDevice, Simulation, Value};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, Code, Error};

use crate::case::{Case, Machine};
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::sim(
        "a row that fails at one slot unmaps what was mapped and no more",
        a_row,
    ),
    Case::sim(
        "rights that fail at one of several mappings",
        rights_in_a_row,
    ),
    Case::both("doing it twice is an error, not a no-op", twice),
];

/// Failure case 23.
fn a_row() {
    for call in [Call::cuMemCreate, Call::cuMemMap, Call::cuMemSetAccess] {
        let rig = Rig::new();
        let mut kv = rig.reserve(8);
        rig.sim.inject(Fault::on(call).nth(6)).unwrap();
        let made: Vec<_> = (0..8)
            .map(|at| kv.map(at * G, G, &rig.props()))
            .take_while(Result::is_ok)
            .collect();
        assert_eq!(made.len(), 5);
        let mut holes = kv.holes();
        assert_eq!((holes.next(), holes.next()), (Some(5 * G..8 * G), None));
        drop(holes);
        let base = kv.base();
        rig.sim.clear_log();
        drop(kv);
        let unmapped: Vec<_> = rig
            .sim
            .log()
            .iter()
            .filter(|record| record.call == Call::cuMemUnmap)
            .map(|record| match record.arg("address") {
                Some(Value::Word(address)) => (address - base) as usize / G,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(unmapped, [4, 3, 2, 1, 0]);
        rig.leaves_nothing();
    }
}

/// Failure case 27, as far as one process shows it: a peer that fails in the middle of the mappings has no rights
/// anywhere.
fn rights_in_a_row() {
    let rig = Rig::with(
        Simulation::builder()
            .device(SimDevice::new())
            .device(SimDevice::new()),
    );
    let mut kv = rig.reserve(5);
    for at in 0..5 {
        kv.map(at * G, G, &rig.props()).unwrap();
    }
    let before = (rig.sim.snapshot(), kv.to_string());
    for nth in 1..=5 {
        let code = CUresult::CUDA_ERROR_NOT_PERMITTED;
        rig.sim
            .inject(Fault::on(Call::cuMemSetAccess).nth(nth).code(code))
            .unwrap();
        let error = kv.set_policy(&rig.devices[1], Access::Read).unwrap_err();
        assert_eq!(error.code(), Some(Code::ERROR_NOT_PERMITTED));
        assert_eq!(error.undo_failures().len(), 0);
        assert_eq!(
            (rig.sim.snapshot(), kv.to_string()),
            before,
            "at mapping {nth}"
        );
    }
    kv.set_policy(&rig.devices[1], Access::Read).unwrap();
    kv.close().unwrap();
    rig.leaves_nothing();
}

/// Failure cases 31 and 42.
fn twice(on: &Machine) {
    let g = on.g;
    let mut kv = on.reserve(2);
    let page = on.props.create(g).unwrap();
    kv.map(0, g, &on.props).unwrap();
    kv.write(0, b"first").unwrap();
    let in_the_way = |error: Error| matches!(error, Error::Overlap { existing, asked } if existing == (0..g) && asked == (0..g));
    assert!(in_the_way(kv.map(0, g, &on.props).unwrap_err()));
    assert!(in_the_way(kv.map_existing(0, &page).unwrap_err()));
    assert!(in_the_way(kv.map_releasing(0, g, &on.props).unwrap_err()));
    let mut bytes = [0; 5];
    kv.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"first");
    let again = [kv.id_at(0).unwrap(), kv.id_at(0).unwrap()];
    let mut outcomes = again.map(|id| kv.unmap(id)).into_iter();
    assert!(outcomes.next().unwrap().is_ok());
    let second = outcomes.next().unwrap().unwrap_err();
    assert!(
        matches!(second, Error::NotMapped { offset: 0 }),
        "{second:?}"
    );
    let third = kv.unmap_range(0, g).unwrap_err();
    assert!(matches!(third, Error::Hole { hole, .. } if hole == (0..g)));
    kv.close().unwrap();
    page.release().unwrap();
}
