//! What an elastic range is thought to be: granules, blocks and cached blocks, each in a list, and no arithmetic on bits.

use std::collections::BTreeMap;
use std::ops::Range;

/// All in granules.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub committed: Vec<bool>,
    /// Start to length.
    pub blocks: BTreeMap<usize, usize>,
    /// Lengths, the oldest first.
    pub cache: Vec<usize>,
    pub bound: usize,
    pub least: usize,
    pub greatest: usize,
}

/// What a commit does: granules, blocks, their granules, those from the cache.
pub type Made = (usize, usize, usize, usize);

impl Model {
    fn block_at(&self, granule: usize) -> Option<Range<usize>> {
        let (start, len) = self.blocks.range(..=granule).next_back()?;
        Some(*start..start + len).filter(|block| block.contains(&granule))
    }

    /// Halves a window until what is left of it is all free or all taken: from the largest blocks down.
    fn divide(
        &self,
        window: Range<usize>,
        wanted: &dyn Fn(usize) -> bool,
        out: &mut Vec<Range<usize>>,
    ) {
        if window.clone().all(wanted) {
            out.push(window);
        } else if window.len() > self.least && window.clone().any(wanted) {
            let middle = window.start + window.len() / 2;
            self.divide(window.start..middle, wanted, out);
            self.divide(middle..window.end, wanted, out);
        }
    }

    /// The blocks over all the slots for which this holds.
    fn blocks_for(&self, wanted: &dyn Fn(usize) -> bool) -> Vec<Range<usize>> {
        let mut out = Vec::new();
        let mut start = 0;
        while start < self.committed.len() {
            self.divide(start..start + self.greatest, wanted, &mut out);
            start += self.greatest;
        }
        out
    }

    fn slot_of(&self, granule: usize) -> Range<usize> {
        let start = granule / self.least * self.least;
        start..start + self.least
    }

    fn touches(&self, slot: &Range<usize>, asked: &Range<usize>) -> bool {
        slot.start < asked.end && asked.start < slot.end
    }

    pub fn commit(&mut self, asked: Range<usize>) -> Made {
        let before = self.count();
        let (mut blocks, mut mapped, mut from_cache) = (0, 0, 0);
        if !asked.clone().all(|granule| self.committed[granule]) {
            let free = |granule: usize| {
                granule < self.committed.len()
                    && self.touches(&self.slot_of(granule), &asked)
                    && self.block_at(granule).is_none()
            };
            for block in self.blocks_for(&free) {
                blocks += 1;
                mapped += block.len();
                if let Some(at) = self.cache.iter().rposition(|kept| *kept == block.len()) {
                    from_cache += self.cache.remove(at);
                }
                self.blocks.insert(block.start, block.len());
            }
        }
        self.committed[asked].fill(true);
        (self.count() - before, blocks, mapped, from_cache)
    }

    /// Blocks that lose something, and whether anything of each survives.
    fn hit(&self, asked: &Range<usize>) -> Vec<(Range<usize>, bool)> {
        let blocks = self.blocks.iter().map(|(start, len)| *start..start + len);
        let hit = blocks.filter(|block| self.touches(block, asked));
        hit.map(|block| {
            let survives = block
                .clone()
                .any(|one| self.committed[one] && !asked.contains(&one));
            (block, survives)
        })
        .collect()
    }

    /// What is released, cached and kept.
    pub fn decommit(
        &mut self,
        asked: Range<usize>,
        split: bool,
    ) -> (usize, usize, Vec<Range<usize>>) {
        let (mut released, mut newly, mut kept) = (0, Vec::new(), Vec::new());
        for (block, survives) in self.hit(&asked) {
            if !survives {
                self.blocks.remove(&block.start);
                if newly.iter().sum::<usize>() + block.len() <= self.bound {
                    newly.push(block.len());
                } else {
                    released += block.len();
                }
                continue;
            }
            let survivor =
                |one: usize| block.contains(&one) && self.committed[one] && !asked.contains(&one);
            let slots: Vec<usize> = block
                .clone()
                .filter(|one| self.slot_of(*one).any(survivor))
                .collect();
            if split && slots.len() < block.len() {
                released += block.len() - slots.len();
                let pieces = self.blocks_for(&|one| slots.contains(&one));
                self.blocks.remove(&block.start);
                self.blocks
                    .extend(pieces.into_iter().map(|piece| (piece.start, piece.len())));
            }
        }
        for (block, _) in self.hit(&asked) {
            kept.push(block.start.max(asked.start)..block.end.min(asked.end));
        }
        let cached = newly.iter().sum();
        self.shrink(self.bound - cached);
        self.cache.extend(newly);
        self.committed[asked].fill(false);
        (released, cached, kept)
    }

    pub fn shrink(&mut self, to: usize) {
        while self.cached() > to {
            self.cache.remove(0);
        }
    }

    pub fn count(&self) -> usize {
        self.committed.iter().filter(|one| **one).count()
    }

    pub fn len(&self) -> usize {
        self.committed
            .iter()
            .rposition(|one| *one)
            .map_or(0, |last| last + 1)
    }

    pub fn retained(&self) -> usize {
        self.blocks.values().sum()
    }

    pub fn cached(&self) -> usize {
        self.cache.iter().sum()
    }

    pub fn runs(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (at, _) in self.committed.iter().enumerate().filter(|(_, one)| **one) {
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end += 1,
                None => runs.push(at..at + 1),
            }
        }
        runs
    }
}
