//! The receiver's side of a conversation: check the announcement, consent, collect the pieces. The answer is the
//! caller's.

use std::cmp::Ordering;
use std::os::fd::{AsFd, OwnedFd};

use super::error::{Step, WireError};
use super::frame::{Announcement, Frame};
use super::link::{Flow, Link, Wait};
use super::parcel::{Limits, Parcel};

/// The most bytes that are allocated ahead of their arrival, whatever is announced.
const AHEAD: u64 = 64 << 10;

/// How far the receiving of one parcel is. It never blocks: whoever drives it waits.
#[derive(Debug)]
pub(super) struct Incoming {
    limits: Limits,
    topic: u32,
    state: State,
    parcel: Parcel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AwaitAnnouncement,
    Consent(Announcement),
    /// The piece with this index is next.
    Await(Announcement, u32),
    Complete,
}

impl Incoming {
    pub fn new(topic: u32, limits: Limits) -> Incoming {
        Incoming {
            limits,
            topic,
            state: State::AwaitAnnouncement,
            parcel: Parcel::default(),
        }
    }

    /// What it is at.
    pub fn at(&self) -> Step {
        match self.state {
            State::AwaitAnnouncement => Step::Announcement,
            State::Consent(_) => Step::Consent,
            State::Await(..) | State::Complete => Step::Pieces,
        }
    }

    /// Goes on until it would block, or is done: everything announced is here.
    pub fn step<S: AsFd>(&mut self, link: &mut Link<S>) -> Result<Flow, WireError> {
        loop {
            let at = self.at();
            match self.state {
                State::AwaitAnnouncement => match link.receive(at)? {
                    None => return Ok(Flow::Wait(Wait::Readable)),
                    Some((Frame::Announcement(announcement), _)) => {
                        link.check_host(announcement.host)?;
                        self.check(&announcement)?;
                        self.parcel
                            .bytes
                            .reserve(announcement.bytes.min(AHEAD) as usize);
                        self.state = State::Consent(announcement);
                    }
                    Some((other, _)) => return Err(WireError::out_of_turn(at, &other)),
                },
                State::Consent(announcement) => {
                    let host = link.host();
                    if let wait @ Flow::Wait(_) = link.send(&Frame::Consent { host }, &[], at)? {
                        return Ok(wait);
                    }
                    self.state = State::Await(announcement, 0);
                }
                State::Await(announcement, index) => {
                    if let wait @ Flow::Wait(_) = link.flush(at)? {
                        return Ok(wait);
                    }
                    if index == announcement.pieces {
                        self.whole(&announcement)?;
                        self.state = State::Complete;
                        continue;
                    }
                    match link.receive(at)? {
                        None => return Ok(Flow::Wait(Wait::Readable)),
                        Some((
                            Frame::Piece {
                                index: found,
                                bytes,
                            },
                            fds,
                        )) => {
                            in_order(index, found, announcement.pieces)?;
                            self.parcel.add(bytes, fds, &announcement)?;
                            self.state = State::Await(announcement, index + 1);
                        }
                        Some((other, _)) => return Err(WireError::out_of_turn(at, &other)),
                    }
                }
                State::Complete => return Ok(Flow::Done),
            }
        }
    }

    /// What was received.
    pub fn into_parcel(self) -> Parcel {
        self.parcel
    }

    fn check(&self, announcement: &Announcement) -> Result<(), WireError> {
        let Announcement {
            topic,
            pieces,
            bytes,
            fds,
            host: _,
        } = *announcement;
        if topic != self.topic {
            return Err(WireError::OtherTopic {
                ours: self.topic,
                theirs: topic,
            });
        }
        if bytes > self.limits.bytes as u64 {
            return Err(WireError::TooManyBytes {
                announced: bytes,
                limit: self.limits.bytes,
            });
        }
        if fds as usize > self.limits.fds {
            return Err(WireError::TooManyFds {
                announced: fds,
                limit: self.limits.fds,
            });
        }
        // No piece is empty, and nothing travels without a piece.
        let parts = bytes.saturating_add(fds.into());
        if u64::from(pieces) > parts || (pieces == 0 && parts > 0) {
            return Err(WireError::ImpossiblePieces { pieces, bytes, fds });
        }
        Ok(())
    }

    /// Everything that was announced is here.
    fn whole(&self, announcement: &Announcement) -> Result<(), WireError> {
        let received = self.parcel.bytes.len() as u64;
        if received != announcement.bytes {
            return Err(WireError::ByteCount {
                announced: announcement.bytes,
                received,
            });
        }
        self.parcel.all_fds(announcement)
    }
}

fn in_order(expected: u32, found: u32, pieces: u32) -> Result<(), WireError> {
    match found.cmp(&expected) {
        Ordering::Equal => Ok(()),
        _ if found >= pieces => Err(WireError::ExtraPiece { found, pieces }),
        Ordering::Less => Err(WireError::DuplicatePiece {
            expected,
            found,
            pieces,
        }),
        Ordering::Greater => Err(WireError::MissingPiece {
            expected,
            found,
            pieces,
        }),
    }
}

impl Parcel {
    /// Takes a piece, if there is not more of it than was announced.
    fn add(
        &mut self,
        bytes: &[u8],
        fds: Vec<OwnedFd>,
        announcement: &Announcement,
    ) -> Result<(), WireError> {
        let received = self.bytes.len() as u64 + bytes.len() as u64;
        if received > announcement.bytes {
            return Err(WireError::ByteCount {
                announced: announcement.bytes,
                received,
            });
        }
        self.bytes.extend_from_slice(bytes);
        self.fds.extend(fds);
        match self.fds.len() > announcement.fds as usize {
            true => self.all_fds(announcement),
            false => Ok(()),
        }
    }

    fn all_fds(&self, announcement: &Announcement) -> Result<(), WireError> {
        match self.fds.len() == announcement.fds as usize {
            true => Ok(()),
            false => Err(WireError::FdCount {
                at: Step::Pieces,
                announced: announcement.fds as usize,
                received: self.fds.len(),
            }),
        }
    }
}
