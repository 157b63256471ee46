//! One method a driver call: status in, `Result` out. The only code of the safe layers that names `sys::cu*`.
//!
//! # Safety
//!
//! Every call is made by `driver_call!`, under facts that the types above establish, so that these methods are safe
//! to use within the crate: a handle passed here was given by this driver and has not been released
//! (`allocation::Handle` owns it); a range passed to map, unmap or free lies in a live reservation (`Reservation` owns
//! it); a context is one that is retained. Output pointers are those of locals, host memory comes as slices with their
//! own lengths. For the driver's own behaviour see the trust stated in [`sys`](crate::sys).
#![allow(unsafe_code)]

mod device;
mod host;
mod kernel;
mod memory;
mod sharing;
mod stream;
mod work;

use std::sync::Arc;

pub(crate) use kernel::{Function, Module};
pub(crate) use stream::{Event, Stream};

use super::answers;
use crate::code::Code;
use crate::error::{Attempt, DriverFailure, Error, Result};
use crate::fork;
use crate::sys::{CUresult, Call, DriverCalls};

/// A physical handle as the driver gave it.
pub(crate) type RawHandle = crate::sys::CUmemGenericAllocationHandle;

/// The calls of one driver, checked.
pub(crate) struct Calls {
    raw: Arc<dyn DriverCalls>,
    generation: u32,
}

/// Makes a call, unless this is a forked child, and judges its status; the attempt is only worked out on failure.
macro_rules! driver_call {
    ($self:ident.$call:ident($($argument:expr),*), $attempt:expr) => {
        $self.judge(
            Call::$call,
            // SAFETY: handles, ranges and contexts are live ones of this driver, pointers are to locals and slices: see
            // the head of this file for who established that.
            (!$self.forked()).then(|| unsafe { $self.raw.$call($($argument),*) }),
            || $attempt,
        )
    };
}
use driver_call;

impl Calls {
    pub(in crate::driver) fn new(raw: Arc<dyn DriverCalls>) -> Self {
        Calls {
            raw,
            generation: fork::join(),
        }
    }

    pub(in crate::driver) fn raw(&self) -> &Arc<dyn DriverCalls> {
        &self.raw
    }

    /// Whether this is a forked child of the process that loaded the driver.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.generation != fork::current()
    }

    /// What a call's status means; none where a forked child did not make the call.
    #[inline]
    fn judge(
        &self,
        call: Call,
        status: Option<CUresult>,
        attempt: impl FnOnce() -> Attempt,
    ) -> Result<()> {
        match status {
            Some(CUresult::CUDA_SUCCESS) => Ok(()),
            Some(status) => Err(self.failure(call, status, attempt())),
            None => Err(Error::ForkedChild),
        }
    }

    #[cold]
    fn failure(&self, call: Call, status: CUresult, attempt: Attempt) -> Error {
        match (status, attempt) {
            (CUresult::CUDA_ERROR_NOT_FOUND, _) if !self.raw.provides(call) => {
                Error::MissingCall { call }
            }
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, Attempt::Reserve { size, .. }) => {
                Error::OutOfAddressSpace { size }
            }
            // Of a creation only: asking for a granularity is attempted for no bytes, and takes no memory.
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, Attempt::Create { size, location, .. })
                if call == Call::cuMemCreate =>
            {
                Error::OutOfMemory { size, location }
            }
            (status, attempt) => {
                let code = Code::from(status);
                let failure = DriverFailure {
                    call,
                    code,
                    attempt,
                };
                match answers::contradicted(&failure) {
                    Some(ours) => Error::contradiction(ours, failure),
                    None => Error::Driver(failure),
                }
            }
        }
    }
}
