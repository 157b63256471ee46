//! Contexts: virtual memory management needs none, copies do.
//!
//! The crate uses primary contexts only. One is retained at the first call that needs it and kept until the driver goes, since
//! making one anew takes the driver a good part of a second. Whatever was current on the thread is current again afterwards.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Mutex;

use crate::device::Device;
use crate::driver::{check_context, lock, Calls, Driver, Piece};
use crate::error::{Error, Result};
use crate::report::{self, Leak};
use crate::sys::CUcontext;

/// The primary contexts that a driver has retained, by device.
#[derive(Default)]
pub(crate) struct Contexts {
    retained: Mutex<HashMap<c_int, Context>>,
}

/// A context's address. The driver lets every thread use every context; the pointer is never followed here.
#[derive(Clone, Copy)]
struct Context(usize);

impl Context {
    /// Retains the device's primary context.
    fn retain(driver: &Driver, device: c_int) -> Result<Context> {
        let raw = driver.calls().primary_context_retain(device)?;
        match check_context(raw) {
            Ok(raw) => Ok(Context(raw as usize)),
            Err(error) => {
                let undo = driver.give_back(Piece::Context { device }).err();
                Err(error.with_undo(undo.into_iter().collect()))
            }
        }
    }

    fn raw(self) -> CUcontext {
        self.0 as CUcontext
    }

    /// Is what was popped.
    fn is(self, popped: CUcontext) -> Result<()> {
        match popped == self.raw() {
            true => Ok(()),
            false => Err(Error::disagreement(
                format!("the context {:#x} is current", self.0),
                format!("took {:#x} off instead", popped as usize),
            )),
        }
    }
}

impl Contexts {
    /// All retains, to be given back.
    pub(crate) fn take(&mut self) -> Vec<Piece> {
        let retained = std::mem::take(&mut *lock(&self.retained));
        retained
            .into_keys()
            .map(|device| Piece::Context { device })
            .collect()
    }

    /// Makes the device's primary context current, retaining it where that was not done before. Gives whether this call
    /// retained it.
    fn enter(&self, driver: &Driver, device: c_int) -> Result<Entered> {
        let calls = driver.calls();
        let known = lock(&self.retained).get(&device).copied();
        let (context, fresh) = match known {
            Some(context) => (context, false),
            None => (Context::retain(driver, device)?, true),
        };
        match calls.context_push(context.raw()) {
            Ok(()) => Ok(Entered { context, fresh }),
            Err(error) if fresh => {
                let undo = calls.primary_context_release(device).err();
                Err(error.with_undo(self.quarantine_if(undo, device, context)))
            }
            Err(error) => Err(error),
        }
    }

    /// A retain that could not be given back is kept as an ordinary one: the next user finds it, and the driver gives it
    /// back at its end.
    fn quarantine_if(&self, undo: Option<Error>, device: c_int, context: Context) -> Vec<Error> {
        if undo.is_some() {
            lock(&self.retained).insert(device, context);
        }
        undo.into_iter().collect()
    }

    /// Keeps a fresh retain, or gives it back where another thread was first.
    fn keep(&self, calls: &Calls, device: c_int, entered: &Entered) -> Result<()> {
        if !entered.fresh {
            return Ok(());
        }
        let already = {
            let mut retained = lock(&self.retained);
            match retained.contains_key(&device) {
                true => true,
                false => {
                    retained.insert(device, entered.context);
                    false
                }
            }
        };
        match already {
            true => calls.primary_context_release(device),
            false => Ok(()),
        }
    }
}

struct Entered {
    context: Context,
    fresh: bool,
}

impl Driver {
    /// Runs the operation with the device's primary context current, and restores what was current before. If the operation
    /// fails, a context retained for it is released again.
    pub(crate) fn with_context<T>(
        &self,
        device: &Device,
        operation: impl FnOnce(&Calls) -> Result<T>,
    ) -> Result<T> {
        let (calls, contexts) = (self.calls(), self.contexts());
        let entered = contexts.enter(self, device.raw())?;
        let result = operation(calls);
        let popped = leave(calls, entered.context);
        match (result, popped) {
            (Ok(value), Ok(())) => contexts.keep(calls, device.raw(), &entered).map(|()| value),
            (Ok(_), Err(error)) => Err(self.forget_fresh(device, &entered, error, Vec::new())),
            (Err(error), popped) => {
                Err(self.forget_fresh(device, &entered, error, popped.err().into_iter().collect()))
            }
        }
    }

    fn forget_fresh(
        &self,
        device: &Device,
        entered: &Entered,
        error: Error,
        mut undo: Vec<Error>,
    ) -> Error {
        if entered.fresh {
            let release = self.calls().primary_context_release(device.raw()).err();
            undo.extend(
                self.contexts()
                    .quarantine_if(release, device.raw(), entered.context),
            );
        }
        error.with_undo(undo)
    }
}

/// Pops the context that was pushed; a pop that fails is tried once more, since a thread's stack has no later close.
///
/// Another context that comes off is not put back: where guards were dropped out of order, the next one takes off the one that
/// stayed.
fn leave(calls: &Calls, entered: Context) -> Result<()> {
    let pop = || calls.context_pop();
    match pop() {
        Ok(popped) => entered.is(popped),
        Err(error) => Err(match pop().and_then(|popped| entered.is(popped)) {
            Ok(()) => error,
            Err(again) => error.with_undo(vec![again]),
        }),
    }
}

/// A device's primary context, current on this thread for as long as this lives.
///
/// Made by [`Device::make_current`]. What was current before is current again when it is dropped; guards must be dropped in
/// the reverse order of their making, as scopes do by themselves.
#[must_use = "the context is current only while the guard lives"]
pub struct CurrentContext<'a> {
    driver: &'a Driver,
    context: Context,
    /// A context is current on one thread.
    not_send: PhantomData<*const ()>,
}

impl<'a> CurrentContext<'a> {
    pub(crate) fn enter(driver: &'a Driver, device: &Device) -> Result<Self> {
        let (calls, contexts) = (driver.calls(), driver.contexts());
        let entered = contexts.enter(driver, device.raw())?;
        let guard = CurrentContext {
            driver,
            context: entered.context,
            not_send: PhantomData,
        };
        contexts.keep(calls, device.raw(), &entered)?;
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
