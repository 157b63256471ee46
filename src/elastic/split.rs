//! Decommitting with blocks split: what survives of a block moves to smaller ones, and the block goes.
//!
//! The new blocks are made and filled first, beside the range. Then each old one is unmapped and the new ones are
//! mapped in its place; the old handle is held until the end, so that it can be mapped again if anything fails. Nothing
//! may use the block meanwhile, which is why the caller gives a fence.

use std::ops::Range;

use super::decommit::Plan;
use super::{Decommitted, ElasticRange};
use crate::access::Access;
use crate::allocation::Allocation;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::handle::Handle;
use crate::location::Location;
use crate::mapping::Mapping;
use crate::reservation::Reservation;

/// A block to be split.
struct Edge {
    block: Range<usize>,
    /// Runs of slots of which something survives.
    slots: Vec<Range<usize>>,
    /// What survives.
    survivors: Vec<Range<usize>>,
    /// The devices that may read it.
    readers: Vec<Location>,
}

/// A block that has been replaced.
struct Replaced {
    old: Mapping,
    new: Vec<Range<usize>>,
}

type Piece = (Range<usize>, Handle);

impl ElasticRange {
    /// [`decommit`](Self::decommit), once the fence is passed, which also gives back what a block would have to keep:
    /// such a block is replaced by smaller ones, no smaller than the least, to which the device copies what is still
    /// committed of it.
    ///
    /// While that is done the block is unmapped for a moment, what survives of it included: **nothing may use any byte
    /// of the blocks at the ends of the range**, and the fence says when that is so. (To vouch for it oneself, there is
    /// [`Fence::closure`] that returns at once.) It takes as much memory as survives, for as long as it lasts.
    ///
    /// ```
    /// # use cuda_vmm::{sim::Simulation, Access, AllocationProps, Driver, ElasticRange, Fence};
    /// # let driver = Driver::simulated(&Simulation::new())?;
    /// # let device = driver.device(0)?;
    /// # let mut kv = ElasticRange::builder(1 << 30, &AllocationProps::on(&device))
    /// #     .access(&device, Access::ReadWrite)
    /// #     .reserve()?;
    /// kv.commit(0, 32 << 20)?; // one block
    /// let fence = Fence::default_stream(&device);
    /// let gone = kv.decommit_splitting(4 << 20, 28 << 20, fence)?;
    /// assert_eq!(gone.released, 28 << 20);
    /// assert_eq!(kv.retained_bytes(), 4 << 20);
    /// # kv.close()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Before any driver call: as `decommit`, [`Error::BlockKnownOutside`], [`Error::Quarantined`], and
    /// [`Error::NoAccess`] where no device may read what survives. Then as [`decommit_after`](Self::decommit_after),
    /// and [`Error::CommitOutOfMemory`]. Everything is then as before, with two exceptions, both [`Error::NotUndone`]:
    /// a split that is done, but whose old handle the driver did not release (it is kept for `close`); and one that
    /// could not be undone because a new block could not be unmapped: what survived of the old block is then no longer
    /// committed, and its memory is kept for `close`.
    #[doc(alias = "cuMemUnmap")]
    pub fn decommit_splitting(
        &mut self,
        offset: usize,
        size: usize,
        fence: Fence<'_>,
    ) -> Result<Decommitted> {
        let asked = self.whole(offset, size)?;
        let plan = self.plan(&asked);
        let edges = self.edges(&asked, &plan)?;
        fence.wait()?;
        let mut made: Vec<(Edge, Vec<Piece>)> = Vec::with_capacity(edges.len());
        for edge in edges {
            match self.move_survivors(&edge) {
                Ok(pieces) => made.push((edge, pieces)),
                Err(error) => {
                    let pieces = made.into_iter().rev().flat_map(|(_, pieces)| pieces);
                    return Err(error.with_undo(self.release_all(pieces)));
                }
            }
        }
        let replaced = self.replace_all(made)?;
        let mut done = match self.lift(plan.gone) {
            Ok(done) => done,
            Err(error) => return Err(self.restore(replaced, error)),
        };
        done.bytes = self.granules.clear(self.in_granules(&asked)) * self.granule;
        let mut late = Vec::new();
        for Replaced { mut old, new } in replaced {
            let new: usize = new.iter().map(Range::len).sum();
            self.retained -= old.size() - new;
            done.released += old.size() - new;
            let handle = old.take_handle();
            late.extend(handle.and_then(|handle| self.reservation.release(handle).err()));
        }
        done.kept = self.still_mapped(&asked);
        Error::left_over(late).map(|()| done)
    }

    /// The blocks that are worth splitting, if they can be.
    fn edges(&self, asked: &Range<usize>, plan: &Plan) -> Result<Vec<Edge>> {
        let mut edges = Vec::new();
        for part in plan.kept.iter().flatten() {
            let Some(mapping) = self.reservation.mapping_at(part.start) else {
                continue;
            };
            let block = mapping.range();
            let sides = [block.start..asked.start, asked.end..block.end];
            let sides = sides.iter().filter(|side| side.start < side.end);
            let runs = sides.flat_map(|side| self.granules.runs(self.in_granules(side)));
            let survivors: Vec<_> = runs
                .map(|run| run.start * self.granule..run.end * self.granule)
                .collect();
            let slots = self.slots_of(&survivors);
            if slots.iter().map(Range::len).sum::<usize>() == block.len() {
                continue;
            }
            if mapping.is_quarantined() {
                return Err(Error::Quarantined { mapping: block });
            }
            if mapping.is_known_outside() {
                return Err(Error::BlockKnownOutside { block });
            }
            let mut readers = self.reservation.who_may(mapping, Access::Read);
            readers.retain(|location| location.device().is_some());
            if readers.is_empty() {
                return Err(Error::NoAccess {
                    range: block,
                    verb: "read",
                });
            }
            edges.push(Edge {
                block,
                slots,
                survivors,
                readers,
            });
        }
        Ok(edges)
    }

    /// The slots that have bytes in the runs, as runs themselves.
    fn slots_of(&self, runs: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut slots: Vec<Range<usize>> = Vec::new();
        for run in runs {
            let run = self.bounds.slots(run);
            match slots.last_mut().filter(|last| last.end >= run.start) {
                Some(last) => last.end = run.end,
                None => slots.push(run),
            }
        }
        slots
    }

    /// Makes the blocks for what survives of an edge and copies it there, with the help of other addresses.
    fn move_survivors(&mut self, edge: &Edge) -> Result<Vec<Piece>> {
        let total: usize = edge.slots.iter().map(Range::len).sum();
        let (mut made, mut cached) = (self.create_for(edge), 0);
        if matches!(&made, Err(error) if error.is_out_of_memory() && error.undo_failures().is_empty())
        {
            cached = self.cache.bytes();
            made = match self.cache.shrink(0) {
                Ok(()) if cached > 0 => self.create_for(edge),
                Ok(()) => made,
                Err(release) => made.map_err(|error| error.with_undo(vec![release])),
            };
            cached -= self.cache.bytes();
        }
        let made = made.map_err(|error| self.out_of_memory(error, total, cached))?;
        match self.copy_to(edge, total, &made) {
            Ok(()) => Ok(made
                .into_iter()
                .map(|(block, allocation)| match allocation.into_handle() {
                    Ok(handle) => (block, handle),
                    Err(_) => {
                        unreachable!("the other addresses are gone, and nobody else shares it")
                    }
                })
                .collect()),
            Err(error) => {
                let made = made.into_iter().map(|(_, allocation)| allocation);
                Allocation::settle_all(made, Err(error))
            }
        }
    }

    fn create_for(&self, edge: &Edge) -> Result<Vec<(Range<usize>, Allocation)>> {
        let mut made: Vec<(Range<usize>, Allocation)> = Vec::new();
        for block in edge
            .slots
            .iter()
            .flat_map(|run| self.bounds.cover(run.clone()))
        {
            match Allocation::create(&self.props, block.len()) {
                Ok(allocation) => made.push((block, allocation)),
                Err(error) => {
                    let made = made.into_iter().map(|(_, allocation)| allocation);
                    return Allocation::settle_all(made, Err(error));
                }
            }
        }
        Ok(made)
    }

    /// Copies what survives of an edge to new memory, which is mapped elsewhere for that.
    fn copy_to(
        &self,
        edge: &Edge,
        total: usize,
        made: &[(Range<usize>, Allocation)],
    ) -> Result<()> {
        let readers = edge.readers.iter();
        let builder = readers.fold(Reservation::builder(total), |builder, reader| {
            builder.access(*reader, Access::ReadWrite)
        });
        let mut aside = builder.reserve(self.reservation.driver())?;
        let mut at = 0;
        let mut places = Vec::with_capacity(made.len());
        for (block, allocation) in made {
            places.push((at, allocation));
            at += block.len();
        }
        // Where the bytes at an offset of the range are, aside.
        let place = |offset: usize| -> usize {
            let before = edge.slots.iter().take_while(|run| run.start <= offset);
            before.map(|run| run.end.min(offset) - run.start).sum()
        };
        let copied = aside.map_all(&places).and_then(|_| {
            edge.survivors.iter().try_for_each(|run| {
                aside.copy_from(place(run.start), &self.reservation, run.start, run.len())
            })
        });
        close_aside(aside, copied)
    }

    /// Puts new blocks in the place of old ones.
    fn replace_all(&mut self, made: Vec<(Edge, Vec<Piece>)>) -> Result<Vec<Replaced>> {
        let mut replaced = Vec::with_capacity(made.len());
        let mut made = made.into_iter();
        while let Some((edge, pieces)) = made.next() {
            if let Err(error) = self.replace(&edge, pieces, &mut replaced) {
                let error = self.restore(replaced, error);
                let rest = made.flat_map(|(_, pieces)| pieces);
                return Err(error.with_undo(self.release_all(rest)));
            }
        }
        Ok(replaced)
    }

    fn replace(
        &mut self,
        edge: &Edge,
        pieces: Vec<Piece>,
        replaced: &mut Vec<Replaced>,
    ) -> Result<()> {
        let old = match self.reservation.take_out(edge.block.start) {
            Ok(Some(old)) => old,
            Ok(None) => unreachable!("the block was there when the split was planned"),
            Err(error) => {
                let undo = self.release_all(pieces.into_iter());
                return Err(error.with_undo(undo));
            }
        };
        let mut pieces = pieces.into_iter();
        let mut new = Vec::with_capacity(pieces.len());
        let mut laid = Ok(());
        while let Some((block, handle)) = pieces.next().filter(|_| laid.is_ok()) {
            match self.reservation.lay(block.start, handle) {
                Ok(()) => new.push(block),
                Err(refused) => {
                    let rest = refused.handle.map(|handle| (block, handle));
                    let undo = self.release_all(rest.into_iter().chain(pieces.by_ref()));
                    laid = Err(refused.error.with_undo(undo));
                }
            }
        }
        let granted = laid.and_then(|()| {
            let mut rows = edge.slots.iter();
            rows.try_for_each(|row| self.reservation.grant_as(row, &old))
        });
        replaced.push(Replaced { old, new });
        granted
    }

    fn release_all(&mut self, pieces: impl Iterator<Item = Piece>) -> Vec<Error> {
        pieces
            .filter_map(|(_, new)| self.reservation.release(new).err())
            .collect()
    }

    /// Puts the old blocks back in the place of the new ones.
    fn restore(&mut self, replaced: Vec<Replaced>, error: Error) -> Error {
        let mut undo = Vec::new();
        for Replaced { mut old, new } in replaced.into_iter().rev() {
            let mut stuck = 0;
            for block in new.into_iter().rev() {
                match self.reservation.unlay(block.start) {
                    Ok(handle) => {
                        undo.extend(handle.and_then(|new| self.reservation.release(new).err()));
                    }
                    Err(error) => {
                        stuck += block.len();
                        undo.push(error);
                    }
                }
            }
            if stuck == 0 {
                undo.extend(self.reservation.put_in(old).err());
                continue;
            }
            // Something of the new is in the way: there is no memory where the old block was committed.
            let granules = self.in_granules(&old.range());
            self.granules.clear(granules);
            self.retained -= old.size() - stuck;
            self.reservation.take_over(old.take_handle().into_iter());
        }
        error.with_undo(undo)
    }

    /// The parts of a range that are mapped: at its ends, if at all.
    fn still_mapped(&self, asked: &Range<usize>) -> [Option<Range<usize>>; 2] {
        let mut rest = asked.clone();
        let mut part = || {
            let mapping = self.reservation.first_mapping_in(&rest)?;
            let part = rest.start.max(mapping.offset())..rest.end.min(mapping.end());
            rest.start = part.end;
            Some(part)
        };
        [part(), part()]
    }
}

/// Ends a copy by closing the other addresses, at the second attempt if the first fails; what then is left stays with
/// the driver.
fn close_aside(aside: Reservation, copied: Result<()>) -> Result<()> {
    let Err(unclosed) = aside.close() else {
        return copied;
    };
    let refused = unclosed.error.with_undo(unclosed.further);
    let error = match copied {
        Ok(()) => refused,
        Err(error) => error.with_undo(vec![refused]),
    };
    let Err(again) = unclosed.reservation.into_inner().close() else {
        return Err(error);
    };
    let refused = again.error.with_undo(again.further);
    let left = again.reservation.into_inner();
    Err(left.surrender(error.with_undo(vec![refused])))
}
