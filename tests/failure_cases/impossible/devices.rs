//! Devices, and their contexts.

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::Call;
use cuda_vmm::{Driver, Error};

use crate::case::{Case, Told};
use crate::contradictions::disagrees;
use crate::liar::{furnished, Liar};

use super::ends_well;

pub const CASES: &[Case] = &[
    Case::sim("a number below zero at the start", negative_numbers),
    Case::sim("fewer devices than there were", fewer_devices),
    Case::sim("a name without an end", a_name_without_end),
    Case::sim("a yes that is neither yes nor no", neither_yes_nor_no),
    Case::sim("more free memory than memory", more_free_than_there_is),
    Case::sim("a context that is none is released again", no_context),
    Case::sim("another context comes off than was put on", another_context),
    Case::sim(
        "another context comes off at the end of a guard",
        another_context_of_a_guard,
    ),
];

fn negative_numbers() {
    for call in [Call::cuDriverGetVersion, Call::cuDeviceGetCount] {
        let liar = Liar::new();
        liar.answers(call, -7);
        let error = Driver::from_calls(liar.clone()).unwrap_err();
        disagrees(
            &error,
            &format!("what {call} gives is not negative"),
            "says -7",
        );
    }
    let liar = Liar::new();
    let driver = liar.driver();
    liar.answers(Call::cuDeviceGet, i32::MIN.into());
    let error = driver.device(0).unwrap_err();
    disagrees(
        &error,
        "what cuDeviceGet gives is not negative",
        "says -2147483648",
    );
}

fn fewer_devices() {
    let two = Simulation::builder()
        .device(SimDevice::new())
        .device(SimDevice::new());
    let liar = Liar::on(two.build().unwrap());
    liar.answers(Call::cuDeviceGetCount, 3);
    let driver = liar.driver();
    let error = driver.device(2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cuDeviceGet (device 2) failed with CUDA_ERROR_INVALID_DEVICE (101)"
    );
    // The count is asked once.
    liar.answers(Call::cuDeviceGetCount, 0);
    assert_eq!(driver.device_count(), 3);
    driver.device(1).unwrap();
    assert_eq!(
        driver.device(3).unwrap_err().to_string(),
        "there is no device 3: the driver has 3, numbers 0 to 2"
    );
}

fn a_name_without_end() {
    let liar = Liar::new();
    let device = liar.driver().device(0).unwrap();
    liar.answers(Call::cuDeviceGetName, b'N'.into());
    assert_eq!(device.name().unwrap(), "N".repeat(255));
    liar.answers(Call::cuDeviceGetName, 0xff);
    assert_eq!(device.name().unwrap(), "\u{fffd}".repeat(255));
}

fn neither_yes_nor_no() {
    let liar = Liar::new();
    let device = liar.driver().device(0).unwrap();
    for (answer, said) in [(2, "says 2"), (-1, "says -1")] {
        liar.answers(Call::cuDeviceCanAccessPeer, answer);
        disagrees(
            &device.can_access_peer(&device).unwrap_err(),
            "cuDeviceCanAccessPeer answers 0 or 1",
            said,
        );
    }
}

fn more_free_than_there_is() {
    let liar = Liar::new();
    let driver = liar.driver();
    let device = driver.device(0).unwrap();
    liar.answers_in(Call::cuMemGetInfo_v2, 0, 11);
    liar.answers_in(Call::cuMemGetInfo_v2, 1, 10);
    let error = device.free_memory().unwrap_err();
    disagrees(
        &error,
        "no more memory can be free than there is",
        "says that 11 of 10 bytes are free",
    );
    assert_eq!(
        (
            liar.sim.snapshot().context_depth,
            liar.sim.snapshot().retained_contexts
        ),
        (0, vec![0])
    );
    drop(device);
    ends_well(&liar, driver);
}

fn no_context() {
    let (ours, theirs) = (
        "cuDevicePrimaryCtxRetain gives a context when it succeeds",
        "says SUCCESS and gives null",
    );
    let liar = Liar::new();
    let driver = liar.driver();
    let device = driver.device(0).unwrap();
    liar.answers(Call::cuDevicePrimaryCtxRetain, 0);
    let error = device.make_current().unwrap_err();
    disagrees(&error, ours, theirs);
    assert_eq!((error.undo_failures().len(), driver.quarantined()), (0, 0));
    assert_eq!(liar.sim.calls_of(Call::cuCtxPushCurrent_v2), 0);
    assert_eq!(liar.sim.snapshot().retained_contexts, [0]);
    // What could not be released is the driver's, and no context for the next.
    liar.sim
        .inject(Fault::on(Call::cuDevicePrimaryCtxRelease_v2))
        .unwrap();
    let error = device.free_memory().unwrap_err();
    disagrees(&error, ours, theirs);
    assert_eq!((error.undo_failures().len(), driver.quarantined()), (1, 1));
    liar.tells_the_truth();
    device.free_memory().unwrap();
    drop(device);
    ends_well(&liar, driver);
}

fn another_context() {
    let liar = Liar::new();
    let driver = liar.driver();
    let mut kv = furnished(&driver);
    kv.write(0, b"asked once").unwrap();
    let context = liar.sim.snapshot().retained_contexts;
    liar.answers(Call::cuCtxPopCurrent_v2, 0xbad);
    let error = kv.write(0, b"asked again").unwrap_err();
    let Error::Disagreement { ours, theirs, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(
        ours.starts_with("the context 0x") && ours.ends_with(" is current"),
        "{ours}"
    );
    assert_eq!(theirs, "took 0xbad off instead");
    // Taken off once, and not once more for good measure.
    assert_eq!(liar.sim.snapshot().context_depth, 0);
    assert_eq!(liar.sim.snapshot().retained_contexts, context);
    kv.close().unwrap();
    ends_well(&liar, driver);
}

fn another_context_of_a_guard() {
    let told = Told::listen();
    let liar = Liar::new();
    let driver = liar.driver();
    let device = driver.device(0).unwrap();
    liar.answers(Call::cuCtxPopCurrent_v2, 0xbad);
    drop(device.make_current().unwrap());
    let told = told.take();
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(
        told.starts_with("a context stays current on this thread: the driver and this crate disagree: the context 0x"),
        "{told}"
    );
    assert!(
        told.ends_with(" is current, but the driver took 0xbad off instead"),
        "{told}"
    );
    drop(device);
    ends_well(&liar, driver);
}
