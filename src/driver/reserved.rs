//! Which addresses are reserved through a driver now: no two reservations overlap, whatever the driver says.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use super::lock;
use crate::error::{Error, Result};

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
    pub(super) fn check(&self, range: &Range<u64>) -> Result<()> {
        match overlapping(&lock(&self.0), range) {
            Some(other) => Err(overlap(range, &other)),
            None => Ok(()),
        }
    }

    /// Frees a reservation. It is forgotten before the driver frees it, since the addresses are anybody's afterwards, and
    /// noted again if the driver does not.
    pub(super) fn free(&self, range: Range<u64>, free: impl FnOnce() -> Result<()>) -> Result<()> {
        self.forget(range.start);
        free().inspect_err(|_| {
            lock(&self.0).insert(range.start, range.end);
        })
    }
}

fn overlapping(live: &BTreeMap<u64, u64>, range: &Range<u64>) -> Option<Range<u64>> {
    let (start, end) = live.range(..range.end).next_back()?;
    (*end > range.start).then_some(*start..*end)
}

fn overlap(range: &Range<u64>, other: &Range<u64>) -> Error {
    Error::disagreement(
        format!("[{:#x}, {:#x}) is reserved already", other.start, other.end),
        format!("reserved [{:#x}, {:#x})", range.start, range.end),
    )
}
