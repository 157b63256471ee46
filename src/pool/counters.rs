//! What can be read of a pool at any time.

use std::time::Duration;

use super::shared::Shared;
use super::tally::Counts;

/// The state of a pool, and what happened since it was made.
///
/// While nothing is published and no hold ends, the numbers of holds add up:
///
/// ```text
/// published × consumers = acknowledged + covered + cancelled_holds + expired + reclaimed + absent
///                       + held by each consumer now
/// ```
///
/// Each number is exact by itself. They are read one after the other while publishers and consumers go on, so that two
/// of them may be of slightly different moments.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Bytes that slices lie in.
    pub size: usize,
    /// Bytes of slices that are in use, rounded up to 256 each.
    pub busy: usize,
    /// Bytes free.
    pub free: usize,
    /// Bytes of the largest free piece.
    pub largest_free: usize,
    /// Slices in use.
    pub slices: usize,
    /// Slices that were published.
    pub published: u64,
    /// Holds that ended with the consumer's own acknowledgement.
    pub acknowledged: u64,
    /// Holds that ended with another consumer's acknowledgement, for its group or for all.
    pub covered: u64,
    /// Slices that were cancelled while a consumer had not opened them.
    pub cancelled: u64,
    /// Holds that ended with a cancel, unopened.
    pub cancelled_holds: u64,
    /// Holds that ended at their deadline, unopened.
    pub expired: u64,
    /// Holds that were taken back from consumers that died, detached or were evicted.
    pub reclaimed: u64,
    /// Holds that never began, because the consumer was gone when the slice was published.
    pub absent: u64,
    /// Acknowledgements that came after the hold was reclaimed. They changed nothing.
    pub late: u64,
    /// Acknowledgements for others that the producer does not allow. They counted for the consumer itself.
    pub refused_scopes: u64,
    /// Slices that cannot be used, since waiting for their copies failed.
    pub quarantined: usize,
    /// Each consumer, by rank.
    pub consumers: Vec<ConsumerCounters>,
}

/// What one consumer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerCounters {
    /// Whether it is attached.
    pub is_attached: bool,
    /// Slices that it holds, opened or not.
    pub held: usize,
    /// Bytes of those slices.
    pub bytes: usize,
    /// How long it has held the oldest of them.
    pub oldest: Option<Duration>,
}

impl Counters {
    /// With the consumers attached that were attached then.
    pub(super) fn consumers_as(mut self, then: &Counters) -> Counters {
        for (consumer, then) in self.consumers.iter_mut().zip(&then.consumers) {
            consumer.is_attached = then.is_attached;
        }
        self
    }

    pub(super) fn of(shared: &Shared) -> Counters {
        let ledger = &shared.ledger;
        shared.recycle();
        ledger.count_late();
        let free = ledger.free();
        let mut consumers: Vec<ConsumerCounters> = (0..ledger.consumers())
            .map(|rank| ConsumerCounters {
                is_attached: ledger.is_attached(rank),
                held: ledger.tally.held(rank) as usize,
                bytes: 0,
                oldest: None,
            })
            .collect();
        for holder in shared.holders() {
            let consumer = &mut consumers[holder.rank];
            (consumer.bytes, consumer.oldest) = (holder.bytes, Some(holder.since));
        }
        let Counts {
            published,
            acknowledged,
            covered,
            cancelled,
            cancelled_holds,
            expired,
            reclaimed,
            absent,
            late,
            refused_scopes,
        } = ledger.tally.counts();
        Counters {
            size: shared.size,
            busy: shared.size - free.bytes as usize,
            free: free.bytes as usize,
            largest_free: free.largest as usize,
            slices: (ledger.slot_count() - free.slots) as usize,
            published,
            acknowledged,
            covered,
            cancelled,
            cancelled_holds,
            expired,
            reclaimed,
            absent,
            late,
            refused_scopes,
            quarantined: shared.copier.quarantined(),
            consumers,
        }
    }
}
