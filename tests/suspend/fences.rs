//! Work in flight: what is waited for, and what a failed wait leaves.

use std::time::Duration;

use cuda_vmm::suspend::Select;
use cuda_vmm::{Code, Error, Fence};

use crate::ground::Ground;
use crate::scene::Pair;
use crate::Case;

pub const CASES: &[Case] = &[
    (
        "a fence is waited for before anything goes",
        waited_for_first,
    ),
    ("a failed wait leaves everything awake", a_failed_wait),
    ("checks come before the wait", checks_come_first),
    ("the default stream is waited for", the_default_stream),
];

pub const SIMULATED: &[Case] = &[
    ("a deadline gives up with everything awake", a_deadline),
    ("a lost context keeps what is to be copied", a_lost_context),
];

fn waited_for_first(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let address = pair.group.get(&pair.kept).unwrap().base();
    let driver = ground.driver.clone();
    let mut mapped = None;
    let fence = Fence::closure(|_| {
        mapped = Some(driver.is_vmm(address));
        Ok::<_, Error>(())
    });
    pair.group.suspend_after(Select::All, fence).unwrap();
    assert!(mapped.unwrap().unwrap());
    pair.end(ground, true);
}

fn a_failed_wait(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let before = ground.snapshot();
    let fence = Fence::closure(|_| Err("not yet"));
    let error = pair.group.suspend_after(Select::All, fence).unwrap_err();
    assert!(matches!(error.error, Error::WaitFailed(_)));
    assert_eq!(error.left, [pair.kept.id(), pair.dropped.id()]);
    assert_eq!(ground.snapshot(), before);
    pair.intact(ground, false);
    pair.end(ground, false);
}

fn checks_come_first(ground: &Ground) {
    let mut pair = Pair::new(ground);
    pair.group.suspend("cache").unwrap();
    let key = pair.dropped;
    let fence = Fence::closure(|_| -> Result<(), Error> { panic!("it was waited for") });
    let error = pair.group.suspend_after(&key, fence).unwrap_err();
    assert!(matches!(error.error, Error::AlreadySuspended { .. }));
    pair.end(ground, true);
}

fn the_default_stream(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let fence = Fence::default_stream(ground.device()).within(Duration::from_secs(60));
    let done = pair.group.suspend_after("cache", fence).unwrap();
    assert_eq!(done.members, [pair.dropped.id()]);
    pair.end(ground, true);
}

fn a_deadline(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    let mut pair = Pair::new(ground);
    let address = pair.group.get(&pair.kept).unwrap().base();
    let current = ground.device().make_current().unwrap();
    let stream = std::ptr::null_mut();
    assert!(sim.hold_stream(stream));
    let enqueued =
        unsafe { cuda_vmm::sys::DriverCalls::cuMemsetD8Async(sim, address, 1, 1, stream) };
    assert_eq!(Code::from(enqueued), Code::SUCCESS);
    let fence = Fence::default_stream(ground.device()).within(Duration::from_millis(5));
    let error = pair.group.suspend_after(Select::All, fence).unwrap_err();
    assert!(matches!(error.error, Error::DeadlinePassed { .. }));
    assert_eq!(error.left.len(), 2);
    assert!(pair.group.get(&pair.kept).is_ok());
    assert!(sim.release_stream(stream));
    drop(current);
    // The work has set the first byte to 1; it is 32 in the pattern.
    let kv = pair.group.get_mut(&pair.kept).unwrap();
    let mut byte = [0];
    kv.read(0, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    pair.group.close().unwrap();
}

fn a_lost_context(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    let mut pair = Pair::new(ground);
    let before = ground.snapshot();
    assert!(sim.poison(0));
    let error = pair.group.suspend("weights").unwrap_err();
    assert_eq!(error.error.code(), Some(Code::ERROR_ILLEGAL_ADDRESS));
    assert_eq!(ground.snapshot(), before);
    assert!(!pair.group.is_suspended(pair.kept.id()).unwrap());
    // What is not copied needs no context.
    let done = pair.group.suspend("cache").unwrap();
    assert_eq!(done.members, [pair.dropped.id()]);
    pair.group.resume("cache").unwrap();
    pair.group.close().unwrap();
}
