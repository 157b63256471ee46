//! A caller's closure may use the crate as it likes: no lock is held while it runs or is dropped.

use std::panic::resume_unwind;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{reset_leak_hook, set_leak_hook, AllocationProps, Driver, Error, Fence};

use crate::rig::{Rig, G};

/// Runs it on a thread of its own, and fails if it does not come to an end.
fn in_time<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel();
    let thread = thread::spawn(move || done.send(run()));
    match wait.recv_timeout(Duration::from_secs(30)) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("it waits for a lock that it holds"),
        // It panicked, and says so here too.
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(_) => unreachable!("it sent nothing"),
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// Goes through whatever has a lock: contexts, granularities, quarantine, and a reservation that leaks.
fn use_everything(driver: &Driver) {
    let device = driver.device(0).unwrap();
    drop(device.make_current().unwrap());
    let props = AllocationProps::on_host(driver);
    props.granularity().unwrap();
    drop(props.create(G).unwrap());
    assert_eq!(driver.quarantined(), 0);
    assert_eq!(driver.reclaim().unwrap(), 0);
}

/// The hook is the process's: these tests take turns.
static HOOK: Mutex<()> = Mutex::new(());

/// Has one release fail, so that dropping an allocation leaks it.
fn leak(rig: &Rig) {
    let page = rig.props().create(G).unwrap();
    let fault = Fault::on(Call::cuMemRelease).code(CUresult::CUDA_ERROR_UNKNOWN);
    rig.sim.inject(fault).unwrap();
    drop(page);
    assert_eq!(rig.sim.pending_faults(), []);
}

#[test]
fn a_leak_hook_may_use_the_crate_and_set_another() {
    let _turn = HOOK.lock();
    in_time(|| {
        let rig = Arc::new(Rig::new());
        let told = Arc::new(Mutex::new(Vec::new()));
        let (theirs, telling) = (rig.clone(), told.clone());
        set_leak_hook(move |leaked| {
            telling.lock().unwrap().push(format!("first: {leaked}"));
            use_everything(&theirs.driver);
            let telling = telling.clone();
            set_leak_hook(move |leaked| telling.lock().unwrap().push(format!("second: {leaked}")));
            leak(&theirs);
        });
        leak(&rig);
        reset_leak_hook();
        let text = "leaked 2097152 bytes (2 MiB) of memory: \
            cuMemRelease (a handle of 2097152 bytes (2 MiB)) failed with CUDA_ERROR_UNKNOWN (999)";
        let told = told.lock().unwrap();
        assert_eq!(*told, [format!("first: {text}"), format!("second: {text}")]);
    });
}

/// What a hook owns, and what has a leak of its own to report when it is dropped.
struct LeaksWhenDropped(Arc<Rig>);

impl Drop for LeaksWhenDropped {
    fn drop(&mut self) {
        leak(&self.0);
    }
}

#[test]
fn a_hook_that_is_replaced_may_leak_when_it_is_dropped() {
    let _turn = HOOK.lock();
    in_time(|| {
        let rig = Arc::new(Rig::new());
        let told = Arc::new(Mutex::new(0));
        for replace in [true, false] {
            let owned = LeaksWhenDropped(rig.clone());
            set_leak_hook(move |_| {
                let _owned = &owned;
            });
            let telling = told.clone();
            match replace {
                true => set_leak_hook(move |_| *telling.lock().unwrap() += 1),
                // To standard error, which nobody reads here.
                false => reset_leak_hook(),
            }
        }
        reset_leak_hook();
        assert_eq!(*told.lock().unwrap(), 1);
        assert_eq!(rig.sim.snapshot().handles.len(), 2);
    });
}

#[test]
fn a_fence_may_use_the_crate() {
    in_time(|| {
        let rig = Rig::new();
        let driver = &rig.driver;
        let fence = || {
            Fence::closure(|_| -> Result<(), Error> {
                use_everything(driver);
                Ok(())
            })
        };
        let mut kv = rig.reserve(4);
        let block = kv.map(0, G, &rig.props()).unwrap();
        kv.map(G, G, &rig.props()).unwrap();
        kv.unmap_after(block, fence()).unwrap();
        kv.unmap_range_after(G, G, fence()).unwrap();
        kv.close_after(fence()).unwrap();

        let theirs = driver.clone();
        let background = Fence::closure(move |_| -> Result<(), Error> {
            use_everything(&theirs);
            Ok(())
        });
        let closing = rig.reserve(1).close_in_background(background).unwrap();
        closing.join().unwrap();
        rig.leaves_nothing();
    });
}

#[test]
fn a_thread_that_waits_keeps_no_other_from_the_driver() {
    in_time(|| {
        let rig = Rig::new();
        let (open, wait) = channel::<()>();
        let mut kv = rig.reserve(1);
        kv.map(0, G, &rig.props()).unwrap();
        let fence = Fence::closure(move |_| wait.recv()).within(Duration::from_secs(60));
        let start = Instant::now();
        let closing = kv.close_in_background(fence).unwrap();
        use_everything(&rig.driver);
        assert!(!closing.is_finished());
        assert_eq!(rig.sim.snapshot().mappings.len(), 1);
        open.send(()).unwrap();
        closing.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(60));
        rig.leaves_nothing();
    });
}
