//! Contexts: virtual memory management needs none, copies do.
//!
//! The crate uses primary contexts only. One is retained at the first call that needs it and kept until the driver
//! goes, since making one anew takes the driver a good part of a second. Whatever was current on the thread is current
//! again afterwards.

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;

use crate::driver::{leave, Calls, Context, Driver, Entered, Unwinding};
use crate::error::{Error, Result};
use crate::report::{self, Leak};
use crate::sys::CUcontext;

impl Driver {
    /// Runs the operation with the device's primary context current, and restores what was current before. If the
    /// operation fails, a context retained for it is released again.
    pub(crate) fn with_context<T>(
        &self,
        device: c_int,
        operation: impl FnOnce(&Calls) -> Result<T>,
    ) -> Result<T> {
        let (calls, contexts) = (self.calls(), self.contexts());
        let entered = contexts.enter(self, device)?;
        let unwinding = Unwinding::entered(calls, device, &entered);
        let result = operation(calls);
        let popped = leave(calls, entered.context);
        unwinding.disarm();
        match (result, popped) {
            (Ok(value), Ok(())) => {
                contexts.keep(calls, device, &entered);
                Ok(value)
            }
            (Ok(_), Err(error)) => Err(self.forget_fresh(device, &entered, error, Vec::new())),
            (Err(error), popped) => {
                Err(self.forget_fresh(device, &entered, error, popped.err().into_iter().collect()))
            }
        }
    }

    fn forget_fresh(
        &self,
        device: c_int,
        entered: &Entered,
        error: Error,
        mut undo: Vec<Error>,
    ) -> Error {
        if entered.fresh {
            let release = self.calls().primary_context_release(device).err();
            undo.extend(
                self.contexts()
                    .quarantine_if(release, device, entered.context),
            );
        }
        error.with_undo(undo)
    }
}

/// A device's primary context, current on this thread for as long as this lives.
///
/// Made by [`Device::make_current`](crate::Device::make_current). What was current before is current again when it is
/// dropped; guards must be dropped in the reverse order of their making, as scopes do by themselves. One that is
/// dropped out of order is told to [`set_leak_hook`](crate::set_leak_hook)'s hook. A context is current on one thread,
/// so the guard stays there:
///
/// ```compile_fail,E0277
/// # use cuda_vmm::{CurrentContext, Device};
/// fn elsewhere(current: CurrentContext<'_>) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| drop(current));
///     });
/// }
/// ```
#[must_use = "the context is current only while the guard lives"]
pub struct CurrentContext<'a> {
    driver: &'a Driver,
    context: Context,
    /// A context is current on one thread.
    not_send: PhantomData<*const ()>,
}

impl<'a> CurrentContext<'a> {
    pub(crate) fn enter(driver: &'a Driver, device: c_int) -> Result<Self> {
        let (calls, contexts) = (driver.calls(), driver.contexts());
        let entered = contexts.enter(driver, device)?;
        let guard = CurrentContext {
            driver,
            context: entered.context,
            not_send: PhantomData,
        };
        contexts.keep(calls, device, &entered);
        Ok(guard)
    }

    /// The context, for calls that this crate does not wrap.
    pub fn raw(&self) -> CUcontext {
        self.context.raw()
    }
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        // One failure alone means that the second try went through: nothing stays current then.
        if let Err(error @ (Error::NotUndone(_) | Error::Disagreement { .. })) =
            leave(self.driver.calls(), self.context)
        {
            report::leaked(Leak::CurrentContext { error });
        }
    }
}

impl fmt::Debug for CurrentContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurrentContext")
            .field("context", &self.context.raw())
            .finish()
    }
}
