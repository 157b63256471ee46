//! A driver call that failed, and what it was to do.

use std::fmt;

use crate::bytes::Bytes;
use crate::code::Code;
use crate::handle_type::HandleType;
use crate::location::Location;
use crate::recipe::HandleTypes;
use crate::sys::Call;

/// A driver call that failed: which, how, and what it was to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverFailure {
    /// The call.
    pub call: Call,
    /// The driver's status.
    pub code: Code,
    /// What was attempted.
    pub attempt: Attempt,
}

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} failed with {}", self.call, self.attempt, self.code)?;
        match &self.attempt {
            Attempt::Create { handle_types, .. }
                if self.code == Code::ERROR_NOT_PERMITTED && handle_types.contains(HandleTypes::FABRIC) =>
            {
                f.write_str(": FABRIC handles need an IMEX channel in this container; ask for POSIX_FD instead")
            }
            _ => Ok(()),
        }
    }
}

/// What a failed driver call was to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempt {
    /// The call's name says it all.
    Plain,
    /// Something with a device.
    Device {
        /// The device's ordinal.
        ordinal: u32,
    },
    /// Something with a range of addresses.
    Range {
        /// First address.
        address: u64,
        /// Bytes.
        size: usize,
    },
    /// Releasing a handle.
    Handle {
        /// Bytes; 0 where they are not known.
        size: usize,
    },
    /// Reserving addresses.
    Reserve {
        /// Bytes.
        size: usize,
        /// Alignment in bytes, 0 for the driver's choice.
        alignment: usize,
        /// Address asked for, 0 for none.
        hint: u64,
    },
    /// Creating memory, or asking for the granularity of memory like this.
    Create {
        /// Bytes; 0 where only the granularity is asked.
        size: usize,
        /// Where.
        location: Location,
        /// For which kinds of sharing.
        handle_types: HandleTypes,
        /// RDMA asked for.
        rdma: bool,
        /// Compression asked for.
        compression: bool,
    },
    /// Exporting memory, or importing it.
    Share {
        /// As what.
        handle_type: HandleType,
        /// Bytes; of an import, as claimed.
        size: usize,
    },
    /// Granting access, or asking for it.
    Access {
        /// First address.
        address: u64,
        /// Bytes; 0 where access is asked for at one address.
        size: usize,
        /// To whom (the first, where it was several at once).
        location: Location,
    },
}

impl Attempt {
    pub(crate) fn device(device: std::ffi::c_int) -> Attempt {
        Attempt::Device {
            ordinal: device.unsigned_abs(),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Attempt::Plain => Ok(()),
            Attempt::Handle { size } => write!(f, " (a handle of {})", Bytes(size)),
            Attempt::Device { ordinal } => write!(f, " (device {ordinal})"),
            Attempt::Range { address, size } => write!(f, " ({} at {address:#x})", Bytes(size)),
            Attempt::Reserve {
                size,
                alignment,
                hint,
            } => {
                write!(
                    f,
                    " ({}, alignment {alignment}, address hint {hint:#x})",
                    Bytes(size)
                )
            }
            Attempt::Create {
                size,
                location,
                handle_types,
                rdma,
                compression,
            } => {
                let bytes = if size == 0 {
                    String::new()
                } else {
                    format!("{} ", Bytes(size))
                };
                write!(f, " ({bytes}on {location}, shareable as {handle_types}")?;
                f.write_str(if rdma { ", RDMA" } else { "" })?;
                f.write_str(if compression { ", compressible)" } else { ")" })
            }
            Attempt::Share { handle_type, size } => {
                write!(f, " ({} as a {handle_type})", Bytes(size))
            }
            Attempt::Access {
                address,
                size: 0,
                location,
            } => write!(f, " ({location} at {address:#x})"),
            Attempt::Access {
                address,
                size,
                location,
            } => write!(f, " ({} at {address:#x} for {location})", Bytes(size)),
        }
    }
}
