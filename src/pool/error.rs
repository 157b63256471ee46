//! What can go wrong with a pool, grouped by what the caller can do.

use std::fmt;
use std::time::Duration;

use super::entry::{Scope, Taken};
use super::layout::LayoutError;
use super::ticket::TicketError;
use crate::bytes::Bytes;
use crate::wire::WireError;

/// Why an operation of a pool failed.
///
/// A failed operation changes nothing, with one exception: a method of [`Lease`](super::Lease) that takes the lease by
/// value acknowledges the slice when it fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The size is below the granularity of the device's memory. It is rounded down to a multiple of it.
    #[error("pool size {} is below the granularity {}: ask for at least that", Bytes(*size), Bytes(*granularity))]
    TooSmall {
        /// Bytes asked for.
        size: usize,
        /// Bytes that memory comes in.
        granularity: usize,
    },
    /// The number of consumers is zero or above the limit.
    #[error("{count} consumers: a pool has 1 to {most}")]
    ConsumerCount {
        /// The number given.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The number of slices is zero or above the limit.
    #[error("{count} slices: a pool has 1 to {most}")]
    SliceCount {
        /// The number given.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// A group of consumers is empty, reversed, or not within the consumers.
    #[error("group {start}..{end} is not a range of the consumers 0..{consumers}")]
    GroupOutOfRange {
        /// Its first rank.
        start: usize,
        /// The rank behind its last one.
        end: usize,
        /// How many consumers there are.
        consumers: usize,
    },
    /// A consumer is in two groups.
    #[error("consumer {rank} is in two groups: groups must not overlap")]
    GroupsOverlap {
        /// The consumer.
        rank: usize,
    },

    /// The shape of a layout is invalid.
    #[error(transparent)]
    Shape(#[from] LayoutError),
    /// Nothing is to be published: no part, or a part of zero bytes.
    #[error("part {part} has no bytes: publish parts of at least 1 byte")]
    Empty {
        /// Which part of the payload, counted from 0.
        part: usize,
    },
    /// The shape does not fit the bytes.
    #[error("part {part}: {error}")]
    Layout {
        /// Which part of the payload, counted from 0.
        part: usize,
        /// What is wrong.
        error: LayoutError,
    },
    /// Strided rows that overlap, or that do not fill the source.
    #[error("{rows} rows of {width} bytes at a pitch of {pitch} bytes do not fit {} of source: the pitch is at least the width, and the last row ends within the source", Bytes(*size))]
    Rows {
        /// Bytes of a row.
        width: usize,
        /// Bytes from row to row.
        pitch: usize,
        /// How many.
        rows: usize,
        /// Bytes of the source.
        size: usize,
    },
    /// More parts than a ticket describes.
    #[error("{count} parts: a slice has at most {most}")]
    PartCount {
        /// The number given.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The payload can never fit.
    #[error("{} do not fit a pool of {}: publish less at once, or make the pool larger", Bytes(*needed), Bytes(*pool))]
    TooLarge {
        /// Bytes that the payload takes in the pool.
        needed: usize,
        /// Bytes of the pool.
        pool: usize,
    },
    /// A batch of more payloads than the pool has slices.
    #[error("{count} payloads at once: the pool has {most} slices, so publish fewer at once")]
    TooManySlices {
        /// The number given.
        count: usize,
        /// The slices of the pool.
        most: usize,
    },
    /// There is no room now.
    #[error("{0}")]
    Exhausted(Box<Exhausted>),
    /// Every consumer was attached once and is gone.
    #[error("all {consumers} consumers are gone: publish after one has attached again")]
    NoConsumer {
        /// How many consumers the pool has.
        consumers: usize,
    },
    /// The pool is closing or closed.
    #[error("the pool is closing: it accepts no publish and no consumer")]
    Closing,
    /// The id was not made by this pool.
    #[error("slice {slot} generation {generation} is not a slice of this pool: use the id with the pool that published it")]
    UnknownSlice {
        /// The slot in the id.
        slot: u32,
        /// The generation in the id.
        generation: u64,
    },
    /// The copies were not done by the deadline.
    #[error("the copies are not done after {waited:?}")]
    NotDone {
        /// How long was waited.
        waited: Duration,
    },

    /// The rank is not below the number of consumers.
    #[error("consumer rank {rank} is out of range: the pool has the consumers 0..{consumers}")]
    RankOutOfRange {
        /// The rank given.
        rank: usize,
        /// How many consumers there are.
        consumers: usize,
    },
    /// Another consumer is attached with this rank.
    #[error(
        "consumer rank {rank} is attached already: use another rank, or end that process first"
    )]
    RankTaken {
        /// The rank given.
        rank: usize,
    },
    /// The producer speaks another version of the protocol.
    #[error("the producer knows version {theirs} of the pool protocol, this consumer version {ours}: build both with the same version of this crate")]
    ProtocolVersion {
        /// This side's.
        ours: u8,
        /// The producer's.
        theirs: u8,
    },
    /// What the server under that name sent does not describe a pool.
    #[error("the server's answer does not describe a pool: {reason}")]
    NotAPool {
        /// What is wrong.
        reason: String,
    },

    /// The bytes are not a ticket of this pool.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// The slice was reused: the ticket's generation is over.
    #[error("the ticket is of generation {generation} of slice {slot}, which is at {current}: the slice was reused")]
    Stale {
        /// The slot.
        slot: u32,
        /// The ticket's generation.
        generation: u64,
        /// The generation that is published there.
        current: u64,
    },
    /// The ticket was not published to this consumer: it attached after the slice was given back for its rank.
    #[error("slice {slot} generation {generation} is not held for this consumer: it was taken back when an earlier consumer with this rank ended")]
    NotPublished {
        /// The slot.
        slot: u32,
        /// The ticket's generation.
        generation: u64,
    },
    /// This consumer has the ticket open.
    #[error("the ticket of slice {slot} is already open in this consumer: use that lease")]
    AlreadyOpen {
        /// The slot.
        slot: u32,
    },
    /// This consumer has acknowledged the slice.
    #[error("this consumer has acknowledged slice {slot}: a failed copy, a dropped ticket and a dropped lease do that too")]
    AlreadyAcknowledged {
        /// The slot.
        slot: u32,
    },
    /// The producer took the slice back: before the ticket was opened, or from a consumer that it evicted.
    #[error("slice {slot} was taken back: {}", taken_text(*why))]
    TakenBack {
        /// The slot.
        slot: u32,
        /// Why.
        why: Taken,
    },
    /// The consumer may not acknowledge for others to this extent.
    #[error("a consumer of this pool acknowledges for {} at most, not for {}", scope_text(*widest), scope_text(*asked))]
    ScopeNotAllowed {
        /// The scope asked for.
        asked: Scope,
        /// The widest that the producer allows.
        widest: Scope,
    },
    /// A part that the slice does not have.
    #[error("part {part} of a slice with {count}: parts are counted from 0")]
    NoSuchPart {
        /// The part asked for.
        part: usize,
        /// How many there are.
        count: usize,
    },
    /// The target of a copy has another size than the part.
    #[error("part {part} has {}, and the target has {}: pass a target of the same size; the slice was acknowledged", Bytes(*size), Bytes(*target))]
    TargetSize {
        /// The part.
        part: usize,
        /// Bytes of the part.
        size: usize,
        /// Bytes of the target.
        target: usize,
    },

    /// The producer process is gone. Open leases stay readable.
    #[error("the producer is gone: open leases stay readable; attach again when a producer serves the name")]
    ProducerGone,
    /// The producer ended this consumer's session. Open leases stay readable, unless the consumer was evicted.
    #[error("the producer ended the session: {reason}")]
    Ended {
        /// The producer's reason.
        reason: String,
    },
    /// The ticket's consumer was closed or dropped.
    #[error("this consumer has let go of the pool: attach again")]
    Detached,
    /// This process was forked from the one that the pool or the consumer belongs to.
    #[error("this process was forked from the one that uses the pool: attach after the fork")]
    Forked,
    /// Publishers are still at work.
    #[error("{count} publishes are not finished: let publish return, and finish or drop each Publishing")]
    PublishersActive {
        /// How many.
        count: usize,
    },
    /// Consumers still hold slices.
    #[error(
        "consumers still hold slices: {}; wait longer, evict them, or use close_now",
        holders_text(holders)
    )]
    StillHeld {
        /// Which.
        holders: Vec<Holder>,
    },
    /// Copies into the pool may still run, since waiting for them failed.
    #[error("{slices} slices are quarantined, since waiting for their copies failed: {error}")]
    Quarantined {
        /// How many slices.
        slices: usize,
        /// The last failure.
        error: crate::Error,
    },

    /// The system could not provide shared memory or a descriptor.
    #[error("control memory: {0}")]
    ControlMemory(std::io::Error),
    /// The connection failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A memory or driver operation failed.
    #[error(transparent)]
    Memory(#[from] crate::Error),
}

/// The pool has no room for the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exhausted {
    /// Bytes that were needed in one piece.
    pub needed: usize,
    /// Bytes in use.
    pub busy: usize,
    /// Bytes free.
    pub free: usize,
    /// Bytes of the largest free piece.
    pub largest_free: usize,
    /// Slices that are not in use, of [`PoolBuilder::slices`](super::PoolBuilder::slices).
    pub free_slices: usize,
    /// Who has held a slice longest.
    pub oldest: Option<Holder>,
}

/// A consumer that holds a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its rank.
    pub rank: usize,
    /// How many slices it holds. 1 where one slice is meant.
    pub slices: usize,
    /// Bytes of those slices.
    pub bytes: usize,
    /// Its process id, if it is attached and the producer can see it.
    pub process: Option<u32>,
    /// How long it has held the oldest of them.
    pub since: Duration,
    /// Whether it has opened that one.
    pub is_open: bool,
    /// Whether it is attached now.
    pub is_attached: bool,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, busy, free) = (Bytes(self.needed), Bytes(self.busy), Bytes(self.free));
        match self.free_slices {
            0 => write!(
                f,
                "no slice is left for {needed}, with {free} free: wait, or set PoolBuilder::slices higher",
            )?,
            slices => write!(
                f,
                "no free piece of {needed}: the largest is {}, {free} are free, {busy} in use, {slices} slices left",
                Bytes(self.largest_free),
            )?,
        }
        match &self.oldest {
            Some(holder) => write!(f, "; longest held by {holder}"),
            None => f.write_str("; held by publishes that are not finished"),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.is_attached, self.is_open) {
            (false, _) => "not attached",
            (true, true) => "open",
            (true, false) => "not opened",
        };
        let seconds = self.since.as_secs_f64();
        write!(f, "consumer {} for {seconds:.3} s ({state}", self.rank)?;
        match self.process {
            Some(process) => write!(f, ", process {process})")?,
            None => f.write_str(")")?,
        }
        match self.slices {
            1 => Ok(()),
            slices => write!(f, ", {slices} slices"),
        }
    }
}

impl PoolError {
    /// There is no room now; there may be later.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, PoolError::Exhausted(_))
    }

    /// The other process is gone, or ended the session: attach again.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, PoolError::ProducerGone | PoolError::Ended { .. })
    }

    /// The slice cannot be opened any more: its data has to come from elsewhere.
    pub fn is_slice_gone(&self) -> bool {
        matches!(
            self,
            PoolError::Stale { .. } | PoolError::NotPublished { .. } | PoolError::TakenBack { .. }
        )
    }
}

fn taken_text(why: Taken) -> &'static str {
    match why {
        Taken::Expired => "its deadline passed",
        Taken::Cancelled => "the producer cancelled it",
        Taken::Covered => "another consumer acknowledged for this one",
        Taken::Evicted => {
            "the producer evicted this consumer, so that the bytes may be overwritten"
        }
    }
}

fn scope_text(scope: Scope) -> &'static str {
    match scope {
        Scope::Own => "itself",
        Scope::Group => "its group",
        Scope::All => "all consumers",
    }
}

fn holders_text(holders: &[Holder]) -> String {
    let texts: Vec<String> = holders.iter().map(Holder::to_string).collect();
    texts.join("; ")
}
