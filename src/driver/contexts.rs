//! The primary contexts that a driver has retained.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Mutex;

use super::{answers, lock, Calls, Driver, Piece};
use crate::error::{Error, Result};
use crate::sys::CUcontext;

/// The primary contexts that a driver has retained, by device.
#[derive(Default)]
pub(crate) struct Contexts {
    retained: Mutex<HashMap<c_int, Context>>,
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
    pub(crate) fn is(self, popped: CUcontext) -> Result<()> {
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
    pub(crate) fn enter(&self, driver: &Driver, device: c_int) -> Result<Entered> {
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
    pub(crate) fn quarantine_if(
        &self,
        undo: Option<Error>,
        device: c_int,
        context: Context,
    ) -> Vec<Error> {
        if undo.is_some() {
            lock(&self.retained).insert(device, context);
        }
        undo.into_iter().collect()
    }

    /// Keeps a fresh retain, or gives it back where another thread was first.
    pub(crate) fn keep(&self, calls: &Calls, device: c_int, entered: &Entered) -> Result<()> {
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

/// A context that was made current, and whether it was retained for that.
pub(crate) struct Entered {
    pub(crate) context: Context,
    pub(crate) fresh: bool,
}
