//! Which side of a fork this is.
//!
//! A driver that was initialised answers `NOT_INITIALIZED` in a forked child. The child must find that out without taking
//! a lock, because a thread that was not copied may have held it.
//!
//! # Safety
//!
//! The hook runs in the child between `fork` and its return. It adds to an atomic, which is all that is allowed there.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Once;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between the first process that watched and this one.
pub(super) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has forks counted from now on.
pub(super) fn watch() {
    static HOOK: Once = Once::new();

    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }

    if cfg!(miri) {
        return; // Miri has neither the hook nor forks.
    }
    HOOK.call_once(|| {
        // SAFETY: the hook is a function of this program, and async-signal-safe. Out of memory leaves it out, and with it
        // only the refusal in forked children.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
