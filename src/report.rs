//! The one hook through which `Drop` reports what it could not undo.
//!
//! `Drop` cannot return an error. What it cannot give back it leaks on purpose (freeing addresses beneath a live
//! mapping would be worse) and reports here. A driver that has shut down and a forked child are not reported: nothing
//! is lost there.

use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bytes::Bytes;
use crate::error::Error;

/// Something that `Drop` could not undo, and why.
#[derive(Debug)]
#[non_exhaustive]
pub enum Leak {
    /// A physical handle was not released: its memory stays taken until the process ends.
    Memory {
        /// Its size in bytes.
        size: usize,
        /// The driver's answer.
        error: Error,
    },
    /// A range was not unmapped: it, its memory and the reservation around it stay until the process ends.
    Mapping {
        /// Its address.
        address: u64,
        /// Its size in bytes.
        size: usize,
        /// The driver's answer.
        error: Error,
    },
    /// Addresses were not freed.
    Addresses {
        /// First address.
        base: u64,
        /// Bytes.
        size: usize,
        /// The driver's answer.
        error: Error,
    },
    /// A reservation that was to be closed in the background stays, with its memory, because the wait for its work
    /// failed.
    Reservation {
        /// First address.
        base: u64,
        /// Bytes.
        size: usize,
        /// Why the wait failed.
        error: Error,
    },
    /// A primary context was not released.
    Context {
        /// The device's ordinal.
        device: u32,
        /// The driver's answer.
        error: Error,
    },
    /// Memory of the host stays registered, and so stays until the process ends.
    HostMemory {
        /// Its address.
        address: usize,
        /// Its size in bytes.
        size: usize,
        /// The driver's answer.
        error: Error,
    },
    /// A stream was not destroyed.
    Stream {
        /// The device's ordinal.
        device: u32,
        /// The driver's answer.
        error: Error,
    },
    /// A context that this crate had made current is still current on this thread.
    CurrentContext {
        /// The driver's answer.
        error: Error,
    },
}

impl Leak {
    /// Why it could not be undone.
    pub fn error(&self) -> &Error {
        match self {
            Leak::Memory { error, .. }
            | Leak::Mapping { error, .. }
            | Leak::Addresses { error, .. }
            | Leak::Reservation { error, .. }
            | Leak::Context { error, .. }
            | Leak::HostMemory { error, .. }
            | Leak::Stream { error, .. }
            | Leak::CurrentContext { error } => error,
        }
    }
}

impl Leak {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Leak::Memory { error, .. }
            | Leak::Mapping { error, .. }
            | Leak::Addresses { error, .. }
            | Leak::Reservation { error, .. }
            | Leak::Context { error, .. }
            | Leak::HostMemory { error, .. }
            | Leak::Stream { error, .. }
            | Leak::CurrentContext { error } => error,
        }
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leak::Memory { size, error } => write!(f, "leaked {} of memory: {error}", Bytes(*size)),
            Leak::Mapping {
                address,
                size,
                error,
            } => {
                write!(
                    f,
                    "leaked the mapping of {} at {address:#x} and the addresses around it: {error}",
                    Bytes(*size)
                )
            }
            Leak::Addresses { base, size, error } => {
                write!(
                    f,
                    "leaked the address range of {} at {base:#x}: {error}",
                    Bytes(*size)
                )
            }
            Leak::Reservation { base, size, error } => {
                write!(
                    f,
                    "leaked the reservation of {} at {base:#x}, which may be in use: {error}",
                    Bytes(*size)
                )
            }
            Leak::Context { device, error } => write!(
                f,
                "leaked a retain of device {device}'s primary context: {error}"
            ),
            Leak::HostMemory {
                address,
                size,
                error,
            } => {
                write!(
                    f,
                    "leaked {} of the host's memory, registered at {address:#x}: {error}",
                    Bytes(*size)
                )
            }
            Leak::Stream { device, error } => {
                write!(f, "leaked a stream of device {device}: {error}")
            }
            Leak::CurrentContext { error } => {
                write!(f, "a context stays current on this thread: {error}")
            }
        }
    }
}

type Hook = Arc<dyn Fn(&Leak) + Send + Sync>;

static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

/// Sets what is told of leaks, in place of one line on standard error.
///
/// There is one hook for the whole process, so tests that run side by side see each other's leaks. It runs inside
/// `Drop`, on the thread that drops, with no lock of this crate held. A panic in it is caught and forgotten.
pub fn set_leak_hook(hook: impl Fn(&Leak) + Send + Sync + 'static) {
    replace(Some(Arc::new(hook)));
}

/// Goes back to one line on standard error.
pub fn reset_leak_hook() {
    replace(None);
}

/// The old hook is dropped when the lock is free again: what it holds may itself leak, and report that.
fn replace(hook: Option<Hook>) {
    let old = std::mem::replace(
        &mut *HOOK.lock().unwrap_or_else(PoisonError::into_inner),
        hook,
    );
    drop(old);
}

/// Reports a leak, unless the driver itself is gone.
#[cold]
pub(crate) fn leaked(leak: Leak) {
    if leak.error().driver_is_gone() {
        return;
    }
    let hook = HOOK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // A drop during unwinding must not panic, whatever the hook or a closed standard error does.
    let told = catch_unwind(AssertUnwindSafe(|| match hook {
        Some(hook) => hook(&leak),
        None => eprintln!("cuda-vmm: {leak}"),
    }));
    // What was thrown may panic when it is dropped, so it never is.
    if let Err(thrown) = told {
        std::mem::forget(thrown);
    }
}
