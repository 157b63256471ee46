//! The interposer: sits before a driver, makes calls fail, records and counts them.
//!
//! # Safety
//!
//! A call that is let through goes on with its arguments untouched, so what its caller vouches for is what the inner
//! driver is promised. A call that is made to fail touches nothing.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::fork;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::{
    for_each_call, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUhostFn, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemRangeHandleType,
    CUmodule, CUpointer_attribute, CUresult, CUstream, CUuuid, Call, DriverCalls, CUDA_MEMCPY2D,
};

use super::fault::Pending;
use super::log::{Arg, Log, Logged};
use super::{CallRecord, Fault, FaultError, LogMode};

const CALLS: usize = Call::ALL.len();

/// Wraps a driver, simulated or real: its calls can be made to fail, are recorded, and are counted.
///
/// With the log off and no fault pending, a call costs one counter and one test more than without the interposer, and
/// nothing is allocated.
pub struct Interposer {
    inner: Arc<dyn DriverCalls>,
    counts: [AtomicU64; CALLS],
    /// Whether there is anything to do but count.
    watching: AtomicBool,
    logging: bool,
    generation: u32,
    book: Mutex<Book>,
}

struct Book {
    faults: Pending,
    log: Log,
}

impl Interposer {
    /// Wraps a driver, keeping the [default](LogMode::default) amount of log.
    pub fn new(inner: impl DriverCalls) -> Self {
        Self::with_log(inner, LogMode::default())
    }

    /// Wraps a driver, keeping so much of the log.
    pub fn with_log(inner: impl DriverCalls, mode: LogMode) -> Self {
        fork::join();
        Self::unwatched(Arc::new(inner), mode)
    }

    /// Without the fork hook, which is a libc call that the ledger-only driver must not make.
    pub(super) fn unwatched(inner: Arc<dyn DriverCalls>, mode: LogMode) -> Self {
        let logging = !matches!(mode, LogMode::Off | LogMode::Last(0));
        Interposer {
            inner,
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            watching: AtomicBool::new(logging),
            logging,
            generation: fork::current(),
            book: Mutex::new(Book {
                faults: Pending::default(),
                log: Log::new(mode),
            }),
        }
    }

    /// The driver inside.
    pub fn inner(&self) -> &Arc<dyn DriverCalls> {
        &self.inner
    }

    /// Makes calls fail, from now on.
    ///
    /// # Errors
    ///
    /// A fault that could never strike is refused, with the reason.
    pub fn inject(&self, fault: Fault) -> Result<(), FaultError> {
        if let Some(call) = fault.target {
            if !self.inner.provides(call) {
                return Err(FaultError::NotProvided(call));
            }
        }
        let mut book = self.book();
        book.faults.add(fault)?;
        self.watching.store(true, Ordering::Release);
        Ok(())
    }

    /// Forgets every fault that has yet to strike.
    pub fn clear_faults(&self) {
        let mut book = self.book();
        book.faults.clear();
        self.settle(&book);
    }

    /// The faults that have yet to strike, oldest first; `times` counts down.
    pub fn pending_faults(&self) -> Vec<Fault> {
        self.book().faults.list()
    }

    /// The recorded calls, oldest first, in the order of their ends.
    pub fn log(&self) -> Vec<CallRecord> {
        self.book().log.records()
    }

    /// Forgets the recorded calls. The counters go on.
    pub fn clear_log(&self) {
        self.book().log.clear();
    }

    /// How often the call was made since the interposer began, failed or not.
    pub fn calls_of(&self, call: Call) -> u64 {
        self.counts[call as usize].load(Ordering::Relaxed)
    }

    /// How many calls were made since the interposer began.
    pub fn calls(&self) -> u64 {
        self.counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Every change to the book is one push, removal or clear: a panic in between leaves it whole.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, book: &Book) {
        let busy = self.logging || !book.faults.is_empty();
        self.watching.store(busy, Ordering::Release);
    }

    /// Whether the slow path is due. Never in a forked child: another thread may have held the book's lock there.
    fn watched(&self) -> bool {
        self.watching.load(Ordering::Acquire) && self.generation == fork::current()
    }

    fn strike(&self, call: Call) -> Option<CUresult> {
        let mut book = self.book();
        let code = book.faults.strike(call);
        self.settle(&book);
        code
    }

    fn record(&self, call: Call, result: CUresult, args: impl FnOnce() -> Vec<Arg>) {
        if self.logging {
            let record = CallRecord::new(call, args(), result);
            self.book().log.push(record);
        }
    }
}

impl fmt::Debug for Interposer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interposer")
            .field("calls", &self.calls())
            .field("pending_faults", &self.pending_faults())
            .finish_non_exhaustive()
    }
}

macro_rules! interpose {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        // SAFETY: each call either goes to the inner driver as it came, or does nothing and answers an error.
        unsafe impl DriverCalls for Interposer {
            fn provides(&self, call: Call) -> bool {
                self.inner.provides(call)
            }

            $(
                #[inline]
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    const CALL: Call = Call::$name;
                    self.counts[CALL as usize].fetch_add(1, Ordering::Relaxed);
                    if !self.watched() {
                        // SAFETY: the arguments are the caller's own.
                        return unsafe { self.inner.$name($($arg),*) };
                    }
                    let result = match self.strike(CALL) {
                        Some(code) => code,
                        // SAFETY: the arguments are the caller's own.
                        None => unsafe { self.inner.$name($($arg),*) },
                    };
                    self.record(CALL, result, || {
                        let _succeeded = result == CUresult::CUDA_SUCCESS;
                        // SAFETY: the caller vouches for the pointers, and outputs are read only after success.
                        vec![$(Arg::new(stringify!($arg), unsafe { Logged::value($arg, _succeeded) })),*]
                    });
                    result
                }
            )*
        }
    };
}
for_each_call!(interpose);
