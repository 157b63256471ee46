//! The caller's own code inside the crate's: what a leak hook holds, and what a closure throws.
#![allow(missing_docs)]

use std::panic::panic_any;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::Call;
use cuda_vmm::{reset_leak_hook, set_leak_hook, Error, Fence};

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "support/rig.rs"]
mod rig;

use rig::{Rig, G};

/// The hook is one for the process.
fn alone() -> MutexGuard<'static, ()> {
    static HOOK: Mutex<()> = Mutex::new(());
    HOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Thrown, and throws again when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("the thrown value was dropped");
        }
    }
}

#[test]
fn a_replaced_hook_may_leak_what_it_holds() {
    let _alone = alone();
    let (told, telling) = channel();
    let worker = thread::spawn(move || {
        let rig = Rig::new();
        let page = rig.props().create(G).unwrap();
        set_leak_hook(move |_| {
            let _held = &page;
        });
        rig.sim.inject(Fault::on(Call::cuMemRelease)).unwrap();
        // The page goes with the old hook. Its leak is reported to the new one.
        let from_new = told.clone();
        set_leak_hook(move |leak| from_new.send(leak.to_string()).unwrap());

        let page = rig.props().create(G).unwrap();
        set_leak_hook(move |_| {
            let _held = &page;
        });
        rig.sim.inject(Fault::on(Call::cuMemRelease)).unwrap();
        reset_leak_hook();
        told.send("reset".into()).unwrap();
    });
    let next = || telling.recv_timeout(Duration::from_secs(30));
    let leak = next().expect("the hook is set without a deadlock");
    assert!(leak.starts_with("leaked 2097152 bytes"), "{leak}");
    let reset = next().expect("the hook is reset without a deadlock");
    assert_eq!(reset, "reset");
    worker.join().unwrap();
}

#[test]
fn what_a_hook_throws_is_not_dropped() {
    let _alone = alone();
    let rig = Rig::new();
    set_leak_hook(|_| panic_any(Bomb));
    let page = rig.props().create(G).unwrap();
    rig.sim.inject(Fault::on(Call::cuMemRelease)).unwrap();
    drop(page);
    reset_leak_hook();
}

#[test]
fn what_a_fence_throws_is_not_dropped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    let id = kv.map(0, G, &rig.props()).unwrap();
    let before = rig.sim.snapshot();
    let bomb = || Fence::closure(|_| -> Result<(), Error> { panic_any(Bomb) });

    let error = kv.unmap_after(id, bomb()).unwrap_err();
    assert!(matches!(error, Error::WaitFailed(_)), "{error}");
    let error = kv.close_after(bomb()).unwrap_err();
    assert!(matches!(error.error, Error::WaitFailed(_)), "{error}");
    let error = error
        .reservation
        .into_inner()
        .close_in_background(bomb())
        .unwrap();
    let error = error.join().unwrap_err();
    assert!(matches!(error.error, Error::WaitFailed(_)), "{error}");

    assert_eq!(rig.sim.snapshot(), before, "nothing was unmapped");
    error.reservation.into_inner().close().unwrap();
    rig.leaves_nothing();
}
