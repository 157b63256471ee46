//! Are we still the process that loaded the driver?
//!
//! After `fork` the driver answers every call of the child with NOT_INITIALIZED. The crate sees the fork itself,
//! without a system call: a handler that runs in the child counts generations, and whoever was made in an earlier one
//! is foreign. The simulated driver is told by the same count, before it takes a lock that a thread of the parent may
//! have held.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Once;

static GENERATION: AtomicU32 = AtomicU32::new(0);
static REGISTER: Once = Once::new();

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The generation of this process; taken when a driver is loaded.
pub(crate) fn join() -> u32 {
    if cfg!(miri) {
        return current(); // Miri has neither the handler nor forks.
    }
    REGISTER.call_once(|| {
        #[allow(unsafe_code)]
        // SAFETY: the handler only adds to an atomic, which is async-signal-safe, and is a function of this library,
        // which stays loaded as long as code of it can be called. A failure (no memory) leaves forks to be noticed by
        // the driver's own code 3.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    });
    current()
}

/// The generation now: equal to the one taken at [`join`] unless this is a forked child.
#[inline]
pub(crate) fn current() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}
