//! How two ranks make sure of each other.

use std::os::fd::OwnedFd;

use super::error::RanksError;
use crate::wire::error::{Step, WireError};
use crate::wire::frame::Frame;
use crate::wire::link::{Flow, Link, Wait};

/// Which rank this is, of how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub rank: usize,
    pub count: usize,
}

/// A connection on which both ends have still to say who they are.
pub(super) struct Greeting {
    link: Link<OwnedFd>,
    /// The rank that should be there; nobody knows of a connection that came in.
    expected: Option<usize>,
    /// The rank that has said that it is there, and may be.
    met: Option<usize>,
    told: bool,
    pub wait: Wait,
}

/// How a greeting failed.
pub(super) enum Unmet {
    /// Whoever it is, it is no rank; the group goes on without it.
    Stranger(WireError),
    /// A rank, and one with which there can be no group.
    Failed(RanksError),
}

impl Greeting {
    pub fn new(socket: OwnedFd, expected: Option<usize>) -> Result<Greeting, WireError> {
        Ok(Greeting {
            link: Link::new(socket)?,
            expected,
            met: None,
            told: false,
            wait: Wait::Readable,
        })
    }

    pub fn link(&mut self) -> &mut Link<OwnedFd> {
        &mut self.link
    }

    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.link.socket()
    }

    /// The other rank's number, once both have said theirs.
    pub fn step(&mut self, here: Place, joined: &[bool]) -> Result<Option<usize>, Unmet> {
        // Whoever knows whom to expect speaks at once; the other speaks to ranks alone, once they have spoken.
        if self.expected.is_some() && !self.tell(here)? {
            return Ok(None);
        }
        if self.met.is_none() {
            let Some(rank) = self.listen(here, joined)? else {
                self.wait = Wait::Readable;
                return Ok(None);
            };
            self.met = Some(rank);
            self.expected = Some(rank);
        }
        let told = self.tell(here)?;
        Ok(self.met.filter(|_| told))
    }

    /// What the other end says that it is, if it is possible.
    fn listen(&mut self, here: Place, joined: &[bool]) -> Result<Option<usize>, Unmet> {
        let (rank, count, host) = match self.link.receive(Step::Joining) {
            Ok(None) => return Ok(None),
            Ok(Some((Frame::Join { rank, count, host }, _))) => {
                (rank as usize, count as usize, host)
            }
            Ok(Some((other, _))) => {
                let error = WireError::out_of_turn(Step::Joining, &other);
                return Err(self.unmet(here, error));
            }
            Err(error) => return Err(self.unmet(here, error)),
        };
        self.link
            .check_host(host)
            .map_err(|error| Unmet::Failed(RanksError::of(rank, here.rank, None, error)))?;
        self.fits(here, joined, rank, count)
            .map_err(Unmet::Failed)?;
        Ok(Some(rank))
    }

    /// Says who this is, to a rank that is known; whether it is said.
    fn tell(&mut self, here: Place) -> Result<bool, Unmet> {
        let frame = Frame::Join {
            rank: here.rank as u32,
            count: here.count as u32,
            host: self.link.host(),
        };
        let flow = match self.told {
            true => self.link.flush(Step::Joining),
            false => self.link.send(&frame, &[], Step::Joining),
        };
        match flow {
            Ok(Flow::Done) if self.told => Ok(true),
            Ok(Flow::Done) => {
                self.told = true;
                self.tell(here)
            }
            Ok(Flow::Wait(wait)) => {
                self.wait = wait;
                Ok(false)
            }
            Err(error) => Err(self.unmet(here, error)),
        }
    }

    pub fn into_link(self) -> Link<OwnedFd> {
        self.link
    }

    /// What a failed greeting means: of a rank that should be there, or by this process's own fault, that the group
    /// fails.
    fn unmet(&self, here: Place, error: WireError) -> Unmet {
        match self.expected {
            Some(rank) => Unmet::Failed(RanksError::of(rank, here.rank, None, error)),
            None if error.is_local() => Unmet::Failed(RanksError::local(here.rank, error)),
            None => Unmet::Stranger(error),
        }
    }

    fn fits(
        &self,
        here: Place,
        joined: &[bool],
        rank: usize,
        count: usize,
    ) -> Result<(), RanksError> {
        if count != here.count {
            return Err(RanksError::OtherCount {
                rank,
                theirs: count,
                ours: here.count,
            });
        }
        if rank >= count {
            return Err(RanksError::Extra { rank, count });
        }
        // Where the socket says which rank it should be, any other has its own socket, and would be there twice.
        let twice = rank == here.rank || joined[rank] || self.expected.is_some_and(|it| it != rank);
        match twice {
            true => Err(RanksError::Duplicate { rank }),
            false => Ok(()),
        }
    }
}
