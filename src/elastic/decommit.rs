//! Decommitting: whole blocks go, and what has to stay is told.

use std::ops::Range;

use super::{Decommitted, ElasticRange};
use crate::error::Result;
use crate::fence::Fence;
use crate::mapping::Mapping;

/// What becomes of the blocks beneath a range that is decommitted.
pub(super) struct Plan {
    /// The blocks that lie in here go, all of them.
    pub(super) gone: Range<usize>,
    /// The parts of the range that stay mapped.
    pub(super) kept: [Option<Range<usize>>; 2],
}

/// Room in the cache, as it is given to one block after the other.
struct Room(usize);

impl ElasticRange {
    /// Decommits `[offset, offset + size)`: blocks of which nothing is committed any more are unmapped, and released or
    /// cached (`cuMemUnmap`, `cuMemRelease`). What of a block had to stay is in the answer.
    ///
    /// What is not committed is passed over, and not counted.
    ///
    /// Does not wait for work that uses the memory: see [work in flight](ElasticRange#work-in-flight).
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`](crate::Error::ZeroSize),
    /// [`Error::Overflow`](crate::Error::Overflow), [`Error::OutOfRange`](crate::Error::OutOfRange),
    /// [`Error::Misaligned`](crate::Error::Misaligned). A driver failure leaves everything committed and mapped, over
    /// however many blocks; only the cache may have been trimmed to make room.
    #[doc(alias = "cuMemUnmap")]
    #[doc(alias = "madvise")]
    pub fn decommit(&mut self, offset: usize, size: usize) -> Result<Decommitted> {
        let asked = self.whole(offset, size)?;
        self.decommit_whole(asked)
    }

    /// [`decommit`](Self::decommit), once the fence is passed.
    ///
    /// # Errors
    ///
    /// As `decommit`, whose checks come before the wait; [`Error::DeadlinePassed`](crate::Error::DeadlinePassed),
    /// [`Error::WaitFailed`](crate::Error::WaitFailed) or a driver failure of the wait itself. In every case everything
    /// stays committed.
    #[doc(alias = "cuMemUnmap")]
    pub fn decommit_after(
        &mut self,
        offset: usize,
        size: usize,
        fence: Fence<'_>,
    ) -> Result<Decommitted> {
        let asked = self.whole(offset, size)?;
        fence.wait()?;
        self.decommit_whole(asked)
    }

    fn decommit_whole(&mut self, asked: Range<usize>) -> Result<Decommitted> {
        let Plan { gone, kept } = self.plan(&asked);
        let mut done = self.lift(gone)?;
        done.bytes = self.granules.clear(self.in_granules(&asked)) * self.granule;
        done.kept = kept;
        Ok(done)
    }

    /// Which blocks go. Those wholly inside the range do; those that reach out of it do if nothing outside is
    /// committed.
    pub(super) fn plan(&self, asked: &Range<usize>) -> Plan {
        let mut gone = asked.clone();
        let mut kept = [None, None];
        if let Some(block) = self.block_over(asked.start) {
            if self.survives(&block, asked) {
                let part = asked.start..asked.end.min(block.end);
                gone.start = part.end;
                kept[0] = Some(part);
            } else {
                gone.start = block.start;
            }
        }
        let last = self.block_over(asked.end - 1);
        if let Some(block) = last.filter(|block| block.end > asked.end && gone.start < asked.end) {
            if self.survives(&block, asked) {
                let part = asked.start.max(block.start)..asked.end;
                gone.end = part.start;
                kept[1] = Some(part);
            } else {
                gone.end = block.end;
            }
        }
        Plan { gone, kept }
    }

    fn block_over(&self, offset: usize) -> Option<Range<usize>> {
        self.reservation.mapping_at(offset).map(Mapping::range)
    }

    /// Whether anything of a block is committed outside the range.
    fn survives(&self, block: &Range<usize>, range: &Range<usize>) -> bool {
        [block.start..range.start, range.end..block.end]
            .into_iter()
            .filter(|part| part.start < part.end)
            .any(|part| self.granules.any(self.in_granules(&part)))
    }

    /// Takes all blocks out of a range that cuts none.
    pub(super) fn lift(&mut self, gone: Range<usize>) -> Result<Decommitted> {
        let mut done = Decommitted::default();
        let mut room = Room(self.cache.bound());
        let mut rest = gone.clone();
        while let Some(block) = self.reservation.first_mapping_in(&rest) {
            if room.takes(block) {
                done.cached += block.size();
            } else {
                done.released += block.size();
            }
            rest.start = block.end();
        }
        // What came here first goes first, and before anything that could not be undone.
        let bound = self.cache.bound();
        self.cache.shrink(bound - done.cached)?;
        let (cache, mut room) = (&mut self.cache, Room(bound));
        self.reservation
            .lift(gone, |block| room.takes(block), |handle| cache.put(handle))?;
        self.retained -= done.cached + done.released;
        Ok(done)
    }
}

impl Room {
    /// Whether a block is cached: if there is room, and if nobody else can come by its memory.
    fn takes(&mut self, block: &Mapping) -> bool {
        let fits = !block.is_quarantined() && !block.is_known_outside() && block.size() <= self.0;
        if fits {
            self.0 -= block.size();
        }
        fits
    }
}
