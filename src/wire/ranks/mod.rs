//! A group of processes, each with a number, that exchange parcels all with all.

mod error;
mod greeting;
mod join;
mod meeting;
mod round;
mod talk;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use super::parcel::{Limits, Parcel};

use meeting::Links;

pub use error::{RanksError, Round, RoundKind};

/// The connections of this process, one rank of several, with all others.
///
/// All ranks do the same operations in the same order. An operation gives every rank a result, or every rank an error
/// that names the rank at fault: one that failed, died, or was not there by the deadline, which is each rank's own and
/// had better be about the same. An eighth of the time, 250 ms at the most, is kept for all to learn which rank lags.
/// (A rank that dies while the others already tell each other that they have everything can still leave some with a
/// result and some with the error; the next operation then fails for all.)
///
/// After an error the group is at its end: all its connections are closed, and every operation gives that error again.
///
/// Dropping it closes the connections. To ranks that are still at an operation that is a rank that vanished; so all end
/// at the same operation, or one says [`fail`](Self::fail) first.
#[derive(Debug)]
pub struct Ranks {
    rank: usize,
    links: Links,
    round: u32,
    limits: Limits,
    failed: Option<RanksError>,
}

impl Ranks {
    /// Joins the group that meets in a folder, as one of `count` ranks, and waits until all are there.
    ///
    /// Every rank has a socket there, named by its number, until it is connected with all others. The folder is made if
    /// it is not there; it has to be this user's own, and closed to others. One folder serves one group at a time;
    /// sockets of an earlier one that died are replaced.
    ///
    /// # Errors
    ///
    /// [`RanksError`]; [`RanksError::Missing`] names those that did not come; among them can be ranks that came, and
    /// went when they were told of another's failure, before this one was there.
    pub fn join(
        folder: impl AsRef<Path>,
        rank: usize,
        count: usize,
        deadline: Instant,
    ) -> Result<Ranks, RanksError> {
        let links = join::in_folder(folder.as_ref(), rank, count, deadline)?;
        Ok(Ranks::new(rank, links))
    }

    /// Makes a group of connected sockets, one for every other rank in the order of their numbers, and `None` in this
    /// rank's own place.
    ///
    /// # Errors
    ///
    /// [`RanksError::Sockets`] where they do not fit; [`RanksError::Duplicate`] where another rank is behind one than
    /// should be; and as for [`join`](Self::join).
    pub fn over(
        rank: usize,
        sockets: Vec<Option<OwnedFd>>,
        deadline: Instant,
    ) -> Result<Ranks, RanksError> {
        let links = join::over_sockets(rank, sockets, deadline)?;
        Ok(Ranks::new(rank, links))
    }

    fn new(rank: usize, links: Links) -> Ranks {
        Ranks {
            rank,
            links,
            round: 0,
            limits: Limits::default(),
            failed: None,
        }
    }

    /// Takes no more than this from any rank.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// This process's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn count(&self) -> usize {
        self.links.len()
    }

    /// Gives every rank's ballot, in the order of their numbers, to `decide` on every rank. As all see the same, all
    /// decide the same: which kind of handle every one of them can use, say. An empty ballot makes it a barrier.
    ///
    /// # Errors
    ///
    /// [`RanksError`], which names the rank at fault.
    pub fn vote<D>(
        &mut self,
        ballot: &[u8],
        deadline: Instant,
        decide: impl FnOnce(&[Vec<u8>]) -> D,
    ) -> Result<D, RanksError> {
        let mine = Parcel::new(ballot.to_vec(), Vec::new());
        let limits = Limits {
            bytes: self.limits.bytes,
            fds: 0,
        };
        let all = self.all_to_all(RoundKind::Vote, mine, limits, deadline)?;
        let ballots: Vec<Vec<u8>> = all.into_iter().map(|parcel| parcel.bytes).collect();
        Ok(decide(&ballots))
    }

    /// Gives this rank's parcel to all others, and theirs to this one: in the order of their numbers, this rank's own
    /// in its place.
    ///
    /// # Errors
    ///
    /// [`RanksError`], which names the rank at fault. All descriptors are closed then, those of `mine` too.
    pub fn exchange(&mut self, mine: Parcel, deadline: Instant) -> Result<Vec<Parcel>, RanksError> {
        self.all_to_all(RoundKind::Exchange, mine, self.limits, deadline)
    }

    fn all_to_all(
        &mut self,
        kind: RoundKind,
        mine: Parcel,
        limits: Limits,
        deadline: Instant,
    ) -> Result<Vec<Parcel>, RanksError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.round += 1;
        let number = self.round;
        let round = Round { number, kind };
        round::run(self.rank, &mut self.links, round, mine, limits, deadline)
            .map_err(|error| self.end(error))
    }

    /// Tells all others that this rank has failed, and why: memory could not be imported, say. They get at most 512
    /// bytes of the reason, at their present operation or the next. Nothing is said where the group has failed before.
    pub fn fail(&mut self, reason: &str) {
        if self.failed.is_none() {
            self.end(RanksError::GaveUp {
                rank: self.rank,
                reason: reason.to_owned(),
            });
        }
    }

    /// Tells all, and keeps the error for whoever asks again.
    fn end(&mut self, error: RanksError) -> RanksError {
        let last = error.last_word(self.rank);
        let links = self.links.iter_mut().flatten();
        links.for_each(|link| link.abort(&last));
        // Their end of each connection sees this; what was said before it is still read there.
        self.links.iter_mut().for_each(|link| *link = None);
        self.failed = Some(error.clone());
        error
    }
}
