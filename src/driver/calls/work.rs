//! Copies, fills, and waiting for work.
#![allow(unsafe_code)]

use std::ptr::null_mut;

use super::{driver_call, Calls};
use crate::code::Code;
use crate::error::{Attempt, Result};
use crate::sys::{CUevent, CUstream, Call};

impl Calls {
    /// Waits for the current context's default stream: a copy or a fill may return before the device has done it.
    pub(crate) fn default_stream_synchronize(&self) -> Result<()> {
        driver_call!(self.cuStreamSynchronize(null_mut()), Attempt::Plain)
    }

    /// Waits for all work of the current context.
    pub(crate) fn context_synchronize(&self) -> Result<()> {
        driver_call!(self.cuCtxSynchronize(), Attempt::Plain)
    }

    pub(crate) fn stream_synchronize(&self, stream: CUstream) -> Result<()> {
        driver_call!(self.cuStreamSynchronize(stream), Attempt::Plain)
    }

    pub(crate) fn stream_is_done(&self, stream: CUstream) -> Result<bool> {
        is_done(driver_call!(self.cuStreamQuery(stream), Attempt::Plain))
    }

    pub(crate) fn event_synchronize(&self, event: CUevent) -> Result<()> {
        driver_call!(self.cuEventSynchronize(event), Attempt::Plain)
    }

    pub(crate) fn event_is_done(&self, event: CUevent) -> Result<bool> {
        is_done(driver_call!(self.cuEventQuery(event), Attempt::Plain))
    }

    pub(crate) fn copy_to_device(&self, address: u64, from: &[u8]) -> Result<()> {
        let size = from.len();
        driver_call!(
            self.cuMemcpyHtoD_v2(address, from.as_ptr().cast(), size),
            Attempt::Range { address, size }
        )
    }

    pub(crate) fn copy_to_host(&self, to: &mut [u8], address: u64) -> Result<()> {
        let size = to.len();
        driver_call!(
            self.cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), address, size),
            Attempt::Range { address, size }
        )
    }

    pub(crate) fn copy_on_device(&self, to: u64, from: u64, size: usize) -> Result<()> {
        driver_call!(
            self.cuMemcpyDtoD_v2(to, from, size),
            Attempt::Range { address: to, size }
        )
    }

    pub(crate) fn fill(&self, address: u64, value: u8, size: usize) -> Result<()> {
        driver_call!(
            self.cuMemsetD8_v2(address, value, size),
            Attempt::Range { address, size }
        )
    }
}

/// What the answer to a query says of the work: done, not yet, or that it failed.
fn is_done(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(Code::ERROR_NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}
