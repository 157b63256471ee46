//! The two kinds of Unix socket that a parcel can travel over.

use std::ffi::c_int;
use std::fmt;

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
}

impl fmt::Display for SocketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SocketKind::Packets => "SOCK_SEQPACKET",
            SocketKind::Stream => "SOCK_STREAM",
        })
    }
}
