//! Memory of the host that is registered, and copies to and from it in the order of a stream.
//!
//! # Safety
//!
//! An asynchronous copy uses the pages until the stream has passed it. Whoever enqueues one waits for the stream before
//! the pages, or the mapping at the other end, go: `suspend` does so on every path.
#![allow(unsafe_code)]

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use super::{driver_call, Calls};
use crate::driver::answers;
use crate::error::{Attempt, Result};
use crate::pages::Pages;
use crate::sys::{CUstream, CUstream_flags, Call};

/// `CU_MEMHOSTREGISTER_PORTABLE`: registered for every context, not for the current one alone. A macro of `cuda.h`'s.
const PORTABLE: c_uint = 1;

/// A stream that was created here. The driver lets every thread use it; the pointer is never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream(usize);

impl Stream {
    fn raw(self) -> CUstream {
        self.0 as CUstream
    }
}

impl Calls {
    /// Registers the pages. Needs a current context.
    pub(crate) fn host_register(&self, pages: &Pages) -> Result<()> {
        let (memory, size) = (pages.address() as *mut c_void, pages.size());
        driver_call!(
            self.cuMemHostRegister_v2(memory, size, PORTABLE),
            on_host(pages)
        )
    }

    /// Needs a current context, be it another than the one that the pages were registered in.
    pub(crate) fn host_unregister(&self, pages: &Pages) -> Result<()> {
        let memory = pages.address() as *mut c_void;
        driver_call!(self.cuMemHostUnregister(memory), on_host(pages))
    }

    /// Creates a stream that waits for no other one.
    pub(crate) fn stream_create(&self) -> Result<Stream> {
        let mut stream: CUstream = null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        driver_call!(self.cuStreamCreate(&mut stream, flags), Attempt::Plain)?;
        answers::stream(stream).map(|stream| Stream(stream as usize))
    }

    pub(crate) fn stream_destroy(&self, stream: Stream) -> Result<()> {
        driver_call!(self.cuStreamDestroy_v2(stream.raw()), Attempt::Plain)
    }

    pub(crate) fn stream_wait(&self, stream: Stream) -> Result<()> {
        self.stream_synchronize(stream.raw())
    }

    /// Copies from a device to the pages at this offset, when the stream comes to it.
    pub(crate) fn enqueue_to_host(
        &self,
        (pages, at): (&Pages, usize),
        address: u64,
        size: usize,
        stream: Stream,
    ) -> Result<()> {
        let memory = within(pages, at, size);
        driver_call!(
            self.cuMemcpyDtoHAsync_v2(memory, address, size, stream.raw()),
            Attempt::Range { address, size }
        )
    }

    /// Copies to a device from the pages at this offset, when the stream comes to it.
    pub(crate) fn enqueue_to_device(
        &self,
        address: u64,
        (pages, at): (&Pages, usize),
        size: usize,
        stream: Stream,
    ) -> Result<()> {
        let memory = within(pages, at, size);
        driver_call!(
            self.cuMemcpyHtoDAsync_v2(address, memory, size, stream.raw()),
            Attempt::Range { address, size }
        )
    }
}

fn on_host(pages: &Pages) -> Attempt {
    Attempt::Range {
        address: pages.address() as u64,
        size: pages.size(),
    }
}

/// As indexing does, panics rather than let the driver write elsewhere.
fn within(pages: &Pages, at: usize, size: usize) -> *mut c_void {
    let fits = at.checked_add(size).is_some_and(|end| end <= pages.size());
    assert!(fits, "{size} bytes at {at} are not within {}", pages.size());
    (pages.address() + at) as *mut c_void
}
