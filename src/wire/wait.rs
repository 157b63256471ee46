//! Waiting for sockets, never past a deadline.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use super::error::{Step, WireError};
use super::frame::Frame;
use super::link::{Flow, Link, Wait};
use super::syscalls::{self, Watched};

/// How long to wait where the kernel cannot say when it is worth trying again.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// A descriptor to wait for.
pub(super) fn watched(socket: BorrowedFd<'_>, wait: Wait) -> Watched {
    Watched {
        fd: socket.as_raw_fd(),
        events: events(wait),
        revents: 0,
    }
}

/// What to watch for, for `poll`; `epoll` has the same numbers. A pause watches for nothing but the end of the
/// connection, which the kernel reports unasked.
pub(super) fn events(wait: Wait) -> i16 {
    match wait {
        Wait::Readable => libc::POLLIN,
        Wait::Writable => libc::POLLOUT,
        Wait::Pause => 0,
    }
}

/// The earlier of two instants, of which either may be never.
pub(super) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Drives one conversation until it is done, fails, or has no time left. One that fails is ended, and the other end
/// told why.
///
/// `step` goes as far as it can and says what it is at.
pub(super) fn drive<S: AsFd>(
    link: &mut Link<S>,
    deadline: Option<Instant>,
    mut step: impl FnMut(&mut Link<S>) -> (Step, Result<Flow, WireError>),
) -> Result<(), WireError> {
    let ended = loop {
        let (at, went) = step(link);
        let wait = match went {
            Ok(Flow::Done) => return Ok(()),
            Ok(Flow::Wait(wait)) => wait,
            Err(error) => break error,
        };
        if let Err(error) = wait_once(link.socket(), wait, deadline, at) {
            break error;
        }
    };
    link.abort(&Frame::Refused {
        reason: ended.to_string(),
    });
    Err(ended)
}

fn wait_once(
    socket: BorrowedFd<'_>,
    wait: Wait,
    deadline: Option<Instant>,
    at: Step,
) -> Result<(), WireError> {
    // Asked even if there is something to read: a peer that sends a byte at a time makes progress for ever.
    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        return Err(WireError::TimedOut { at });
    }
    if wait == Wait::Pause {
        thread::sleep(PAUSE);
        return Ok(());
    }
    match syscalls::poll(&mut [watched(socket, wait)], deadline) {
        Ok(0) => Err(WireError::TimedOut { at }),
        Ok(_) => Ok(()),
        Err(error) => Err(WireError::io(at)(error)),
    }
}
