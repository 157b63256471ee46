//! Reaching a server by its name.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::address::{Address, Name};
use super::error::{Step, WireError};
use super::socket_kind::SocketKind;
use super::syscalls;

/// The name as the kernel takes it.
pub(super) fn address(name: &Name) -> Result<Address, WireError> {
    let bytes = name.bytes();
    if bytes.is_empty() || (bytes.contains(&0) && matches!(name, Name::File(_))) {
        return Err(WireError::BadName { name: name.clone() });
    }
    Address::new(name).ok_or_else(|| WireError::NameTooLong {
        length: bytes.len(),
        limit: Address::ROOM,
        name: name.clone(),
    })
}

/// What one attempt to connect came to.
pub(super) enum Attempt {
    Connected(OwnedFd),
    /// A server is there, and as many wait for it as the kernel lets wait.
    Busy,
    /// Nobody is there, or nobody yet.
    Nobody,
}

/// Tries once. Never blocks.
pub(super) fn attempt(address: &Address) -> Result<Attempt, WireError> {
    let socket = syscalls::socket(SocketKind::Packets).map_err(WireError::io(Step::Opening))?;
    match syscalls::connect(socket.as_fd(), address) {
        Ok(()) => Ok(Attempt::Connected(socket)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => Ok(Attempt::Busy),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(Attempt::Nobody),
            _ => Err(WireError::io(Step::Opening)(error)),
        },
    }
}
