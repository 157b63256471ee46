//! Plain growth and shrinkage at the end.

use super::{ElasticRange, Resized};
use crate::error::{Error, Result, What};
use crate::fence::Fence;
use crate::range::aligned;

impl ElasticRange {
    /// Makes the committed bytes end at `len`: a greater length than [`len`](Self::len) commits what lies between, a
    /// smaller one decommits everything at or above it, wherever it was committed.
    ///
    /// This is for ranges that are committed from their start to their end. Holes that were decommitted further down
    /// stay holes; a range whose parts are committed here and there is told of each with [`commit`](Self::commit) and
    /// [`decommit`](Self::decommit).
    ///
    /// Does not wait for work that uses the memory: see [work in flight](ElasticRange#work-in-flight).
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit) and [`decommit`](Self::decommit), but any length up to the size of the range will do
    /// that is a multiple of the granularity, 0 included. [`Error::NotCommitted`], before any driver call, where a
    /// shorter range would not end at `len`, because a hole ends there; nothing is changed then.
    pub fn resize(&mut self, len: usize) -> Result<Resized> {
        let old = self.len();
        if len > old {
            return self.commit(old, len - old).map(Resized::Grown);
        }
        if len < old {
            self.can_end_at(len)?;
            return self.decommit(len, old - len).map(Resized::Shrunk);
        }
        Ok(Resized::Unchanged)
    }

    /// [`resize`](Self::resize), once the fence is passed if the range is to become shorter. Growing takes nothing from
    /// anybody, and so waits for nothing.
    ///
    /// # Errors
    ///
    /// As `resize` and [`decommit_after`](Self::decommit_after).
    pub fn resize_after(&mut self, len: usize, fence: Fence<'_>) -> Result<Resized> {
        let old = self.len();
        if len >= old {
            return self.resize(len);
        }
        self.can_end_at(len)?;
        self.decommit_after(len, old - len, fence)
            .map(Resized::Shrunk)
    }

    /// Whether the range ends at this length once everything behind it is gone: what lies before it is committed.
    fn can_end_at(&self, len: usize) -> Result<()> {
        aligned(What::Offset, len, self.granule)?;
        let end = len / self.granule;
        if end == 0 || self.granules.any(end - 1..end) {
            return Ok(());
        }
        let gaps = self.granules.gaps(0..end);
        let gap = gaps.last().unwrap_or(end - 1..end);
        Err(Error::NotCommitted {
            asked: 0..len,
            gap: gap.start * self.granule..gap.end * self.granule,
        })
    }
}
