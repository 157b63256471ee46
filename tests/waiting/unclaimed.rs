//! What becomes of a reservation whose close failed, and of the error, where nobody takes it.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{set_leak_hook, CloseError, Code, ElasticRange, Fence, Leak};

use crate::stage::{broken, is_broken, ok, Broken, Stage};

/// The work is done, so what the close left is tried again, as any reservation's drop does.
pub fn nobody_joins_a_close_that_failed(stage: &Stage) {
    let sim = stage.sim.as_ref().expect("a case of the simulated driver");
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let done = Fence::default_stream(&stage.device);
    drop(reservation.close_in_background(done).unwrap());
    let deadline = Instant::now() + Duration::from_secs(10);
    while !sim.snapshot().holds_no_memory() || !sim.snapshot().reservations.is_empty() {
        assert!(Instant::now() < deadline, "it is not closed");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(sim.calls_of(Call::cuMemUnmap), 2);
}

/// What the leak hook is told meanwhile, once it was told something or the time is up.
fn told_of(act: impl FnOnce(), at_least: usize) -> Vec<String> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = told.clone();
    set_leak_hook(move |leak: &Leak| hook.lock().unwrap().push(leak.to_string()));
    act();
    let deadline = Instant::now() + Duration::from_secs(10);
    while told.lock().unwrap().len() < at_least {
        assert!(Instant::now() < deadline, "the hook was not told");
        thread::sleep(Duration::from_millis(1));
    }
    cuda_vmm::reset_leak_hook();
    let told = told.lock().unwrap();
    told.clone()
}

fn leaked_as_in_use(told: &[String], why: &str) {
    let [told] = told else {
        panic!("one leak: {told:?}")
    };
    assert!(
        told.starts_with("leaked the reservation of ")
            && told.contains(", which may be in use: ")
            && told.ends_with(why),
        "{told}"
    );
}

/// Ends what was leaked on purpose, so that nothing is left of the simulated driver.
fn put_right(stage: &Stage, base: u64, size: usize) {
    assert!(stage.driver.is_vmm(base).unwrap());
    let granule = stage.granule();
    unsafe {
        let calls = stage.calls();
        let mut handle = 0;
        ok(calls.cuMemRetainAllocationHandle(&mut handle, base as *mut _));
        ok(calls.cuMemRelease(handle));
        ok(calls.cuMemRelease(handle));
        ok(calls.cuMemUnmap(base, granule));
        ok(calls.cuMemAddressFree(base, size));
    }
    let sim = stage.sim.as_ref().expect("a case of the simulated driver");
    assert!(sim.misuses().is_empty());
}

pub fn nobody_joins_a_failed_wait(stage: &Stage) {
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    let (base, size) = (reservation.base(), reservation.size());
    let told = told_of(
        || drop(reservation.close_in_background(broken()).unwrap()),
        1,
    );
    leaked_as_in_use(&told, &Broken.to_string());
    put_right(stage, base, size);
}

/// Whatever becomes of the error, nothing is unmapped but what the caller took out.
pub fn an_error_of_a_failed_wait_unmaps_nothing(_: &Stage) {
    type End = fn(Box<CloseError>);
    let ends: [(&str, End); 4] = [
        ("dropped", |error| drop(error)),
        ("into_error", |error| {
            assert!(is_broken(&error.into_error()));
        }),
        ("only its error is taken", |error| {
            assert!(is_broken(&error.error));
            drop(error.error);
        }),
        ("handed up", |error| {
            drop(Box::<dyn std::error::Error + Send + Sync>::from(error));
        }),
    ];
    for (what, end) in ends {
        for background in [false, true] {
            // A driver each: what is leaked stays on its books, whoever frees it behind its back.
            let stage = &Stage::simulated();
            let sim = stage.sim.as_ref().unwrap();
            let mut reservation = stage.reserve();
            reservation.map(0, stage.granule(), &stage.props).unwrap();
            let (base, size) = (reservation.base(), reservation.size());
            let before = sim.snapshot();
            let closed = match background {
                false => reservation.close_after(broken()),
                true => reservation.close_in_background(broken()).unwrap().join(),
            };
            let told = told_of(|| end(closed.unwrap_err()), 1);
            leaked_as_in_use(&told, &Broken.to_string());
            assert_eq!(sim.calls_of(Call::cuMemUnmap), 0, "{what}");
            assert_eq!(sim.snapshot(), before, "{what}");
            put_right(stage, base, size);
        }
    }

    // The same of an elastic range, and of a wait that the driver failed: its very answer is told.
    let stage = &Stage::simulated();
    let sim = stage.sim.as_ref().unwrap();
    let mut range = ElasticRange::builder(8 * stage.granule(), &stage.props)
        .reserve()
        .unwrap();
    range.commit(0, stage.granule()).unwrap();
    let (base, size) = (range.base(), range.size());
    // So that the wait retains no context that was not retained before.
    drop(stage.device.make_current().unwrap());
    let before = sim.snapshot();
    let refused = Fault::on(Call::cuStreamSynchronize).code(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    sim.inject(refused).unwrap();
    let closed = range.close_after(Fence::default_stream(&stage.device));
    let told = told_of(|| drop(closed), 1);
    leaked_as_in_use(
        &told,
        "cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)",
    );
    assert_eq!(sim.snapshot(), before);
    put_right(stage, base, size);
}

pub fn what_is_taken_out_after_a_failed_wait_is_as_before(stage: &Stage) {
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    let picture = reservation.to_string();
    let mut unclosed = reservation.close_after(broken()).unwrap_err();
    // It can be used where it is.
    assert_eq!(unclosed.reservation.to_string(), picture);
    unclosed.reservation.fill(0, 4, 7).unwrap();
    let mut bytes = [0; 4];
    unclosed.reservation.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4]);
    let told = told_of(|| drop(unclosed.reservation.into_inner()), 0);
    assert_eq!(told, [""; 0]);
    if let Some(sim) = &stage.sim {
        assert!(sim.snapshot().holds_no_memory() && sim.snapshot().reservations.is_empty());
    }
}

/// Where the work is done and the driver refuses, the error's reservation is tried again when it is dropped.
pub fn an_error_of_a_failed_close_is_tried_again(stage: &Stage) {
    let sim = stage.sim.as_ref().expect("a case of the simulated driver");
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let done = Fence::default_stream(&stage.device);
    let unclosed = reservation.close_after(done).unwrap_err();
    assert_eq!(unclosed.error.code(), Some(Code::ERROR_UNKNOWN));
    assert_eq!(told_of(|| drop(unclosed), 0), [""; 0]);
    assert!(sim.snapshot().holds_no_memory() && sim.snapshot().reservations.is_empty());
}
