//! Locks and atomics: the standard library's, or in unit tests under `--cfg shuttle` those of a scheduler that permutes
//! threads.
//!
//! What is a process-wide static stays with the standard library, since the scheduler's own begin anew with every order
//! of threads; so do cells that are set once, which nobody waits for.
#![allow(unused_imports)] // Some are for the simulated driver alone.

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{
    sync::{atomic, Condvar, Mutex, MutexGuard},
    thread_local,
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::{
    sync::{atomic, Condvar, Mutex, MutexGuard},
    thread_local,
};

use std::sync::PoisonError;

/// Locks a cache. A panic elsewhere while it was held leaves it whole: every section is one insertion or look-up.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For what the memory model's own checker looks at, too: in unit tests under `--cfg loom` these are its atomics and
/// locks, which try the weak orders that a processor may give.
pub(crate) mod modelled {
    #[cfg(not(all(test, loom)))]
    pub(crate) use super::{atomic, Mutex, MutexGuard};
    #[cfg(all(test, loom))]
    pub(crate) use loom::sync::{atomic, Mutex, MutexGuard};

    /// [`lock`](super::lock), for these.
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
