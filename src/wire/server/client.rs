//! One client of a server, as far as it has come.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::wire::error::{Step, WireError};
use crate::wire::frame::Frame;
use crate::wire::link::{Flow, Link, Wait};
use crate::wire::outgoing::Outgoing;
use crate::wire::parcel::Parcel;
use crate::wire::peer::Peer;
use crate::wire::talk::ALONE;

/// A conversation with one client.
pub(super) struct Client {
    link: Link<OwnedFd>,
    outgoing: Outgoing,
    peer: Peer,
    wait: Wait,
}

impl Client {
    pub fn new(socket: OwnedFd, peer: Peer, parcel: &Parcel) -> Result<Client, WireError> {
        let link = Link::new(socket)?;
        Ok(Client {
            outgoing: Outgoing::new(parcel, ALONE, &link)?,
            link,
            peer,
            wait: Wait::Writable,
        })
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }

    /// What it waits for.
    pub fn wait(&self) -> Wait {
        self.wait
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

    /// What it is at.
    pub fn at(&self) -> Step {
        self.outgoing.at()
    }

    /// Tells the client why, and is done with it.
    pub fn refuse(mut self, reason: &str) {
        let reason = reason.to_owned();
        self.link.abort(&Frame::Refused { reason });
    }
}
