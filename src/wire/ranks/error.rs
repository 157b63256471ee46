//! Which rank failed, and why.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::wire::error::WireError;
use crate::wire::frame::Frame;

/// Which of a group's operations: they are the same in the same order on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Counted from 1 in each group.
    pub number: u32,
    /// What is done in it.
    pub kind: RoundKind,
}

/// What is done in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundKind {
    /// [`vote`](super::Ranks::vote).
    Vote,
    /// [`exchange`](super::Ranks::exchange).
    Exchange,
}

impl Round {
    /// The number that stands for it on the wire; never 0, which is no round.
    pub(super) fn topic(self) -> u32 {
        self.number << 1 | u32::from(self.kind == RoundKind::Exchange)
    }

    pub(super) fn of_topic(topic: u32) -> Round {
        Round {
            number: topic >> 1,
            kind: match topic & 1 {
                0 => RoundKind::Vote,
                _ => RoundKind::Exchange,
            },
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RoundKind::Vote => "vote",
            RoundKind::Exchange => "exchange",
        };
        write!(f, "round {}, {kind}", self.number)
    }
}

/// A group of ranks has failed; every rank of it gets an error that names the same one.
///
/// It is kept, and given again by every later operation of the group.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// A rank died, closed its connection, or does not keep to the protocol.
    #[error("rank {rank}: {error}")]
    Rank {
        /// The rank.
        rank: usize,
        /// What was seen of it.
        error: Arc<WireError>,
    },
    /// Another rank has said that this one failed, or that a third one did.
    #[error("rank {rank} failed, as rank {by} says: {reason}")]
    Told {
        /// The rank that failed.
        rank: usize,
        /// The rank that says so.
        by: usize,
        /// Its words; printable, and short.
        reason: String,
    },
    /// Ranks that had not done their part when the time was up.
    #[error("nothing more came from rank {} by the deadline", Numbers(ranks))]
    Missing {
        /// All of them.
        ranks: Vec<usize>,
    },
    /// Two processes claim the same rank.
    #[error("rank {rank} is there twice")]
    Duplicate {
        /// The rank.
        rank: usize,
    },
    /// A process claims a rank that the group does not have.
    #[error("rank {rank} is one too many: there are {count}, from 0")]
    Extra {
        /// The rank.
        rank: usize,
        /// The ranks of the group.
        count: usize,
    },
    /// A rank takes the group for larger or smaller than it is.
    #[error("rank {rank} counts {theirs} ranks, and this one {ours}")]
    OtherCount {
        /// The rank.
        rank: usize,
        /// Its count.
        theirs: usize,
        /// This rank's.
        ours: usize,
    },
    /// A rank is at another operation.
    #[error("rank {rank} is at {theirs}, and this one at {ours}")]
    OutOfStep {
        /// The rank.
        rank: usize,
        /// Where it is.
        theirs: Round,
        /// Where this one is.
        ours: Round,
    },
    /// This rank failed itself. The others have been told.
    #[error("rank {rank}, this one: {error}")]
    Local {
        /// This rank.
        rank: usize,
        /// Why.
        error: Arc<WireError>,
    },
    /// This rank gave up, by [`fail`](super::Ranks::fail).
    #[error("rank {rank}, this one, gave up: {reason}")]
    GaveUp {
        /// This rank.
        rank: usize,
        /// Its own words.
        reason: String,
    },
    /// Other users could reach into the folder where the ranks meet.
    #[error("{} belongs to user {owner} with mode {mode:o}: a folder of one's own with mode 700 is needed", path.display())]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Not one socket for each other rank, and none for this one.
    #[error("the sockets do not fit: rank {rank} of {count} needs one for every other rank and none for itself")]
    Sockets {
        /// This rank.
        rank: usize,
        /// The ranks, as many as there are places for sockets.
        count: usize,
    },
}

impl RanksError {
    /// The ranks that it names: those to look at. Not always ranks of the group: one too many has a number beyond them,
    /// and another rank's word is passed on as it came.
    pub fn culprits(&self) -> Vec<usize> {
        match self {
            RanksError::Rank { rank, .. }
            | RanksError::Told { rank, .. }
            | RanksError::Duplicate { rank }
            | RanksError::Extra { rank, .. }
            | RanksError::OtherCount { rank, .. }
            | RanksError::OutOfStep { rank, .. }
            | RanksError::Local { rank, .. }
            | RanksError::GaveUp { rank, .. }
            | RanksError::Sockets { rank, .. } => vec![*rank],
            RanksError::Missing { ranks } => ranks.clone(),
            RanksError::NotPrivate { .. } => Vec::new(),
        }
    }

    /// This rank's own failure.
    pub(super) fn local(rank: usize, error: WireError) -> RanksError {
        RanksError::Local {
            rank,
            error: Arc::new(error),
        }
    }

    /// What a failed conversation with a rank means for the group.
    pub(super) fn of(
        rank: usize,
        this: usize,
        ours: Option<Round>,
        error: WireError,
    ) -> RanksError {
        match (error, ours) {
            (
                WireError::RankFailed {
                    rank: named,
                    reason,
                },
                _,
            ) => RanksError::Told {
                rank: named as usize,
                by: rank,
                reason,
            },
            (WireError::OtherTopic { theirs, .. }, Some(ours)) => RanksError::OutOfStep {
                rank,
                theirs: Round::of_topic(theirs),
                ours,
            },
            (error, _) if error.is_local() => RanksError::local(this, error),
            (error, _) => RanksError::Rank {
                rank,
                error: Arc::new(error),
            },
        }
    }

    /// What the others are told before the connections end. `this` is the rank that speaks.
    pub(super) fn last_word(&self, this: usize) -> Frame<'static> {
        let rank = self.culprits().first().copied().unwrap_or(this);
        let reason = match self {
            RanksError::Told { reason, .. } | RanksError::GaveUp { reason, .. } => reason.clone(),
            RanksError::Rank { error, .. } | RanksError::Local { error, .. } => error.to_string(),
            other => other.to_string(),
        };
        Frame::RankFailed {
            rank: rank as u32,
            reason,
        }
    }
}

/// `3`, or `3, 5`.
struct Numbers<'a>(&'a [usize]);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(", "))
    }
}
