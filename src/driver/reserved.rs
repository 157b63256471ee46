//! Which addresses are reserved through a driver now: no two reservations overlap, whatever the driver says.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{answers, Driver, Piece};
use crate::bytes::Bounds;
use crate::error::{Error, Result};
use crate::sync::{lock, Mutex};

/// The live reservations of a driver, as base and end.
#[derive(Default)]
pub(super) struct Reserved(Mutex<BTreeMap<u64, u64>>);

impl Reserved {
    /// Notes a new reservation, unless it overlaps one that lives.
    pub(super) fn claim(&self, range: Range<u64>) -> Result<()> {
        let mut live = lock(&self.0);
        match overlapping(&live, &range) {
            Some(other) => Err(overlap(&range, &other)),
            None => {
                live.insert(range.start, range.end);
                Ok(())
            }
        }
    }

    /// Forgets a reservation that is nobody's any more.
    pub(super) fn forget(&self, base: u64) {
        lock(&self.0).remove(&base);
    }

    /// The range overlaps no reservation that lives.
    pub(super) fn check(&self, base: u64, size: usize) -> Result<()> {
        let range = base..base.saturating_add(size as u64);
        match overlapping(&lock(&self.0), &range) {
            Some(other) => Err(overlap(&range, &other)),
            None => Ok(()),
        }
    }

    /// Frees a reservation. It is forgotten before the driver frees it, since the addresses are anybody's afterwards,
    /// and noted again if the driver does not.
    pub(super) fn free(&self, range: Range<u64>, free: impl FnOnce() -> Result<()>) -> Result<()> {
        self.forget(range.start);
        free().inspect_err(|_| {
            lock(&self.0).insert(range.start, range.end);
        })
    }
}

impl Driver {
    /// Reserves addresses that are as they must be and that nobody else has.
    pub(crate) fn reserve(&self, size: usize, alignment: usize, hint: u64) -> Result<u64> {
        let multiple = alignment.max(self.units()?.least);
        let base = self.calls().address_reserve(size, alignment, hint)?;
        let claimed = answers::addresses(base, size, multiple)
            .and_then(|range| self.inner.reserved.claim(range));
        match claimed {
            Ok(()) => Ok(base),
            Err(error) => {
                let undo = self.give_back(Piece::Addresses { base, size }).err();
                Err(error.with_undo(undo.into_iter().collect()))
            }
        }
    }

    /// The addresses are no reservation's any more: whoever says so has them as a piece.
    pub(crate) fn disown(&self, base: u64) {
        self.inner.reserved.forget(base);
    }

    /// Frees addresses that turned out not to be the ones wanted, or keeps them in quarantine.
    pub(crate) fn unreserve(&self, base: u64, size: usize) -> Result<()> {
        self.disown(base);
        self.give_back(Piece::Addresses { base, size })
    }

    /// Frees the addresses of a reservation.
    pub(crate) fn free(&self, base: u64, size: usize) -> Result<()> {
        let calls = self.calls();
        // A thread of the parent may have held the lock when the process forked.
        if calls.forked() {
            return Err(Error::ForkedChild);
        }
        let range = base..base.saturating_add(size as u64);
        let reserved = &self.inner.reserved;
        reserved.free(range, || calls.address_free(base, size))
    }
}

fn overlapping(live: &BTreeMap<u64, u64>, range: &Range<u64>) -> Option<Range<u64>> {
    let (start, end) = live.range(..range.end).next_back()?;
    (*end > range.start).then_some(*start..*end)
}

fn overlap(range: &Range<u64>, other: &Range<u64>) -> Error {
    Error::disagreement(
        format!("{} is reserved already", Bounds::from(other)),
        format!("reserved {}", Bounds::from(range)),
    )
}
