//! No lock of this crate is held while the driver is called.
//!
//! Before and after every call that the crate makes, another thread goes through all that a lock guards. It is kept
//! waiting only where the calling thread holds one of those locks.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::share::{SpanImport, SpanSource};
use crate::sim::{Interposer, SimDevice, Simulation};
use crate::sys::{
    for_each_call, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUhostFn, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemRangeHandleType,
    CUmodule, CUpointer_attribute, CUresult, CUstream, CUuuid, Call, DriverCalls, CUDA_MEMCPY2D,
};
use crate::{
    reset_leak_hook, Access, Allocation, AllocationProps, CloseError, Driver, Error, Fence,
    HandleType, HandleTypes, MappingId, Reservation,
};

/// Far longer than a visit takes on a busy machine: who waits so long waits for a lock.
const PATIENCE: Duration = Duration::from_secs(20);

const G: usize = 2 << 20;

thread_local! {
    /// Whether the calls of this thread are a visitor's.
    static VISITING: Cell<bool> = const { Cell::new(false) };
}

/// A simulated driver that has a visitor come before and after every call, and can make one call fail.
#[derive(Clone)]
pub(crate) struct Watched {
    inner: Simulation,
    notes: Arc<Notes>,
}

struct Notes {
    visitor: Mutex<Option<Sender<Visit>>>,
    seen: Mutex<BTreeSet<Call>>,
    /// The calls during which the visitor was kept waiting.
    locked: Mutex<BTreeSet<Call>>,
    /// Counts down to the call that fails.
    until_failure: AtomicI64,
    /// Goes through further locks.
    also: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// Answered when the visitor has been through.
type Visit = Sender<()>;

impl Watched {
    /// The call with this number fails; none if it is 0.
    fn failing_at(number: i64) -> Self {
        let devices = Simulation::builder()
            .device(SimDevice::new())
            .device(SimDevice::new());
        Watched {
            inner: devices.ledger_only().imex_channel(true).build().unwrap(),
            notes: Arc::new(Notes {
                visitor: Mutex::default(),
                seen: Mutex::default(),
                locked: Mutex::default(),
                until_failure: AtomicI64::new(number),
                also: Mutex::default(),
            }),
        }
    }

    /// The visitor goes through these locks too, from here on.
    pub(crate) fn also(&self, locks: impl Fn() + Send + 'static) {
        let before = self.notes.also.lock().unwrap().replace(Box::new(locks));
        // What had the locks may make calls as it goes.
        drop(before);
    }

    /// The calls that were made, without their first letters.
    pub(crate) fn seen(&self) -> BTreeSet<&'static str> {
        let seen = self.notes.seen.lock().unwrap();
        seen.iter().map(|call| &call.symbol()[2..]).collect()
    }

    /// The calls during which a lock was held.
    pub(crate) fn locked(&self) -> BTreeSet<Call> {
        self.notes.locked.lock().unwrap().clone()
    }

    /// Whether the call that was to fail was made.
    pub(crate) fn has_failed(&self) -> bool {
        self.notes.until_failure.load(Ordering::Relaxed) <= 0
    }

    fn visit(&self, call: Call, patience: Duration) {
        let Some(visitor) = self.notes.visitor.lock().unwrap().clone() else {
            return;
        };
        let (done, wait) = channel();
        visitor.send(done).unwrap();
        if wait.recv_timeout(patience).is_err() {
            self.notes.locked.lock().unwrap().insert(call);
        }
    }

    fn around(&self, call: Call, body: impl FnOnce() -> CUresult) -> CUresult {
        if VISITING.get() {
            return body();
        }
        self.notes.seen.lock().unwrap().insert(call);
        self.visit(call, PATIENCE);
        let result = match self.notes.until_failure.fetch_sub(1, Ordering::Relaxed) {
            1 => CUresult::CUDA_ERROR_UNKNOWN,
            _ => body(),
        };
        self.visit(call, PATIENCE);
        result
    }
}

macro_rules! watch {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        // SAFETY: each call goes on with its arguments untouched, or does nothing and answers an error.
        unsafe impl DriverCalls for Watched {
            fn provides(&self, call: Call) -> bool {
                self.inner.provides(call)
            }

            $(
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    // SAFETY: the arguments are the caller's own.
                    self.around(Call::$name, || unsafe { self.inner.$name($($arg),*) })
                }
            )*
        }
    };
}
for_each_call!(watch);

/// Takes every lock there is: those of the granularities, the contexts, the quarantine, the kinds of handles, the
/// names, the leak hook and the interposer. On a device of its own, so that the other thread finds nothing done.
fn go_through_all(driver: &Driver, interposer: &Interposer) {
    let device = driver.device(1).unwrap();
    AllocationProps::on(&device).granularity().unwrap();
    drop(device.make_current().unwrap());
    let _pieces = driver.quarantined();
    device.forget_handle_types().unwrap();
    // The value of no handle.
    assert!(driver.known(u64::MAX).is_none());
    reset_leak_hook();
    assert!(!interposer.log().is_empty());
}

fn start_visitor(
    watched: &Watched,
    driver: &Driver,
    interposer: &Arc<Interposer>,
) -> JoinHandle<()> {
    let (ask, asked) = channel::<Visit>();
    *watched.notes.visitor.lock().unwrap() = Some(ask);
    let (driver, interposer) = (driver.clone(), interposer.clone());
    let notes = watched.notes.clone();
    thread::spawn(move || {
        VISITING.set(true);
        for done in asked {
            go_through_all(&driver, &interposer);
            if let Some(also) = &*notes.also.lock().unwrap() {
                also();
            }
            // Nobody listens any more where patience was lost.
            let _ = done.send(());
        }
    })
}

/// Everything the crate does, on a driver of which one call fails.
fn run(fails_at: i64) -> (Watched, Result<(), Error>) {
    run_on_watched(fails_at, |driver, _| everything(driver))
}

/// Some work on a driver of which one call fails.
pub(crate) fn run_on_watched(
    fails_at: i64,
    work: impl FnOnce(&Driver, &Watched) -> Result<(), Error>,
) -> (Watched, Result<(), Error>) {
    let watched = Watched::failing_at(fails_at);
    let interposer = Arc::new(Interposer::new(watched.clone()));
    let result = Driver::from_calls(interposer.clone()).and_then(|driver| {
        let visitor = start_visitor(&watched, &driver, &interposer);
        let result = work(&driver, &watched);
        let reclaimed = driver.reclaim();
        *watched.notes.visitor.lock().unwrap() = None;
        visitor.join().unwrap();
        *watched.notes.also.lock().unwrap() = None;
        reclaimed.and(result)
    });
    (watched, result)
}

fn everything(driver: &Driver) -> Result<(), Error> {
    let device = driver.device(0)?;
    assert_eq!(driver.device_by_uuid(device.uuid()?)?.ordinal(), 0);
    device.name()?;
    device.capabilities()?;
    device.total_memory()?;
    device.can_access_peer(&driver.device(1)?)?;
    let props = AllocationProps::on(&device);
    let page = props.create(G)?;
    page.granted()?;
    let other = props.clone().shareable_as(HandleTypes::FABRIC);
    let raw = other.create(G)?.into_raw().expect("not shared");
    // SAFETY: the handle is live, and its count is nobody's.
    let other = unsafe { Allocation::from_raw(driver, raw, G) }?;

    let mut kv = Reservation::builder(16 * G)
        .access(&device, Access::ReadWrite)
        .reserve(driver)?;
    let first = kv.map(0, 2 * G, &props)?;
    let second = kv.map_existing(2 * G, &page)?;
    kv.map_existing(3 * G, &other)?;
    kv.map_releasing(4 * G, G, &props)?;
    kv.write(G, &[1; 8])?;
    kv.fill(3 * G, G, 2)?;
    kv.copy_within(4 * G, 3 * G, 8)?;
    kv.read(G, &mut [0; 8])?;
    kv.set_access(0, 2 * G, &device, Access::Read)?;
    kv.set_policy(&driver.device(1)?, Access::Read)?;
    kv.access_of(0, &device)?;
    device.free_memory()?;
    assert!(driver.is_vmm(kv.base())?);
    Allocation::retain(driver, kv.base())?
        .release()
        .map_err(|failed| failed.error)?;
    drop(page);

    sharing(driver, &kv)?;
    waiting(driver, &mut kv, first)?;
    kv.unmap(second)?;
    kv.unmap_range(3 * G, 2 * G)?;
    kv.map(0, G, &props)?;
    let kept = kv.close_keeping().map_err(|failed| failed.error)?;
    assert_eq!(kept.len(), 1);
    drop(kept);

    let mut kv = Reservation::builder(G).reserve(driver)?;
    kv.map(0, G, &props)?;
    drop(kv);
    let kv = Reservation::builder(G).reserve(driver)?;
    let fence = Fence::default_stream(&device);
    let closing = kv.close_in_background(fence).map_err(closed_at_once)?;
    closing.join().map_err(closed_at_once)
}

/// Takes the reservation out of the error: left in, it would be leaked on purpose after a wait that failed.
fn closed_at_once(failed: Box<CloseError>) -> Error {
    drop(failed.reservation.into_inner());
    failed.error
}

/// Exports what can be, and imports it again. By fabric handles: a ledger has no descriptors to give.
fn sharing(driver: &Driver, kv: &Reservation) -> Result<(), Error> {
    let device = driver.device(0)?;
    device.require_handle_type(HandleType::Fabric)?;
    let exported = kv.export_span(3 * G, G, HandleType::Fabric, Access::Read)?;
    let (bytes, fds, _kept) = exported.into_parts();
    let span = SpanImport::new(&bytes, fds)?.attach_read_only(driver, [&device])?;
    span.close().map_err(|failed| failed.into_error())?;

    let found = SpanSource::of_addresses(driver, kv.base() + 3 * G as u64, G)?;
    found.export(HandleType::Fabric, Access::Read).map(drop)?;
    found.release()?;

    let props = AllocationProps::on(&device).shareable_as(HandleTypes::FABRIC);
    let export = props.create(G)?.export_fabric()?;
    Allocation::import_fabric(driver, export.handle(), G)?
        .release()
        .map_err(|failed| failed.error)
}

/// Unmaps once an event and a stream are through, looking and waiting.
fn waiting(driver: &Driver, kv: &mut Reservation, block: MappingId) -> Result<(), Error> {
    let device = driver.device(0)?;
    let mut event: CUevent = std::ptr::null_mut();
    let guard = device.make_current()?;
    // SAFETY: the pointer is a local's. The call is a stranger's, and does not fail.
    let made = unsafe { driver.calls_raw().cuEventCreate(&mut event, 0) };
    if made != CUresult::CUDA_SUCCESS {
        return Ok(()); // The one call that is made to fail.
    }
    drop(guard);
    let soon = Duration::from_secs(60);
    // SAFETY: the event lives until the driver's end.
    let fences = unsafe {
        [
            Fence::event(&device, event),
            Fence::event(&device, event).within(soon),
        ]
    };
    let [waits, looks] = fences;
    kv.unmap_range_after(3 * G, G, waits)?;
    kv.unmap_range_after(4 * G, G, looks)?;
    kv.unmap_after(block, Fence::default_stream(&device).within(soon))?;
    let props = AllocationProps::on(&device);
    kv.map(3 * G, G, &props)?;
    kv.map(4 * G, G, &props).map(drop)
}

/// The calls that the safe layers make, read off the files that make them.
pub(crate) fn calls_in(files: &[&'static str]) -> BTreeSet<&'static str> {
    let names = files.iter().flat_map(|file| file.split("self.cu").skip(1));
    names
        .map(|rest| rest.split('(').next().unwrap_or_default())
        .collect()
}

#[test]
fn no_lock_is_held_over_a_driver_call() {
    let (watched, result) = run(0);
    result.unwrap();
    let mut made = calls_in(&[
        include_str!("driver/calls/device.rs"),
        include_str!("driver/calls/memory.rs"),
        include_str!("driver/calls/sharing.rs"),
        include_str!("driver/calls/work.rs"),
    ]);
    // Of the pool's test.
    made.remove("CtxSynchronize");
    let missed: Vec<_> = made.difference(&watched.seen()).copied().collect();
    assert_eq!(missed, Vec::<&str>::new(), "never made here");
    assert_eq!(watched.locked(), BTreeSet::new());
}

#[test]
fn none_is_held_while_what_failed_is_undone() {
    for number in 1.. {
        let (watched, result) = run(number);
        assert_eq!(
            *watched.notes.locked.lock().unwrap(),
            BTreeSet::new(),
            "when call {number} failed"
        );
        if !watched.has_failed() {
            // There are not so many calls.
            result.unwrap();
            assert!(number > 100, "only {number} calls were made");
            return;
        }
    }
}

#[test]
fn the_visitor_is_kept_waiting_by_a_lock() {
    let watched = Watched::failing_at(0);
    let interposer = Arc::new(Interposer::new(watched.clone()));
    let driver = Driver::from_calls(interposer.clone()).unwrap();
    let visitor = start_visitor(&watched, &driver, &interposer);
    let held = driver.hold_a_lock();
    watched.visit(Call::cuMemUnmap, Duration::from_millis(100));
    drop(held);
    *watched.notes.visitor.lock().unwrap() = None;
    visitor.join().unwrap();
    assert_eq!(
        *watched.notes.locked.lock().unwrap(),
        BTreeSet::from([Call::cuMemUnmap])
    );
}
