//! The primary contexts that a driver has retained.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Mutex;

use super::{lock, Calls, Piece};
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
    pub(crate) fn raw(self) -> CUcontext {
        self.0 as CUcontext
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
    pub(crate) fn enter(&self, calls: &Calls, device: c_int) -> Result<Entered> {
        let known = lock(&self.retained).get(&device).copied();
        let (context, fresh) = match known {
            Some(context) => (context, false),
            None => (
                Context(calls.primary_context_retain(device)? as usize),
                true,
            ),
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
