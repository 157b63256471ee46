//! The primary contexts that a driver has retained.

use std::collections::hash_map::{Entry, HashMap};
use std::ffi::c_int;
use std::mem;

use super::{answers, Calls, Driver, Piece};
use crate::error::{Error, Result};
use crate::report::{self, Leak};
use crate::sync::{lock, Mutex};
use crate::sys::CUcontext;

/// The primary contexts that a driver has retained, by device.
#[derive(Default)]
pub(crate) struct Contexts {
    retained: Mutex<HashMap<c_int, Held>>,
}

/// A context, and how often it is retained: once, unless a retain too many could not be given back.
struct Held {
    context: Context,
    retains: usize,
}

/// A context's address. The driver lets every thread use every context; the pointer is never followed here.
#[derive(Clone, Copy)]
pub(crate) struct Context(usize);

impl Context {
    /// Retains the device's primary context.
    fn retain(driver: &Driver, device: c_int) -> Result<Context> {
        let raw = driver.calls().primary_context_retain(device)?;
        match answers::context(raw) {
            Ok(raw) => Ok(Context(raw as usize)),
            Err(error) => {
                let undo = driver.give_back(Piece::Context { device }).err();
                Err(error.with_undo(undo.into_iter().collect()))
            }
        }
    }

    pub(crate) fn raw(self) -> CUcontext {
        self.0 as CUcontext
    }

    /// It is what was taken off.
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
            .into_iter()
            .flat_map(|(device, held)| vec![Piece::Context { device }; held.retains])
            .collect()
    }

    /// Makes the device's primary context current, retaining it where that was not done before. Gives whether this call
    /// retained it.
    pub(crate) fn enter(&self, driver: &Driver, device: c_int) -> Result<Entered> {
        let calls = driver.calls();
        // A thread of the parent may have held the lock when the process forked.
        if calls.forked() {
            return Err(Error::ForkedChild);
        }
        let known = lock(&self.retained).get(&device).map(|held| held.context);
        let (context, fresh) = match known {
            Some(context) => (context, false),
            None => (Context::retain(driver, device)?, true),
        };
        let unwinding = Unwinding::retained(calls, device, fresh);
        let pushed = calls.context_push(context.raw());
        unwinding.disarm();
        match pushed {
            Ok(()) => Ok(Entered { context, fresh }),
            Err(error) if fresh => {
                let undo = calls.primary_context_release(device).err();
                Err(error.with_undo(self.quarantine_if(undo, device, context)))
            }
            Err(error) => Err(error),
        }
    }

    /// A retain that could not be given back is held with the ordinary one, or as it: the next user finds it, and the
    /// driver gives it back at its end.
    pub(crate) fn quarantine_if(
        &self,
        undo: Option<Error>,
        device: c_int,
        context: Context,
    ) -> Vec<Error> {
        if undo.is_some() {
            self.hold(device, context);
        }
        undo.into_iter().collect()
    }

    /// Keeps a fresh retain, or gives it back where another thread was first.
    pub(crate) fn keep(&self, calls: &Calls, device: c_int, entered: &Entered) {
        if !entered.fresh || self.hold_first(device, entered.context) {
            return;
        }
        // What the context was entered for is done: a retain too many is no reason to fail it.
        if calls.primary_context_release(device).is_err() {
            self.hold(device, entered.context);
        }
    }

    fn hold_first(&self, device: c_int, context: Context) -> bool {
        match lock(&self.retained).entry(device) {
            Entry::Vacant(vacant) => {
                vacant.insert(Held {
                    context,
                    retains: 1,
                });
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    fn hold(&self, device: c_int, context: Context) {
        let mut retained = lock(&self.retained);
        let held = retained.entry(device).or_insert(Held {
            context,
            retains: 0,
        });
        held.retains += 1;
    }
}

/// A context that was made current, and whether it was retained for that.
pub(crate) struct Entered {
    pub(crate) context: Context,
    pub(crate) fresh: bool,
}

/// Pops the context that was pushed; a pop that fails is tried once more, since a thread's stack has no later close.
///
/// Another context that comes off is not put back: where guards were dropped out of order, the next one takes off the
/// one that stayed.
pub(crate) fn leave(calls: &Calls, entered: Context) -> Result<()> {
    let pop = || calls.context_pop();
    match pop() {
        Ok(popped) => entered.is(popped),
        Err(error) => Err(match pop().and_then(|popped| entered.is(popped)) {
            Ok(()) => error,
            Err(again) => error.with_undo(vec![again]),
        }),
    }
}

/// Gives back what a use of a context took, should the use unwind: a driver of the caller's own making may panic.
pub(crate) struct Unwinding<'a> {
    calls: &'a Calls,
    device: c_int,
    fresh: bool,
    pushed: Option<Context>,
}

impl<'a> Unwinding<'a> {
    /// For a context that is not current yet.
    fn retained(calls: &'a Calls, device: c_int, fresh: bool) -> Self {
        Unwinding {
            calls,
            device,
            fresh,
            pushed: None,
        }
    }

    /// For a context that is current.
    pub(crate) fn entered(calls: &'a Calls, device: c_int, entered: &Entered) -> Self {
        Unwinding {
            calls,
            device,
            fresh: entered.fresh,
            pushed: Some(entered.context),
        }
    }

    /// Nothing unwound.
    pub(crate) fn disarm(self) {
        mem::forget(self);
    }
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        let left = self.pushed.map(|context| leave(self.calls, context));
        if let Some(Err(error @ (Error::NotUndone(_) | Error::Disagreement { .. }))) = left {
            report::leaked(Leak::CurrentContext { error });
        }
        if let Some(Err(error)) = self
            .fresh
            .then(|| self.calls.primary_context_release(self.device))
        {
            report::leaked(Leak::Context {
                device: self.device.unsigned_abs(),
                error,
            });
        }
    }
}
