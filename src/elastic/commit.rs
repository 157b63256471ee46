//! Committing: blocks for what is not backed, all or none of them.

use std::ops::Range;

use super::{Committed, Contents, ElasticRange, Made};
use crate::error::{Error, NotUndone, Result};
use crate::handle::Handle;

impl ElasticRange {
    /// Commits `[offset, offset + size)`: what of it is not backed gets blocks, each the largest that fits, and all are
    /// granted what the policy says (`cuMemCreate`, `cuMemMap`, `cuMemSetAccess`).
    ///
    /// Bytes that are committed already keep their contents; where that is all of them, nothing is done and no driver
    /// call is made.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Misaligned`],
    /// [`Error::Quarantined`], and [`Error::NoAccess`] where zeroes were promised and the policy lets no device write
    /// them. [`Error::CommitOutOfMemory`], after the cache was emptied and memory asked for once more; or another
    /// driver failure. The range is then as before.
    #[doc(alias = "cuMemCreate")]
    #[doc(alias = "cuMemMap")]
    #[doc(alias = "madvise")]
    pub fn commit(&mut self, offset: usize, size: usize) -> Result<Committed> {
        let asked = self.whole(offset, size)?;
        let granules = self.in_granules(&asked);
        let Some(first) = self.granules.first_unset(granules.clone()) else {
            return Ok(Committed::default());
        };
        self.check_commit(&asked, first)?;
        self.make(&asked)
            .or_else(|error| self.make_again(&asked, error))?;
        let mut done = Committed {
            bytes: self.granules.set(granules) * self.granule,
            ..Committed::default()
        };
        for made in self.made.drain(..) {
            done.blocks += 1;
            done.mapped += made.block.len();
            done.from_cache += usize::from(made.cached) * made.block.len();
        }
        self.retained += done.mapped;
        Ok(done)
    }

    /// What can be known to fail. There is a granule to commit, `first`.
    fn check_commit(&self, asked: &Range<usize>, first: usize) -> Result<()> {
        let mut rest = asked.clone();
        while let Some(mapping) = self.reservation.first_mapping_in(&rest) {
            if mapping.is_quarantined() {
                return Err(Error::Quarantined {
                    mapping: mapping.range(),
                });
            }
            rest.start = mapping.end();
        }
        if self.contents != Contents::Unspecified && !self.reservation.policy_writes() {
            return Err(Error::NoAccess {
                range: first * self.granule..asked.end,
                verb: "write",
            });
        }
        Ok(())
    }

    /// Makes blocks for what is not backed, and fills what has to be. On failure there is nothing of it left.
    fn make(&mut self, asked: &Range<usize>) -> Result<()> {
        self.made.clear();
        let made = self
            .lay(asked)
            .and_then(|()| self.grant_made())
            .and_then(|()| self.zero(asked));
        made.map_err(|error| self.unmake(error))
    }

    /// After an out-of-memory: empties the cache and tries once more.
    fn make_again(&mut self, asked: &Range<usize>, error: Error) -> Result<()> {
        if !error.is_out_of_memory() || !error.undo_failures().is_empty() {
            return Err(error);
        }
        let cached = self.cache.bytes();
        let again = match self.cache.shrink(0) {
            Ok(()) if cached > 0 => self.make(asked),
            Ok(()) => Err(error),
            Err(release) => Err(error.with_undo(vec![release])),
        };
        again.map_err(|error| {
            let slots = self.bounds.slots(asked);
            self.out_of_memory(error, self.unbacked(slots), cached - self.cache.bytes())
        })
    }

    /// A refused creation, told in the numbers of the whole operation; other errors stay what they are.
    pub(super) fn out_of_memory(&self, error: Error, asked: usize, cached: usize) -> Error {
        if !matches!(error.first(), Error::OutOfMemory { .. }) {
            return error;
        }
        let NotUndone { mut undo, .. } = error.into_parts();
        let location = self.props.location();
        let driver = self.reservation.driver();
        let free = location.device().and_then(|ordinal| {
            driver
                .device(ordinal)
                .and_then(|it| it.free_memory())
                .map_err(|error| {
                    // That it could not be asked is no matter, but that a context could not be left is.
                    if !error.undo_failures().is_empty() {
                        undo.push(error);
                    }
                })
                .ok()
        });
        Error::CommitOutOfMemory {
            asked,
            free,
            cached,
            location,
        }
        .with_undo(undo)
    }

    /// How many bytes of these slots have no block.
    fn unbacked(&self, slots: Range<usize>) -> usize {
        let (mut rest, mut bytes) = (slots, 0);
        while let Some(gap) = self.reservation.first_gap(rest.clone()) {
            bytes += gap.len();
            rest.start = gap.end;
        }
        bytes
    }

    fn lay(&mut self, asked: &Range<usize>) -> Result<()> {
        let mut rest = self.bounds.slots(asked);
        while let Some(gap) = self.reservation.first_gap(rest.clone()) {
            rest.start = gap.end;
            for block in self.bounds.cover(gap) {
                let (handle, cached) = match self.cache.take(block.len()) {
                    Some(handle) => (handle, true),
                    None => (Handle::create(&self.props, block.len())?, false),
                };
                if let Err(refused) = self.reservation.lay(block.start, handle) {
                    let undo = self.take_back(refused.handle, cached);
                    return Err(refused.error.with_undo(undo.into_iter().collect()));
                }
                self.made.push(Made { block, cached });
            }
        }
        Ok(())
    }

    /// Grants over each row of new blocks at once.
    fn grant_made(&self) -> Result<()> {
        let mut rows = self.made.iter().map(|made| made.block.clone()).peekable();
        while let Some(mut row) = rows.next() {
            while let Some(next) = rows.next_if(|next| next.start == row.end) {
                row.end = next.end;
            }
            self.reservation.grant_policy(&row, self.props.location())?;
        }
        Ok(())
    }

    /// Fills what is to be committed, if that was promised: of the blocks that are new from the driver only if it is
    /// not trusted.
    fn zero(&mut self, asked: &Range<usize>) -> Result<()> {
        if self.contents == Contents::Unspecified {
            return Ok(());
        }
        let trusted = self.contents == Contents::ZeroedUnlessFresh;
        for gap in self.granules.gaps(self.in_granules(asked)) {
            let mut gap = gap.start * self.granule..gap.end * self.granule;
            let end = gap.end;
            // The new blocks stand by offset.
            let first = self
                .made
                .partition_point(|made| made.block.end <= gap.start);
            let within = self.made[first..]
                .iter()
                .take_while(|made| made.block.start < end);
            for fresh in within.filter(|made| trusted && !made.cached) {
                let stale = gap.start..fresh.block.start;
                if !stale.is_empty() {
                    self.reservation.fill(stale.start, stale.len(), 0)?;
                }
                gap.start = gap.start.max(fresh.block.end).min(gap.end);
            }
            if !gap.is_empty() {
                self.reservation.fill(gap.start, gap.len(), 0)?;
            }
        }
        Ok(())
    }

    /// Takes the new blocks down again, in reverse.
    fn unmake(&mut self, error: Error) -> Error {
        let mut undo = Vec::new();
        while let Some(Made { block, cached }) = self.made.pop() {
            match self.reservation.unlay(block.start) {
                Ok(handle) => undo.extend(self.take_back(handle, cached)),
                // In quarantine, where it is counted among what is retained until it can be unmapped.
                Err(error) => {
                    self.retained += block.len();
                    undo.push(error);
                }
            }
        }
        error.with_undo(undo)
    }

    /// Puts a handle back where it came from.
    fn take_back(&mut self, handle: Option<Handle>, cached: bool) -> Option<Error> {
        let handle = handle?;
        if cached {
            self.cache.put(handle);
            return None;
        }
        self.reservation.release(handle).err()
    }
}
