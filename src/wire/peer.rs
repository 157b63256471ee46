//! Who is at the other end.

use std::io;
use std::os::fd::BorrowedFd;

use super::syscalls;

/// The process at the other end of a connection, as the kernel saw it when the connection was made (SO_PEERCRED).
///
/// The process id is for messages to people: it means nothing in another namespace of process ids, and the process may
/// have gone and its number been given away since. What is decided on is the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    pid: i32,
    uid: u32,
    gid: u32,
}

impl Peer {
    pub(super) fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let libc::ucred { pid, uid, gid } = syscalls::peer(socket)?;
        Ok(Peer { pid, uid, gid })
    }

    /// Process id, 0 where it is in a namespace that cannot be seen from here.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Effective user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Effective group id.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Whether it is the user whom this process acts for: what is let in where nothing else was said.
    pub fn is_same_user(&self) -> bool {
        self.uid == syscalls::user()
    }
}
