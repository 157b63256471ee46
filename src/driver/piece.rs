//! What has to be given back, by itself.

use std::ffi::c_int;

use super::{Calls, RawHandle};
use crate::error::{Error, Result};
use crate::report::Leak;

/// Something that the driver would not take back, owned by nobody else.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    /// A handle with one count.
    Handle { raw: RawHandle, size: usize },
    /// A reserved range without mappings.
    Addresses { base: u64, size: usize },
    /// One retain of a device's primary context.
    Context { device: c_int },
}

impl Piece {
    pub(super) fn give_back(self, calls: &Calls) -> Result<()> {
        match self {
            Piece::Handle { raw, size } => calls.mem_release(raw, size),
            Piece::Addresses { base, size } => calls.address_free(base, size),
            Piece::Context { device } => calls.primary_context_release(device),
        }
    }

    /// What it is to leave it with the driver for good.
    pub(super) fn leaked(self, error: Error) -> Leak {
        match self {
            Piece::Handle { size, .. } => Leak::Memory { size, error },
            Piece::Addresses { base, size } => Leak::Addresses { base, size, error },
            Piece::Context { device } => Leak::Context {
                device: device.unsigned_abs(),
                error,
            },
        }
    }
}
