//! The control words of one slice for one consumer: what both processes write, and the order in which they may.
//!
//! | word | written by | says |
//! |---|---|---|
//! | `claim`, 64 bits | producer and consumer, by their CPUs | a generation, and what the consumer has done with the ticket |
//! | `done`, 32 bits | the consumer: its CPU, or its GPU in stream order | the generation that it no longer reads, and for whom |
//!
//! A claim moves in one direction within a generation:
//!
//! ```text
//!              open                 acknowledge
//! UNOPENED ───────────▶ OPEN ───────────────────▶ CLOSED
//!    │ │
//!    │ └── decline (a ticket that is dropped) ──▶ CLOSED
//!    └──── take (the producer) ──▶ EXPIRED, CANCELLED or COVERED
//!
//! OPEN ──── revoke (the producer, of a consumer that it evicts) ──▶ EVICTED
//! ```
//!
//! Only one of `open`, `decline` and `take` succeeds, so a slice is never read after the producer took it back. The
//! producer frees a slice that was opened or declined only after it read `done`; a `done` of another generation means
//! nothing.

use crate::sync::modelled::atomic::{AtomicU32, AtomicU64, Ordering};

/// For whom a consumer acknowledges a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// For itself alone.
    Own,
    /// For its group: also for the group's members that have not opened the ticket.
    Group,
    /// For all consumers: also for all others that have not opened the ticket.
    All,
}

/// The reason for [`PoolError::TakenBack`](super::PoolError::TakenBack).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Taken {
    /// The deadline that was given with the publish passed.
    Expired,
    /// The producer cancelled the slice.
    Cancelled,
    /// Another consumer acknowledged for this one.
    Covered,
    /// The producer evicted the consumer, which had the ticket open.
    Evicted,
}

/// What a claim says of a ticket that cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// It was opened before, and is open.
    Open,
    /// It was opened and acknowledged, or dropped.
    Closed,
    Taken(Taken),
    /// The slice is in use for a later generation.
    Stale {
        current: u64,
    },
    /// This generation was not published to this consumer.
    Never,
}

const STATE_BITS: u32 = 3;
const UNOPENED: u64 = 0;
const OPEN: u64 = 1;
const CLOSED: u64 = 2;
const EXPIRED: u64 = 3;
const CANCELLED: u64 = 4;
const COVERED: u64 = 5;
const EVICTED: u64 = 6;

const SCOPE_BITS: u32 = 2;

fn claim(generation: u64, state: u64) -> u64 {
    generation << STATE_BITS | state
}

impl Taken {
    fn state(self) -> u64 {
        match self {
            Taken::Expired => EXPIRED,
            Taken::Cancelled => CANCELLED,
            Taken::Covered => COVERED,
            Taken::Evicted => EVICTED,
        }
    }
}

/// The two words. All zeroes are an entry that was never used: generations begin with 1.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Entry {
    claim: AtomicU64,
    done: AtomicU32,
    unused: u32,
}

/// Where [`done_word`] is written, in bytes from the start of an entry: for a GPU.
pub(super) const DONE_OFFSET: usize = std::mem::offset_of!(Entry, done);

/// What a consumer writes to `done`.
pub(super) fn done_word(generation: u64, scope: Scope) -> u32 {
    let scope = match scope {
        Scope::Own => 1,
        Scope::Group => 2,
        Scope::All => 3,
    };
    (generation as u32) << SCOPE_BITS | scope
}

/// The producer's side.
impl Entry {
    /// Offers the slice to the consumer. No acknowledgement of an earlier generation is left.
    pub(super) fn offer(&self, generation: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.claim
            .store(claim(generation, UNOPENED), Ordering::Release);
    }

    /// Whether this generation was offered through this entry.
    pub(super) fn is_offered(&self, generation: u64) -> bool {
        self.claim.load(Ordering::Relaxed) >> STATE_BITS == generation
    }

    /// Takes the slice back, unless the consumer opened or dropped the ticket first.
    pub(super) fn take(&self, generation: u64, why: Taken) -> bool {
        self.move_on(generation, UNOPENED, why.state()).is_ok()
    }

    /// Takes a slice back that the consumer has open. What it reads from here on may be overwritten.
    pub(super) fn revoke(&self, generation: u64) {
        let _ = self.move_on(generation, OPEN, EVICTED);
    }

    /// Whether the consumer is done with this generation, and for whom it says so.
    pub(super) fn acknowledged(&self, generation: u64) -> Option<Scope> {
        let done = self.done.load(Ordering::Acquire);
        [Scope::Own, Scope::Group, Scope::All]
            .into_iter()
            .find(|scope| done == done_word(generation, *scope))
    }

    /// Whether the consumer has this generation open.
    pub(super) fn is_open(&self, generation: u64) -> bool {
        self.claim.load(Ordering::Acquire) == claim(generation, OPEN)
    }
}

/// The consumer's side.
impl Entry {
    /// Claims the slice for reading.
    pub(super) fn open(&self, generation: u64) -> Result<(), NotOpened> {
        self.move_on(generation, UNOPENED, OPEN)
            .map(drop)
            .map_err(|found| match (found >> STATE_BITS, found & 7) {
                (current, _) if current > generation => NotOpened::Stale { current },
                (current, _) if current < generation => NotOpened::Never,
                (_, OPEN) => NotOpened::Open,
                (_, EXPIRED) => NotOpened::Taken(Taken::Expired),
                (_, CANCELLED) => NotOpened::Taken(Taken::Cancelled),
                (_, COVERED) => NotOpened::Taken(Taken::Covered),
                (_, EVICTED) => NotOpened::Taken(Taken::Evicted),
                _ => NotOpened::Closed,
            })
    }

    /// Gives back a slice whose ticket was not opened. Nothing changes if the ticket was opened or taken back.
    pub(super) fn decline(&self, generation: u64) {
        if self.move_on(generation, UNOPENED, CLOSED).is_ok() {
            self.finish(generation, Scope::Own);
        }
    }

    /// Marks an open ticket as used. From here on only `done` is missing.
    pub(super) fn close(&self, generation: u64) {
        let _ = self.move_on(generation, OPEN, CLOSED);
    }

    /// Writes `done` by the CPU. Everything that this consumer read of the slice was read before.
    pub(super) fn finish(&self, generation: u64, scope: Scope) {
        self.done
            .store(done_word(generation, scope), Ordering::Release);
    }
}

impl Entry {
    /// Moves the claim from one state of a generation to another, or gives what it is.
    fn move_on(&self, generation: u64, from: u64, to: u64) -> Result<u64, u64> {
        self.claim.compare_exchange(
            claim(generation, from),
            claim(generation, to),
            Ordering::AcqRel,
            Ordering::Acquire,
        )
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    fn offered(generation: u64) -> Entry {
        let entry = Entry::default();
        entry.offer(generation);
        entry
    }

    #[test]
    fn an_entry_is_16_bytes_and_done_is_aligned() {
        assert_eq!((size_of::<Entry>(), DONE_OFFSET), (16, 8));
    }

    #[test]
    fn one_of_open_decline_and_take_succeeds() {
        let entry = offered(5);
        assert_eq!(entry.open(5), Ok(()));
        assert!(!entry.take(5, Taken::Expired));
        entry.decline(5);
        assert_eq!((entry.acknowledged(5), entry.is_open(5)), (None, true));
        assert_eq!(entry.open(5), Err(NotOpened::Open));

        let entry = offered(5);
        assert!(entry.take(5, Taken::Cancelled));
        assert_eq!(entry.open(5), Err(NotOpened::Taken(Taken::Cancelled)));
        entry.decline(5);
        assert_eq!(entry.acknowledged(5), None);
    }

    #[test]
    fn a_declined_ticket_is_acknowledged_for_its_consumer() {
        let entry = offered(5);
        entry.decline(5);
        assert_eq!(entry.acknowledged(5), Some(Scope::Own));
        assert!(!entry.take(5, Taken::Expired));
        assert_eq!(entry.open(5), Err(NotOpened::Closed));
    }

    #[test]
    fn acknowledgements_of_other_generations_mean_nothing() {
        let entry = offered(5);
        entry.finish(4, Scope::All);
        assert_eq!(entry.acknowledged(5), None);
        entry.finish(5, Scope::Group);
        assert_eq!(entry.acknowledged(5), Some(Scope::Group));
        entry.offer(6);
        assert_eq!(entry.acknowledged(6), None);
        assert_eq!(entry.open(5), Err(NotOpened::Stale { current: 6 }));
        assert_eq!(entry.open(7), Err(NotOpened::Never));
        // The word has the lower bits of a generation alone.
        entry.finish(6, Scope::Own);
        entry.offer(6 + (1 << 30));
        assert_eq!(entry.acknowledged(6 + (1 << 30)), None);
    }

    #[test]
    fn an_open_slice_can_be_revoked_alone() {
        let entry = offered(5);
        entry.revoke(5);
        assert_eq!(entry.open(5), Ok(()));
        entry.revoke(4);
        assert!(entry.is_open(5));
        entry.revoke(5);
        assert!(!entry.is_open(5));
        assert_eq!(entry.open(5), Err(NotOpened::Taken(Taken::Evicted)));
    }

    #[test]
    fn each_reason_for_taking_is_told() {
        for why in [Taken::Expired, Taken::Cancelled, Taken::Covered] {
            let entry = offered(1 << 40);
            assert!(entry.take(1 << 40, why));
            assert_eq!(entry.open(1 << 40), Err(NotOpened::Taken(why)));
        }
    }
}
