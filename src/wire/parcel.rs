//! What travels.

use std::os::fd::OwnedFd;

use super::error::WireError;
use super::frame::{Announcement, PIECE_BYTES};
use super::host::HostId;
use super::syscalls::MESSAGE_FDS;

/// Bytes, and the open descriptors that belong to them.
///
/// To the transport both are opaque. Sending borrows a parcel: its descriptors stay the sender's, and the receiver gets
/// its own.
#[derive(Debug, Default)]
pub struct Parcel {
    /// A descriptor of a span, say.
    pub bytes: Vec<u8>,
    /// In the order in which the bytes refer to them.
    pub fds: Vec<OwnedFd>,
}

impl Parcel {
    /// A parcel.
    pub fn new(bytes: Vec<u8>, fds: Vec<OwnedFd>) -> Parcel {
        Parcel { bytes, fds }
    }

    /// How many pieces it takes: each carries a full share of the bytes, and of the descriptors, until there are no
    /// more.
    pub(super) fn announcement(&self, topic: u32, host: HostId) -> Result<Announcement, WireError> {
        let pieces = self
            .bytes
            .len()
            .div_ceil(PIECE_BYTES)
            .max(self.fds.len().div_ceil(MESSAGE_FDS));
        match (u32::try_from(pieces), u32::try_from(self.fds.len())) {
            (Ok(pieces), Ok(fds)) => Ok(Announcement {
                topic,
                pieces,
                bytes: self.bytes.len() as u64,
                fds,
                host,
            }),
            _ => Err(WireError::TooLarge {
                bytes: self.bytes.len(),
                fds: self.fds.len(),
            }),
        }
    }
}

/// What a receiver takes at the most. It is checked against what is announced, before anything is allocated or comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub bytes: usize,
    /// Descriptors. The process's own limit of open files holds beside this one.
    pub fds: usize,
}

impl Default for Limits {
    /// 16 MiB and 4,096 descriptors.
    fn default() -> Limits {
        Limits {
            bytes: 16 << 20,
            fds: 4096,
        }
    }
}
