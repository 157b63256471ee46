//! What has to be given back, by itself.

use std::ffi::c_int;

use super::{Calls, RawHandle};
use crate::error::{Error, Result};
use crate::report::Leak;

/// Something that the driver would not take back, owned by nobody else.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    /// A handle with one count.
    Handle { raw: RawHandle, size: usize },
    /// A reserved range.
    Addresses { base: u64, size: usize },
    /// A reserved range with these addresses and sizes still mapped in it.
    Mapped {
        base: u64,
        size: usize,
        mapped: Vec<(u64, usize)>,
    },
    /// One retain of a device's primary context.
    Context { device: c_int },
}

impl Piece {
    /// How many things it is: what is mapped counts, and the addresses around it are kept with it.
    pub(super) fn count(&self) -> usize {
        match self {
            Piece::Mapped { mapped, .. } => mapped.len(),
            _ => 1,
        }
    }

    /// Gives it back, or as much of it as the driver takes: then the rest, and every failure.
    pub(super) fn give_back(self, calls: &Calls) -> Result<(), (Piece, Vec<Error>)> {
        let result = match self {
            Piece::Handle { raw, size } => calls.mem_release(raw, size),
            Piece::Addresses { base, size } => calls.address_free(base, size),
            Piece::Context { device } => calls.primary_context_release(device),
            Piece::Mapped { base, size, mapped } => return unmap_all(calls, base, size, mapped),
        };
        result.map_err(|error| (self, vec![error]))
    }

    /// What it is to leave it with the driver for good, for the reasons that [`give_back`](Self::give_back) gave.
    pub(super) fn leaked(self, errors: Vec<Error>) -> Vec<Leak> {
        match self {
            Piece::Handle { size, .. } => each(errors, |error| Leak::Memory { size, error }),
            Piece::Addresses { base, size } => {
                each(errors, |error| Leak::Addresses { base, size, error })
            }
            Piece::Context { device } => each(errors, |error| Leak::Context {
                device: device.unsigned_abs(),
                error,
            }),
            Piece::Mapped { mapped, .. } => {
                let mut mapped = mapped.into_iter();
                each(errors, |error| {
                    let (address, size) = mapped.next().unwrap_or_default();
                    Leak::Mapping {
                        address,
                        size,
                        error,
                    }
                })
            }
        }
    }
}

fn each(errors: Vec<Error>, leak: impl FnMut(Error) -> Leak) -> Vec<Leak> {
    errors.into_iter().map(leak).collect()
}

/// Unmaps all, then frees the addresses. They stay as long as anything is mapped in them.
fn unmap_all(
    calls: &Calls,
    base: u64,
    size: usize,
    mapped: Vec<(u64, usize)>,
) -> Result<(), (Piece, Vec<Error>)> {
    let mut errors = Vec::new();
    let mut left = mapped;
    left.retain(|(address, size)| match calls.mem_unmap(*address, *size) {
        Ok(()) => false,
        Err(error) => {
            errors.push(error);
            true
        }
    });
    match left.is_empty() {
        true => Piece::Addresses { base, size }.give_back(calls),
        false => {
            let mapped = left;
            Err((Piece::Mapped { base, size, mapped }, errors))
        }
    }
}
