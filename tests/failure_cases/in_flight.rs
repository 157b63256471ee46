//! D. Work in flight when memory goes away; and no lock over anybody else's code.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use cuda_vmm::sim::{CallRecord, Value};
use cuda_vmm::sys::Call;
use cuda_vmm::{Driver, Fence, Reservation};

use crate::case::{Case, Machine};
use crate::liar::{furnished, Liar};
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::sim(
        "a fence waits in the context of its own device",
        the_right_device,
    ),
    Case::both("mapping beside memory that is in use", beside_work),
    Case::sim("every driver call may come back to the crate", reentered),
];

/// Failure case 48: the default stream is one of the current context, and the current context is another device's.
fn the_right_device() {
    let rig = Rig::of(2);
    let [first, second] = &rig.devices[..] else {
        panic!("there are two");
    };
    let of_second = rig.sim.snapshot().retained_contexts;
    let guard = second.make_current().unwrap();
    let context = guard.raw() as u64;
    drop(guard);
    let _current = first.make_current().unwrap();
    let pushed_then = |log: &[CallRecord], then: Call| {
        let at = log
            .iter()
            .position(|record| record.call == then)
            .expect("it was waited for");
        let pushed = log[..at]
            .iter()
            .rev()
            .find(|record| record.call == Call::cuCtxPushCurrent_v2);
        pushed.and_then(|record| match record.arg("context") {
            Some(Value::Pointer(pointer)) => Some(*pointer as u64),
            Some(Value::Word(word)) => Some(*word),
            _ => None,
        })
    };
    let soon = || Fence::default_stream(second).within(Duration::from_secs(5));
    for (fence, waits) in [
        (Fence::default_stream(second), Call::cuStreamSynchronize),
        (soon(), Call::cuStreamQuery),
    ] {
        let mut kv = rig.reserve(1);
        let id = kv.map(0, G, &rig.props()).unwrap();
        rig.sim.clear_log();
        kv.unmap_after(id, fence).unwrap();
        assert_eq!(pushed_then(&rig.sim.log(), waits), Some(context));
        rig.sim.clear_log();
        kv.close_after(Fence::default_stream(second)).unwrap();
        assert_eq!(
            pushed_then(&rig.sim.log(), Call::cuStreamSynchronize),
            Some(context)
        );
    }
    assert_eq!(of_second, [0, 0]);
    assert_eq!(rig.sim.snapshot().context_depth, 1);
}

/// Failure case 51: create ahead, map later, while the device works on another range.
fn beside_work(on: &Machine) {
    let turns = if on.sim.is_some() { 200 } else { 1_000 };
    let g = on.g;
    let mut used = on.reserve(16);
    used.map(0, 16 * g, &on.props).unwrap();
    let mut kv = on.reserve(2);
    let prepared = on.props.create(g).unwrap();
    let (stop, fills) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                used.fill(0, 16 * g, 0x5a).unwrap();
                fills.fetch_add(1, Ordering::Relaxed);
                if on.sim.is_some() {
                    // Its one lock goes to whoever is quickest: without a pause that is this thread, again and again.
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let mut turn = 0;
        while turn < turns || fills.load(Ordering::Relaxed) < 3 {
            kv.map_existing(0, &prepared).unwrap();
            kv.map(g, g, &on.props).unwrap();
            kv.unmap_range(0, 2 * g).unwrap();
            turn += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut byte = [0];
    used.read(16 * g - 1, &mut byte).unwrap();
    assert_eq!(byte, [0x5a]);
    used.close().unwrap();
    kv.close().unwrap();
    prepared.release().unwrap();
}

/// Failure case 57: a lock that were held over a driver call would never be given back here.
fn reentered() {
    let (done, wait) = channel();
    thread::spawn(move || {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        let liar = Liar::new();
        liar.calls_back(|| {
            let Some(driver) = DRIVER.get() else {
                return;
            };
            let device = driver.device(0).unwrap();
            device.free_memory().unwrap();
            let kv = furnished(driver);
            driver.is_vmm(kv.base()).unwrap();
            kv.close().unwrap();
            driver.reclaim().unwrap();
        });
        let driver = DRIVER.get_or_init(|| liar.driver());
        let device = driver.device(0).unwrap();
        let before = liar.sim.calls();
        let mut kv = furnished(driver);
        kv.write(0, b"in peace").unwrap();
        kv.set_policy(&device, cuda_vmm::Access::Read).unwrap();
        kv.access_of(0, &device).unwrap();
        kv.unmap_range(0, G).unwrap();
        kv.close().unwrap();
        drop(device.make_current().unwrap());
        Reservation::builder(G)
            .reserve(driver)
            .unwrap()
            .close()
            .unwrap();
        done.send((liar.sim.calls() - before, liar.sim.snapshot()))
            .unwrap();
    });
    let ended = wait.recv_timeout(Duration::from_secs(60));
    let (calls, left) = ended.expect("a call came back to the crate and found a lock held");
    assert!(calls > 200, "{calls} calls: they did not come back");
    assert!(left.holds_no_memory(), "{left}");
}
