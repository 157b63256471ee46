//! Calls put between the crate and the driver that panic, at every call of many operations, or come back into the
//! crate.
//!
//! Not tried is a panic in the very call that ends something (a release in `Drop`): nobody is left then who could call
//! again.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::panic::{catch_unwind, panic_any, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUmemAccessDesc,
    CUmemAllocationGranularity_flags, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUmemLocation, CUresult, CUstream, Call, DriverCalls,
};
use cuda_vmm::{
    Access, Allocation, AllocationProps, Device, Driver, Error, Fence, Location, Reservation,
};

const G: usize = 2 << 20;

/// Runs a hook before each call.
struct Hooked {
    sim: Simulation,
    hook: Box<dyn Fn(Call) + Send + Sync>,
}

macro_rules! hand_on {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        unsafe impl DriverCalls for Hooked {
            fn provides(&self, call: Call) -> bool {
                self.sim.provides(call)
            }

            $(
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    (self.hook)(Call::$name);
                    unsafe { self.sim.$name($($arg),*) }
                }
            )*
        }
    };
}
hand_on! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuMemAddressReserve(address: *mut CUdeviceptr, size: usize, alignment: usize, hint: CUdeviceptr, flags: c_ulonglong);
    cuMemAddressFree(address: CUdeviceptr, size: usize);
    cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong);
    cuMemRelease(handle: CUmemGenericAllocationHandle);
    cuMemMap(address: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong);
    cuMemUnmap(address: CUdeviceptr, size: usize);
    cuMemSetAccess(address: CUdeviceptr, size: usize, descriptors: *const CUmemAccessDesc, count: usize);
    cuMemGetAccess(rights: *mut c_ulonglong, location: *const CUmemLocation, address: CUdeviceptr);
    cuMemGetAllocationGranularity(granularity: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags);
    cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
    cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, size: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, size: usize);
    cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, size: usize);
    cuMemsetD8_v2(to: CUdeviceptr, value: u8, size: usize);
    cuStreamSynchronize(stream: CUstream);
    cuStreamQuery(stream: CUstream);
}

/// What a call panics with.
struct Thrown;

/// Everything an operation works on. What is dropped first stands first.
struct Stage {
    kv: Option<Reservation>,
    other: Option<Reservation>,
    pages: Vec<Allocation>,
    devices: Vec<Device>,
    driver: Driver,
    sim: Simulation,
    /// Calls to be let through before one panics; none does at `usize::MAX`.
    left: Arc<AtomicUsize>,
}

impl Stage {
    fn new() -> Stage {
        let sim = Simulation::builder()
            .device(SimDevice::new())
            .device(SimDevice::new())
            .build()
            .unwrap();
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let counting = left.clone();
        let hook = move |_| {
            let left = counting.load(Ordering::Relaxed);
            if left == 0 {
                // Once.
                counting.store(usize::MAX, Ordering::Relaxed);
                panic_any(Thrown);
            }
            if left != usize::MAX {
                counting.store(left - 1, Ordering::Relaxed);
            }
        };
        let calls = Hooked {
            sim: sim.clone(),
            hook: Box::new(hook),
        };
        let driver = Driver::from_calls(Arc::new(calls)).unwrap();
        let devices: Vec<_> = driver.devices().collect::<Result<_, _>>().unwrap();
        let props = AllocationProps::on(&devices[0]);
        let mut kv = Reservation::builder(16 * G)
            .access(&devices[0], Access::ReadWrite)
            .reserve(&driver)
            .unwrap();
        kv.map(0, 2 * G, &props).unwrap();
        let page = props.create(G).unwrap();
        kv.map_existing(2 * G, &page).unwrap();
        kv.map_existing(3 * G, &page).unwrap();
        let sole = props.create(G).unwrap();
        kv.map_existing(4 * G, &sole).unwrap();
        drop(sole);
        kv.map_releasing(5 * G, G, &props).unwrap();
        Stage {
            kv: Some(kv),
            other: None,
            pages: vec![page],
            devices,
            driver,
            sim,
            left,
        }
    }

    fn kv(&mut self) -> &mut Reservation {
        self.kv.as_mut().unwrap()
    }

    fn props(&self) -> AllocationProps {
        AllocationProps::on(&self.devices[0]).rdma(true)
    }
}

type Operation = (&'static str, fn(&mut Stage));

const OPERATIONS: &[Operation] = &[
    ("reserve", |stage| {
        let builder = Reservation::builder(G).access(&stage.devices[0], Access::Read);
        stage.other = Some(builder.reserve(&stage.driver).unwrap());
    }),
    ("map", |stage| {
        let props = stage.props();
        stage.kv().map(8 * G, G, &props).unwrap();
    }),
    ("map_releasing", |stage| {
        let props = stage.props();
        stage.kv().map_releasing(8 * G, G, &props).unwrap();
    }),
    ("map_existing", |stage| {
        let page = stage.pages.pop().unwrap();
        stage.kv().map_existing(8 * G, &page).unwrap();
    }),
    ("unmap", |stage| {
        let id = stage.kv().id_at(G).unwrap();
        stage.kv().unmap(id).unwrap();
    }),
    ("unmap_range", |stage| {
        stage.kv().unmap_range(0, 6 * G).unwrap()
    }),
    ("unmap_range of mirrors whose page is dropped", |stage| {
        stage.pages.clear();
        stage.kv().unmap_range(2 * G, 2 * G).unwrap();
    }),
    ("set_access", |stage| {
        let device = Location::Device(1);
        stage
            .kv()
            .set_access(0, 6 * G, device, Access::Read)
            .unwrap();
    }),
    ("set_policy", |stage| {
        stage
            .kv()
            .set_policy(Location::Device(1), Access::Read)
            .unwrap();
    }),
    ("write", |stage| {
        stage.kv().write(2 * G - 2, b"seam").unwrap()
    }),
    ("read", |stage| stage.kv().read(G, &mut [0; 64]).unwrap()),
    ("copy_within", |stage| {
        stage.kv().copy_within(0, G, 64).unwrap()
    }),
    ("fill", |stage| stage.kv().fill(0, 6 * G, 1).unwrap()),
    ("create", |stage| {
        let page = stage.props().create(G).unwrap();
        stage.pages.push(page);
    }),
    ("retain", |stage| {
        let address = stage.kv().base();
        let page = Allocation::retain(&stage.driver, address).unwrap();
        stage.pages.push(page);
    }),
    ("free_memory", |stage| {
        stage.devices[0].free_memory().unwrap();
    }),
    ("unmap_range_after", |stage| {
        let fence = Fence::default_stream(&stage.devices[0]);
        match stage.kv().unmap_range_after(0, 6 * G, fence) {
            // A wait that panics is a wait that failed.
            Err(Error::WaitFailed(_)) => assert_eq!(stage.kv().mapping_count(), 5),
            result => result.unwrap(),
        }
    }),
    ("close", |stage| stage.kv.take().unwrap().close().unwrap()),
    ("close_keeping", |stage| {
        let kept = stage.kv.take().unwrap().close_keeping().unwrap();
        stage.pages.extend(kept.into_iter().map(|(_, page)| page));
    }),
];

#[test]
fn a_call_that_panics_loses_nothing() {
    let mut tried = 0;
    let mut bad = Vec::new();
    for (name, run) in OPERATIONS {
        for at in 0.. {
            let mut stage = Stage::new();
            stage.left.store(at, Ordering::Relaxed);
            let ended = catch_unwind(AssertUnwindSafe(|| run(&mut stage)));
            let struck = stage.left.swap(usize::MAX, Ordering::Relaxed) == usize::MAX;
            if let Err(thrown) = &ended {
                assert!(
                    thrown.is::<Thrown>(),
                    "{name}: another panic than call {at}'s"
                );
            }
            let sim = stage.sim.clone();
            if let Some(kv) = stage.kv.take() {
                kv.close().unwrap();
            }
            drop(stage);
            let left = sim.snapshot();
            if !left.is_empty() || !sim.misuses().is_empty() {
                bad.push(format!("{name}, call {at}: {left}\n{:?}", sim.misuses()));
            }
            if !struck {
                ended.unwrap_or_else(|_| panic!("{name} fails by itself"));
                break;
            }
            tried += 1;
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
    println!("{tried} calls panicked");
}

/// Unwinding through a wait would drop what has to stay mapped under work that may still run.
#[test]
fn a_wait_that_panics_leaves_everything_mapped() {
    let fences: [fn(&Device) -> Fence<'static>; 2] = [Fence::default_stream, |device| {
        Fence::default_stream(device).within(Duration::from_secs(60))
    }];
    for fence in fences {
        // The first use of the device retains, pushes, waits and pops.
        for at in 0..4 {
            let mut stage = Stage::new();
            let (before, device) = (stage.sim.snapshot(), stage.devices[0].clone());
            let mut kv = stage.kv.take().unwrap();
            let panicked = |error: &Error| matches!(error, Error::WaitFailed(why) if why.to_string() == "the driver panicked: no message");

            stage.left.store(at, Ordering::Relaxed);
            let id = kv.id_at(0).unwrap();
            let error = kv.unmap_after(id, fence(&device)).unwrap_err();
            assert!(panicked(&error), "{error}");
            assert_eq!(stage.sim.snapshot(), before, "call {at}");

            stage.left.store(at, Ordering::Relaxed);
            let failed = kv.close_after(fence(&device)).unwrap_err();
            assert!(panicked(&failed.error), "{failed}");
            assert_eq!(stage.sim.snapshot(), before, "call {at}");

            stage.left.store(at, Ordering::Relaxed);
            let closing = failed
                .reservation
                .into_inner()
                .close_in_background(fence(&device));
            let failed = closing.unwrap().join().unwrap_err();
            assert!(panicked(&failed.error), "{failed}");
            assert_eq!(stage.sim.snapshot(), before, "call {at}");
            failed.reservation.into_inner().close().unwrap();
        }
    }
}

/// What is given back when a call panics, and what was yet to be, goes back into quarantine.
#[test]
fn a_reclaim_that_panics_keeps_what_is_left() {
    let stage = Stage::new();
    let base = stage.kv.as_ref().unwrap().base();
    for _ in 0..3 {
        let refused = Fault::on(Call::cuMemRelease).times(2);
        stage.sim.inject(refused).unwrap();
        stage.driver.is_vmm(base).unwrap_err();
    }
    assert_eq!(stage.driver.quarantined(), 3);
    for (at, left) in [(1, 2), (0, 2)] {
        stage.left.store(at, Ordering::Relaxed);
        let thrown = catch_unwind(AssertUnwindSafe(|| stage.driver.reclaim())).unwrap_err();
        assert!(thrown.is::<Thrown>());
        assert_eq!(stage.driver.quarantined(), left);
    }
    assert_eq!(stage.driver.reclaim().unwrap(), 2);
    assert_eq!(stage.driver.quarantined(), 0);
    let sim = stage.sim.clone();
    drop(stage);
    assert!(sim.snapshot().is_empty());
    assert_eq!(sim.misuses(), []);
}

#[test]
fn a_call_may_come_back_into_the_crate() {
    let sim = Simulation::new();
    let inside: Arc<OnceLock<Device>> = Arc::default();
    let device = inside.clone();
    let busy = Mutex::new(());
    let hook = move |_| {
        // One level deep.
        let (Ok(_busy), Some(device)) = (busy.try_lock(), device.get()) else {
            return;
        };
        device.free_memory().unwrap();
        let mut kv = Reservation::builder(G).reserve(device.driver()).unwrap();
        kv.map(0, G, &AllocationProps::on(device)).unwrap();
        kv.close().unwrap();
    };
    let calls = Hooked {
        sim: sim.clone(),
        hook: Box::new(hook),
    };
    let driver = Driver::from_calls(Arc::new(calls)).unwrap();
    let device = driver.device(0).unwrap();
    inside.set(device.clone()).unwrap();
    let mut kv = Reservation::builder(4 * G)
        .access(&device, Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    kv.map(0, G, &AllocationProps::on(&device).rdma(true))
        .unwrap();
    kv.write(0, b"inside out").unwrap();
    kv.close().unwrap();
    assert!(sim.snapshot().holds_no_memory());
    assert_eq!(sim.snapshot().retained_contexts, [1]);
}

/// Two users of a device come at once: each retains its context, and one of the two is given back.
#[test]
fn a_second_retain_that_is_not_taken_back_is_kept() {
    let sim = Simulation::new();
    let inside: Arc<Mutex<Option<Device>>> = Arc::default();
    let device = inside.clone();
    let first = AtomicUsize::new(0);
    let hook = move |call| {
        let Some(device) = device.lock().unwrap().clone() else {
            return;
        };
        let asked = call == Call::cuDevicePrimaryCtxRetain;
        if asked && first.fetch_add(1, Ordering::Relaxed) == 0 {
            device.free_memory().unwrap();
        }
    };
    let calls = Hooked {
        sim: sim.clone(),
        hook: Box::new(hook),
    };
    let driver = Driver::from_calls(Arc::new(calls)).unwrap();
    let device = driver.device(0).unwrap();
    *inside.lock().unwrap() = Some(device.clone());
    sim.inject(Fault::on(Call::cuDevicePrimaryCtxRelease_v2))
        .unwrap();
    // What it was retained for is done, so nothing fails; the driver gives both back at its end.
    device.free_memory().unwrap();
    assert_eq!(sim.snapshot().retained_contexts, [2]);
    // The hook's device holds the driver, which holds the hook.
    inside.lock().unwrap().take();
    drop((device, driver));
    assert_eq!(sim.snapshot().retained_contexts, [0]);
}
