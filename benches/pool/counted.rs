//! A driver whose calls are counted, and which can leave out the work on the device.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use cuda_vmm::sys::*;

/// Stands before a driver. Its counter costs raw calls and those of the crate the same.
pub(crate) struct Counted {
    inner: Arc<dyn DriverCalls>,
    calls: AtomicU64,
    idle: AtomicBool,
}

impl Counted {
    pub fn new(inner: Arc<dyn DriverCalls>) -> Counted {
        Counted {
            inner,
            calls: AtomicU64::new(0),
            idle: AtomicBool::new(false),
        }
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// While it is idle, asynchronous copies, launches, waits and events answer SUCCESS and do nothing: what is left
    /// is the crate's own time, and that of changing the current context.
    pub fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Relaxed);
    }
}

/// Calls that answer SUCCESS while the driver is idle.
const fn is_left_out(call: Call) -> bool {
    matches!(
        call,
        Call::cuMemcpyDtoDAsync_v2
            | Call::cuLaunchKernel
            | Call::cuStreamSynchronize
            | Call::cuStreamQuery
            | Call::cuEventRecord
            | Call::cuEventSynchronize
            | Call::cuEventQuery
    )
}

macro_rules! count {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        unsafe impl DriverCalls for Counted {
            fn provides(&self, call: Call) -> bool {
                self.inner.provides(call)
            }

            $(
                #[inline]
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    self.calls.fetch_add(1, Relaxed);
                    if is_left_out(Call::$name) && self.idle.load(Relaxed) {
                        return CUresult::CUDA_SUCCESS;
                    }
                    unsafe { self.inner.$name($($arg),*) }
                }
            )*
        }
    };
}
for_each_call!(count);
