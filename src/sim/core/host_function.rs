//! A function of the host that a stream calls in its order.
//!
//! # Safety
//!
//! The caller of the driver call vouches that the function may be called with its data on any thread, until the stream
//! has passed it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;

use crate::sys::CUhostFn;

use super::abi::Raw;
use super::{invalid, Answer};

crate::sync::thread_local! {
    /// Whether this thread is in a host function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A function and its data.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostFunction {
    function: unsafe extern "C" fn(*mut c_void),
    data: Raw,
}

impl HostFunction {
    pub(super) fn new(function: CUhostFn, data: Raw) -> Answer<Self> {
        match function {
            Some(function) => Ok(HostFunction { function, data }),
            None => invalid(),
        }
    }

    /// Calls it. The core must not be locked.
    pub(super) fn call(self) {
        let before = INSIDE.with(|inside| inside.replace(true));
        // SAFETY: the driver call that brought the function and its data vouches for both.
        unsafe { (self.function)(self.data.pointer().cast()) };
        INSIDE.with(|inside| inside.set(before));
    }
}

/// Whether the calling thread is in a host function, which must not call the driver.
pub(super) fn is_inside() -> bool {
    INSIDE.with(Cell::get)
}
