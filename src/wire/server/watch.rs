//! Many sockets, waited for at once, at a cost that does not grow with those of which nothing comes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use crate::wire::link::Wait;
use crate::wire::syscalls;
use crate::wire::wait::events;

/// How many are reported at once; others are reported the next time.
const AT_ONCE: usize = 64;

/// A set of sockets, each with a number that it is known by.
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub fn new() -> io::Result<Watch> {
        syscalls::epoll_create().map(Watch)
    }

    pub fn add(&self, number: u64, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, number, socket, wait)
    }

    pub fn change(&self, number: u64, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, number, socket, wait)
    }

    /// Closing a socket does the same, but for one that a forked child has too. A failure leaves one that is reported
    /// for nothing.
    pub fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = self.control(libc::EPOLL_CTL_DEL, 0, socket, Wait::Pause);
    }

    fn control(
        &self,
        operation: i32,
        number: u64,
        socket: BorrowedFd<'_>,
        wait: Wait,
    ) -> io::Result<()> {
        let events = u32::from(events(wait).unsigned_abs());
        syscalls::epoll_control(self.0.as_fd(), operation, socket, events, number)
    }

    /// Waits until some are ready, or until the instant; the numbers of those that are.
    pub fn wait(&self, until: Option<Instant>, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        let count = syscalls::epoll_wait(self.0.as_fd(), &mut events, until)?;
        ready.extend(events[..count].iter().map(|event| event.u64));
        Ok(())
    }
}
