//! Memory of the host that is registered, and copies to and from it in the order of a stream.
//!
//! # Safety
//!
//! An asynchronous copy uses the pages until the stream has passed it. Whoever enqueues one waits for the stream before
//! the pages, or the mapping at the other end, go: `suspend` does so on every path. Registered memory stays mapped
//! until it is unregistered; its owner sees to that.
#![allow(unsafe_code)]

use std::ffi::{c_uint, c_void};

use super::stream::Stream;
use super::{driver_call, Calls};
use crate::driver::answers;
use crate::error::{Attempt, Result};
use crate::pages::Pages;
use crate::sys::Call;

/// `CU_MEMHOSTREGISTER_PORTABLE`: registered for every context, not for the current one alone. A macro of `cuda.h`'s.
const PORTABLE: c_uint = 1;

/// `CU_MEMHOSTREGISTER_DEVICEMAP`: the devices have an address for it. A macro of `cuda.h`'s.
const DEVICEMAP: c_uint = 2;

impl Calls {
    /// Registers the pages. Needs a current context.
    pub(crate) fn host_register(&self, pages: &Pages) -> Result<()> {
        self.register(start(pages), pages.size(), PORTABLE)
    }

    /// Needs a current context, be it another than the one that the pages were registered in.
    pub(crate) fn host_unregister(&self, pages: &Pages) -> Result<()> {
        self.unregister(start(pages), pages.size())
    }

    fn register(&self, memory: *mut c_void, size: usize, flags: c_uint) -> Result<()> {
        driver_call!(
            self.cuMemHostRegister_v2(memory, size, flags),
            on_host(memory, size)
        )
    }

    fn unregister(&self, memory: *mut c_void, size: usize) -> Result<()> {
        driver_call!(self.cuMemHostUnregister(memory), on_host(memory, size))
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

#[allow(dead_code)]
impl Calls {
    /// Registers memory of the caller's for every context, with an address for the devices. Needs a current context.
    pub(crate) fn register_shared(&self, memory: *mut c_void, size: usize) -> Result<()> {
        self.register(memory, size, PORTABLE | DEVICEMAP)
    }

    /// Unregisters memory that begins there. Needs a current context.
    pub(crate) fn unregister_shared(&self, memory: *mut c_void) -> Result<()> {
        self.unregister(memory, 0)
    }

    /// The address at which the devices reach registered memory. Needs a current context.
    pub(crate) fn host_device_pointer(&self, memory: *mut c_void) -> Result<u64> {
        let mut address = 0;
        driver_call!(
            self.cuMemHostGetDevicePointer_v2(&mut address, memory, 0),
            on_host(memory, 0)
        )?;
        answers::device_pointer(address)
    }
}

fn start(pages: &Pages) -> *mut c_void {
    pages.address() as *mut c_void
}

fn on_host(memory: *mut c_void, size: usize) -> Attempt {
    Attempt::Range {
        address: memory as u64,
        size,
    }
}

/// As indexing does, panics rather than let the driver write elsewhere.
fn within(pages: &Pages, at: usize, size: usize) -> *mut c_void {
    let fits = at.checked_add(size).is_some_and(|end| end <= pages.size());
    assert!(fits, "{size} bytes at {at} are not within {}", pages.size());
    (pages.address() + at) as *mut c_void
}
