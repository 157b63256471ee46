//! A client's end of a session.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::error::{Step, WireError};
use super::frame::Frame;
use super::link::{Link, Wait};
use super::parcel::Parcel;
use super::peer::Peer;
use super::syscalls;
use super::talk::Received;
use super::wait::watched;
use crate::fork;

/// A connection to a [server of sessions](super::Server::sessions), open after the parcel was accepted.
///
/// The server learns at once when it closes: by [`close`](Self::close), by dropping this, or when the process ends in any
/// way. [`Sessions`](super::Sessions) has an example.
///
/// The descriptor ([`AsFd`]) is close-on-exec. It becomes readable when the server ends the session, so that `poll` can
/// wait for it; nothing else may be done with it.
///
/// A child that the process forks without `exec` shares the connection. Dropping the session in the child closes only the
/// child's copy. The session ends with this process, also while a child still has a copy, as far as the server can see
/// this process (its process id is known there, and the kernel is Linux 5.3 or newer).
#[must_use = "dropping it ends the session"]
pub struct Session {
    socket: OwnedFd,
    peer: Peer,
    ended: Mutex<Option<WireError>>,
    generation: u32,
}

impl Received<OwnedFd> {
    /// Accepts, as [`accept`](Self::accept) does, and keeps the connection open.
    ///
    /// A server that has no sessions closes the connection; then the session [ends](Session::ended) at once.
    ///
    /// # Errors
    ///
    /// Those of [`accept`](Self::accept).
    pub fn into_session(self) -> Result<(Parcel, Session), WireError> {
        let peer = match Peer::of(self.socket()).map_err(WireError::io(Step::Answer)) {
            Ok(peer) => peer,
            Err(error) => {
                self.refuse(&error.to_string());
                return Err(error);
            }
        };
        let (parcel, link) = self.accept_and_keep()?;
        let session = Session {
            socket: link.into_socket(),
            peer,
            ended: Mutex::new(None),
            generation: fork::join(),
        };
        Ok((parcel, session))
    }
}

impl Session {
    /// The server's process.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether [`ended`](Self::ended) is `None`.
    pub fn is_open(&self) -> bool {
        self.ended().is_none()
    }

    /// Why the session ended: [`Refused`](WireError::Refused) with the server's reason, or
    /// [`Vanished`](WireError::Vanished) if the server gave none; `None` while it is open. Never blocks.
    ///
    /// [`Io`](WireError::Io) means that this process could not look at the connection; the session may still be open, and
    /// the next call looks again.
    pub fn ended(&self) -> Option<WireError> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_some() {
            return ended.clone();
        }
        let error = self.look().err()?;
        if !error.is_local() {
            *ended = Some(error.clone());
        }
        Some(error)
    }

    /// Ends the session. The server learns at once; this does not wait for it.
    pub fn close(self) {}

    fn look(&self) -> Result<(), WireError> {
        let at = Step::Session;
        let mut watched = [watched(self.as_fd(), Wait::Readable)];
        let ready = syscalls::poll(&mut watched, Some(Instant::now()));
        if ready.map_err(WireError::io(at))? == 0 {
            return Ok(());
        }
        let mut link = Link::new(self.as_fd())?;
        let error = match link.receive(at) {
            Ok(None) => return Ok(()),
            Ok(Some((frame, _))) => WireError::out_of_turn(at, &frame),
            Err(error) => error,
        };
        if !error.is_local() {
            let reason = error.to_string();
            link.abort(&Frame::Refused { reason });
        }
        Err(error)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closing alone would not end it while a forked child has a copy of the descriptor.
        if self.generation == fork::current() {
            let _ = syscalls::shutdown(self.as_fd());
        }
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("socket", &self.socket)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
