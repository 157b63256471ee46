//! The sender's side of a conversation: announce, wait for consent, send the pieces, wait for the answer.

use std::os::fd::{AsFd, BorrowedFd};

use super::error::{Step, WireError};
use super::frame::{Announcement, Frame, PIECE_BYTES};
use super::link::{Flow, Link, Wait};
use super::parcel::Parcel;
use super::syscalls::MESSAGE_FDS;

/// How far the sending of one parcel is. It never blocks: whoever drives it waits.
#[derive(Debug)]
pub(super) struct Outgoing {
    announcement: Announcement,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Announce,
    AwaitConsent,
    /// The piece with this index is next.
    Send(u32),
    AwaitAnswer,
    Accepted,
}

impl Outgoing {
    pub fn new<S: AsFd>(
        parcel: &Parcel,
        topic: u32,
        link: &Link<S>,
    ) -> Result<Outgoing, WireError> {
        Ok(Outgoing {
            announcement: parcel.announcement(topic, link.host())?,
            state: State::Announce,
        })
    }

    /// What it is at.
    pub fn at(&self) -> Step {
        match self.state {
            State::Announce => Step::Announcement,
            State::AwaitConsent => Step::Consent,
            State::Send(_) => Step::Pieces,
            State::AwaitAnswer | State::Accepted => Step::Answer,
        }
    }

    /// Goes on until it would block, or is done: the receiver has accepted.
    pub fn step<S: AsFd>(
        &mut self,
        link: &mut Link<S>,
        parcel: &Parcel,
    ) -> Result<Flow, WireError> {
        loop {
            let at = self.at();
            match self.state {
                State::Announce => {
                    let frame = Frame::Announcement(self.announcement);
                    if let wait @ Flow::Wait(_) = link.send(&frame, &[], at)? {
                        return Ok(wait);
                    }
                    self.state = State::AwaitConsent;
                }
                State::AwaitConsent => match receive(link, at)? {
                    Ok(Frame::Consent { host }) => {
                        link.check_host(host)?;
                        self.state = State::Send(0);
                    }
                    Ok(other) => return Err(WireError::out_of_turn(at, &other)),
                    Err(wait) => return Ok(Flow::Wait(wait)),
                },
                State::Send(index) if index == self.announcement.pieces => {
                    self.state = State::AwaitAnswer;
                }
                State::Send(index) => {
                    let (bytes, fds) = piece(parcel, index as usize);
                    let frame = Frame::Piece { index, bytes };
                    if let wait @ Flow::Wait(_) = link.send(&frame, &fds, at)? {
                        return Ok(wait);
                    }
                    self.state = State::Send(index + 1);
                }
                State::AwaitAnswer => match receive(link, at)? {
                    Ok(Frame::Accepted) => self.state = State::Accepted,
                    Ok(other) => return Err(WireError::out_of_turn(at, &other)),
                    Err(wait) => return Ok(Flow::Wait(wait)),
                },
                State::Accepted => return Ok(Flow::Done),
            }
        }
    }
}

/// Sends what is left of the last message and receives one, or says what to wait for.
fn receive<S: AsFd>(link: &mut Link<S>, at: Step) -> Result<Result<Frame<'_>, Wait>, WireError> {
    if let Flow::Wait(wait) = link.flush(at)? {
        return Ok(Err(wait));
    }
    // Descriptors beside such a message have been refused: its header cannot announce any.
    Ok(link
        .receive(at)?
        .map(|(frame, _)| frame)
        .ok_or(Wait::Readable))
}

/// The bytes and the descriptors of one piece.
fn piece(parcel: &Parcel, index: usize) -> (&[u8], Vec<BorrowedFd<'_>>) {
    let bytes = parcel.bytes.chunks(PIECE_BYTES).nth(index);
    let fds = parcel.fds.chunks(MESSAGE_FDS).nth(index);
    let fds = fds.unwrap_or_default().iter().map(AsFd::as_fd).collect();
    (bytes.unwrap_or_default(), fds)
}
