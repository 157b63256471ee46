//! One client of a server, as far as it has come.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crate::share::wire::error::WireError;
use crate::share::wire::frame::Frame;
use crate::share::wire::link::{Flow, Link, Wait};
use crate::share::wire::outgoing::Outgoing;
use crate::share::wire::parcel::Parcel;
use crate::share::wire::peer::Peer;
use crate::share::wire::syscalls::Watched;
use crate::share::wire::talk::ALONE;
use crate::share::wire::wait::watched;

/// A conversation with one client.
pub(super) struct Client {
    link: Link<OwnedFd>,
    outgoing: Outgoing,
    peer: Peer,
    wait: Wait,
    /// `None` for a time beyond all counting.
    pub deadline: Option<Instant>,
}

impl Client {
    pub fn new(
        socket: OwnedFd,
        peer: Peer,
        parcel: &Parcel,
        deadline: Option<Instant>,
    ) -> Result<Client, WireError> {
        let link = Link::new(socket)?;
        Ok(Client {
            outgoing: Outgoing::new(parcel, ALONE, &link)?,
            link,
            peer,
            wait: Wait::Writable,
            deadline,
        })
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    pub fn watched(&self) -> Watched {
        watched(self.link.socket().as_fd(), self.wait)
    }

    pub fn pauses(&self) -> bool {
        self.wait == Wait::Pause
    }

    /// Goes on as far as it can; whether it is at the end.
    pub fn step(&mut self, parcel: &Parcel) -> Result<bool, WireError> {
        match self.outgoing.step(&mut self.link, parcel)? {
            Flow::Done => Ok(true),
            Flow::Wait(wait) => {
                self.wait = wait;
                Ok(false)
            }
        }
    }

    /// The client's time is up.
    pub fn late(&self) -> WireError {
        WireError::TimedOut {
            at: self.outgoing.at(),
        }
    }

    /// Tells the client why, and is done with it.
    pub fn refuse(mut self, reason: &str) {
        let reason = reason.to_owned();
        self.link.abort(&Frame::Refused { reason });
    }
}
