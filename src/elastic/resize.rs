//! Plain growth and shrinkage at the end.

use super::{ElasticRange, Resized};
use crate::error::Result;
use crate::fence::Fence;

impl ElasticRange {
    /// Makes the committed bytes end at `len`: a greater length than [`len`](Self::len) commits what lies between, a
    /// smaller one decommits it. Holes that were decommitted further down stay holes.
    ///
    /// Does not wait for work that uses the memory: see [work in flight](ElasticRange#work-in-flight).
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit) and [`decommit`](Self::decommit), but any length up to the size of the range will do
    /// that is a multiple of the granularity, 0 included.
    pub fn resize(&mut self, len: usize) -> Result<Resized> {
        match self.len() {
            old if len > old => self.commit(old, len - old).map(Resized::Grown),
            old if len < old => self.decommit(len, old - len).map(Resized::Shrunk),
            _ => Ok(Resized::Unchanged),
        }
    }

    /// [`resize`](Self::resize), once the fence is passed if the range is to become shorter. Growing takes nothing from
    /// anybody, and so waits for nothing.
    ///
    /// # Errors
    ///
    /// As `resize` and [`decommit_after`](Self::decommit_after).
    pub fn resize_after(&mut self, len: usize, fence: Fence<'_>) -> Result<Resized> {
        match self.len() {
            old if len < old => self
                .decommit_after(len, old - len, fence)
                .map(Resized::Shrunk),
            _ => self.resize(len),
        }
    }
}
