//! One client of a server, as far as it has come.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::offer::Offer;
use crate::wire::error::{Step, WireError};
use crate::wire::frame::Frame;
use crate::wire::link::{Flow, Link, Wait};
use crate::wire::outgoing::Outgoing;
use crate::wire::parcel::Parcel;
use crate::wire::peer::Peer;
use crate::wire::session_id::SessionId;
use crate::wire::syscalls;
use crate::wire::talk::ALONE;

/// A conversation with one client.
pub(super) struct Client {
    link: Link<OwnedFd>,
    stage: Stage,
    /// Its session, once it is opened.
    session: Option<SessionId>,
    peer: Peer,
    /// Its process, while its session is watched.
    process: Option<OwnedFd>,
    wait: Wait,
}

enum Stage {
    /// It has to say hello.
    Hello,
    /// It receives its parcel.
    Parcel(Outgoing, Arc<Parcel>),
    /// It has accepted the parcel, and is only listened to.
    Accepted,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It waits for the socket.
    Waits,
    /// It has just accepted its parcel.
    Accepts,
}

impl Client {
    pub fn new(socket: OwnedFd, peer: Peer, offer: &Offer) -> Result<Client, WireError> {
        let link = Link::new(socket)?;
        let (stage, wait) = match offer {
            Offer::Parcel(parcel) => (Stage::parcel(Arc::clone(parcel), &link)?, Wait::Writable),
            Offer::Sessions(_) => (Stage::Hello, Wait::Readable),
        };
        Ok(Client {
            link,
            stage,
            session: None,
            peer,
            process: None,
            wait,
        })
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Whether it has accepted its parcel: its time no longer counts.
    pub fn has_accepted(&self) -> bool {
        matches!(self.stage, Stage::Accepted)
    }

    /// Its process, to be watched for its end. A forked child of it may have a copy of the socket, so that the
    /// connection alone does not tell. None where this process cannot see it, or the kernel is older than 5.3.
    pub fn watch_process(&mut self) -> Option<BorrowedFd<'_>> {
        let pid = self.peer.pid();
        self.process = (pid > 0)
            .then(|| syscalls::open_process(pid).ok())
            .flatten();
        self.process()
    }

    pub fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(AsFd::as_fd)
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }

    /// What it waits for.
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// Goes on until it waits, or accepts its parcel. `number` is its own.
    pub fn step(&mut self, number: u64, offer: &mut Offer) -> Result<Progress, WireError> {
        loop {
            let at = self.at();
            let flow = match &mut self.stage {
                Stage::Parcel(outgoing, parcel) => outgoing.step(&mut self.link, parcel)?,
                Stage::Hello | Stage::Accepted => match (self.link.receive(at)?, &mut *offer) {
                    (None, _) => Flow::Wait(Wait::Readable),
                    (Some((Frame::Hello { bytes }, _)), Offer::Sessions(handler))
                        if self.session.is_none() =>
                    {
                        let (session, parcel) = handler.open(number, &self.peer, bytes)?;
                        // Noted before anything can fail, so that it is closed.
                        self.session = Some(session);
                        self.stage = Stage::parcel(Arc::new(parcel), &self.link)?;
                        continue;
                    }
                    (Some((other, _)), _) => return Err(WireError::out_of_turn(at, &other)),
                },
            };
            match flow {
                Flow::Done => {
                    self.stage = Stage::Accepted;
                    return Ok(Progress::Accepts);
                }
                Flow::Wait(wait) => {
                    self.wait = wait;
                    return Ok(Progress::Waits);
                }
            }
        }
    }

    /// What it is at.
    pub fn at(&self) -> Step {
        match &self.stage {
            Stage::Hello => Step::Hello,
            Stage::Parcel(outgoing, _) => outgoing.at(),
            Stage::Accepted => Step::Session,
        }
    }

    /// Tells the client why, and is done with it.
    pub fn refuse(mut self, reason: &str) {
        let reason = reason.to_owned();
        self.link.abort(&Frame::Refused { reason });
    }
}

impl Stage {
    fn parcel(parcel: Arc<Parcel>, link: &Link<OwnedFd>) -> Result<Stage, WireError> {
        Ok(Stage::Parcel(Outgoing::new(&parcel, ALONE, link)?, parcel))
    }
}
