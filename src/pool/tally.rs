//! What is counted as it happens.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::entry::Taken;

/// Counts since the pool was made. Each is exact by itself; two that are read one after the other may be of different
/// moments.
#[derive(Debug)]
pub(super) struct Tally {
    published: AtomicU64,
    acknowledged: AtomicU64,
    covered: AtomicU64,
    cancelled: AtomicU64,
    cancelled_holds: AtomicU64,
    expired: AtomicU64,
    reclaimed: AtomicU64,
    absent: AtomicU64,
    late: AtomicU64,
    refused_scopes: AtomicU64,
    /// By rank: slices that the consumer holds.
    holds: Box<[AtomicU32]>,
}

/// The same as plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) published: u64,
    pub(super) acknowledged: u64,
    pub(super) covered: u64,
    pub(super) cancelled: u64,
    pub(super) cancelled_holds: u64,
    pub(super) expired: u64,
    pub(super) reclaimed: u64,
    pub(super) absent: u64,
    pub(super) late: u64,
    pub(super) refused_scopes: u64,
}

impl Tally {
    pub(super) fn new(consumers: usize) -> Tally {
        Tally {
            published: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            covered: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            cancelled_holds: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            absent: AtomicU64::new(0),
            late: AtomicU64::new(0),
            refused_scopes: AtomicU64::new(0),
            holds: (0..consumers).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(super) fn hold(&self, rank: usize) {
        self.holds[rank].fetch_add(1, Relaxed);
    }

    pub(super) fn let_go(&self, rank: usize) {
        self.holds[rank].fetch_sub(1, Relaxed);
    }

    pub(super) fn held(&self, rank: usize) -> u32 {
        self.holds[rank].load(Relaxed)
    }

    /// A slice was published, to all consumers but so many, which are gone.
    pub(super) fn published(&self, absent: usize) {
        self.published.fetch_add(1, Relaxed);
        self.absent.fetch_add(absent as u64, Relaxed);
    }

    pub(super) fn acknowledged(&self) {
        self.acknowledged.fetch_add(1, Relaxed);
    }

    /// A hold was taken back.
    pub(super) fn taken(&self, why: Taken) {
        match why {
            Taken::Expired => self.expired.fetch_add(1, Relaxed),
            Taken::Covered => self.covered.fetch_add(1, Relaxed),
            Taken::Cancelled => self.cancelled_holds.fetch_add(1, Relaxed),
            Taken::Evicted => self.reclaimed.fetch_add(1, Relaxed),
        };
    }

    /// A cancel took a slice back from one consumer at the least.
    pub(super) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    pub(super) fn reclaimed(&self) {
        self.reclaimed.fetch_add(1, Relaxed);
    }

    pub(super) fn late(&self, count: u64) {
        self.late.fetch_add(count, Relaxed);
    }

    pub(super) fn refused_scope(&self) {
        self.refused_scopes.fetch_add(1, Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            published: self.published.load(Relaxed),
            acknowledged: self.acknowledged.load(Relaxed),
            covered: self.covered.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            cancelled_holds: self.cancelled_holds.load(Relaxed),
            expired: self.expired.load(Relaxed),
            reclaimed: self.reclaimed.load(Relaxed),
            absent: self.absent.load(Relaxed),
            late: self.late.load(Relaxed),
            refused_scopes: self.refused_scopes.load(Relaxed),
        }
    }
}
