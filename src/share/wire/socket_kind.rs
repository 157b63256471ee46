//! The two kinds of Unix socket that a parcel can travel over.

use std::ffi::c_int;
use std::fmt;
use std::os::fd::BorrowedFd;

use super::error::{Step, WireError};
use super::syscalls;

/// How a socket delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// SOCK_SEQPACKET: whole messages, in order.
    Packets,
    /// SOCK_STREAM: bytes, in order.
    Stream,
}

impl SocketKind {
    pub(super) fn raw(self) -> c_int {
        match self {
            SocketKind::Packets => libc::SOCK_SEQPACKET,
            SocketKind::Stream => libc::SOCK_STREAM,
        }
    }

    /// What the kernel says a socket is. One that is no Unix socket of these kinds cannot pass descriptors.
    pub(super) fn of(socket: BorrowedFd<'_>) -> Result<SocketKind, WireError> {
        match syscalls::family_and_type(socket) {
            Ok((libc::AF_UNIX, libc::SOCK_SEQPACKET)) => Ok(SocketKind::Packets),
            Ok((libc::AF_UNIX, libc::SOCK_STREAM)) => Ok(SocketKind::Stream),
            Ok((family, kind)) => Err(WireError::UnusableSocket { family, kind }),
            Err(source) => Err(WireError::Io {
                step: Step::Opening,
                source,
            }),
        }
    }
}

impl fmt::Display for SocketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SocketKind::Packets => "SOCK_SEQPACKET",
            SocketKind::Stream => "SOCK_STREAM",
        })
    }
}
