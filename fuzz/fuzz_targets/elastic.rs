//! An elastic range against a model that lists granules, blocks and cached blocks one by one: which blocks a commit
//! makes, which ones a decommit takes and what it keeps, what the cache holds, and that what failed changed nothing.
#![no_main]

use std::collections::BTreeMap;
use std::ops::Range;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::CUresult;
use cuda_vmm::{AllocationProps, Decommitted, Device, Driver, ElasticRange, Error, Fence, Resized};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const G: usize = 2 << 20;

#[derive(Debug, Arbitrary)]
struct Setting {
    slots: u8,
    /// Powers of two, in granules.
    least: u8,
    more: u8,
    /// In granules.
    cache: u8,
    memory: u16,
}

#[derive(Debug, Arbitrary)]
enum Op {
    Commit(u8, u8),
    Decommit(u8, u8),
    Split(u8, u8),
    Resize(u8),
    Trim(u8),
}

#[derive(Debug, Arbitrary)]
struct Step {
    op: Op,
    /// Which of its driver calls fails.
    fault: Option<(u8, bool)>,
}

/// All in granules.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    committed: Vec<bool>,
    /// Start to length.
    blocks: BTreeMap<usize, usize>,
    /// Lengths, the oldest first.
    cache: Vec<usize>,
    bound: usize,
    least: usize,
    greatest: usize,
}

/// What a commit does: granules, blocks, their granules, those from the cache.
type Made = (usize, usize, usize, usize);

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

    fn commit(&mut self, asked: Range<usize>) -> Made {
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
    fn decommit(&mut self, asked: Range<usize>, split: bool) -> (usize, usize, Vec<Range<usize>>) {
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

    fn shrink(&mut self, to: usize) {
        while self.cached() > to {
            self.cache.remove(0);
        }
    }

    fn count(&self) -> usize {
        self.committed.iter().filter(|one| **one).count()
    }

    fn len(&self) -> usize {
        self.committed
            .iter()
            .rposition(|one| *one)
            .map_or(0, |last| last + 1)
    }

    fn retained(&self) -> usize {
        self.blocks.values().sum()
    }

    fn cached(&self) -> usize {
        self.cache.iter().sum()
    }

    fn runs(&self) -> Vec<Range<usize>> {
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

/// The range, its model, and what surrounds them.
struct World {
    sim: Simulation,
    device: Device,
    kv: ElasticRange,
    model: Model,
    memory: usize,
    /// Whether a call of the step in play was made to fail, or will be.
    faulty: bool,
    /// Whether the driver did not take a handle back, so that more is in use than the range says.
    stuck: bool,
    /// Whether all that failed could be undone. If not, the program ends.
    undone: bool,
}

impl World {
    fn agree(&self) {
        let (kv, model) = (&self.kv, &self.model);
        assert!(kv
            .runs()
            .map(|run| run.start / G..run.end / G)
            .eq(model.runs()));
        let blocks = kv.reservation().mappings();
        let blocks = blocks.map(|block| (block.offset() / G, block.size() / G));
        assert!(
            blocks.eq(model.blocks.clone()),
            "{}\n{model:?}",
            kv.reservation()
        );
        assert_eq!(kv.committed_bytes(), model.count() * G);
        assert_eq!(kv.retained_bytes(), model.retained() * G);
        assert_eq!(kv.cached_bytes(), model.cached() * G);
        assert_eq!(kv.len(), model.len() * G);
        assert_eq!(kv.is_empty(), model.count() == 0);
        let free = self.device.free_memory().unwrap();
        let expected = (self.memory + 1 - model.retained() - model.cached()) * G;
        assert!(
            free == expected || self.stuck && free < expected,
            "{free}, not {expected}"
        );
    }

    /// After a failure all is as before but for the cache, which is emptied so that it is known again.
    fn failed(&mut self, before: Model, error: &Error) {
        assert!(self.faulty || error.is_out_of_memory(), "{error}");
        if !error.undo_failures().is_empty() {
            // Out of memory, and then the undoing was what was made to fail: it is left to `close`.
            assert!(self.faulty, "{error:?}");
            self.undone = false;
            return;
        }
        self.model = before;
        assert!(self.kv.cached_bytes() <= self.model.cached() * G);
        self.kv.trim(0).unwrap();
        self.model.cache.clear();
    }

    fn gone(
        &self,
        before: &Model,
        asked: Range<usize>,
        done: &Decommitted,
        expected: (usize, usize, Vec<Range<usize>>),
    ) {
        let (released, cached, kept) = expected;
        let committed = before.committed[asked].iter().filter(|one| **one).count();
        assert_eq!(done.bytes, committed * G);
        assert_eq!((done.released, done.cached), (released * G, cached * G));
        assert!(done
            .kept()
            .map(|part| part.start / G..part.end / G)
            .eq(kept));
    }

    fn play(&mut self, step: Step) {
        let size = self.model.committed.len();
        let part = |start: u8, len: u8| {
            let start = start as usize % size;
            start..(start + 1 + len as usize % size).min(size)
        };
        self.faulty = step.fault.is_some();
        if let Some((nth, out_of_memory)) = step.fault {
            let code = match out_of_memory {
                true => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
                false => CUresult::CUDA_ERROR_NOT_PERMITTED,
            };
            self.sim
                .inject(Fault::any_nth(1 + u64::from(nth) % 24).code(code))
                .unwrap();
        }
        let before = self.model.clone();
        match step.op {
            Op::Commit(start, len) => self.commit(before, part(start, len)),
            Op::Decommit(start, len) => self.decommit(before, part(start, len), false),
            Op::Split(start, len) => self.decommit(before, part(start, len), true),
            Op::Resize(len) => self.resize(before, len as usize % (size + 1)),
            Op::Trim(to) => {
                let had = self.model.cached();
                self.model.shrink(to as usize);
                match self.kv.trim(to as usize * G) {
                    Ok(bytes) => assert_eq!(bytes, (had - self.model.cached()) * G),
                    Err(error) => self.failed(before, &error),
                }
            }
        }
        self.sim.clear_faults();
        if self.undone {
            self.agree();
        }
    }

    fn commit(&mut self, before: Model, asked: Range<usize>) {
        let (bytes, blocks, mapped, from_cache) = self.model.commit(asked.clone());
        let done = self.kv.commit(asked.start * G, asked.len() * G);
        let fits = before.retained() + before.cached() + mapped - from_cache <= self.memory;
        let fits_without_cache = self.model.retained() <= self.memory;
        match done {
            Ok(done) => {
                assert_eq!(
                    (done.bytes, done.blocks, done.mapped),
                    (bytes * G, blocks, mapped * G)
                );
                // Out of memory, or said to be: the cache is empty then, and all blocks were made anew.
                let anew =
                    done.from_cache == 0 && self.kv.cached_bytes() == 0 && before.cached() > 0;
                if anew && (self.faulty || !fits) {
                    assert!(fits_without_cache);
                    self.model.cache.clear();
                } else {
                    assert!(fits);
                    assert_eq!(done.from_cache, from_cache * G);
                }
            }
            Err(error) => {
                let short = !self.stuck && !self.faulty;
                assert!(
                    !short || !fits_without_cache && error.is_out_of_memory(),
                    "{error}"
                );
                self.failed(before, &error);
            }
        }
    }

    fn decommit(&mut self, before: Model, asked: Range<usize>, split: bool) {
        let expected = self.model.decommit(asked.clone(), split);
        let (offset, bytes) = (asked.start * G, asked.len() * G);
        let done = match split {
            true => {
                self.kv
                    .decommit_splitting(offset, bytes, Fence::closure(|_| Ok::<(), Error>(())))
            }
            false => self.kv.decommit(offset, bytes),
        };
        match done {
            Ok(done) => self.gone(&before, asked, &done, expected),
            // The split is done, but for a handle that the driver did not take back.
            Err(error @ Error::NotUndone(_)) if split && error.undo_failures().is_empty() => {
                assert!(self.faulty, "{error}");
                self.stuck = true;
            }
            Err(error) => self.failed(before, &error),
        }
        // A split that ran short has emptied the cache of what was there before.
        if split && self.undone && self.kv.cached_bytes() < self.model.cached() * G {
            self.kv.trim(0).unwrap();
            self.model.cache.clear();
        }
    }

    fn resize(&mut self, before: Model, to: usize) {
        let from = before.len();
        if to > from {
            return self.commit(before, from..to);
        }
        if to == from {
            assert_eq!(self.kv.resize(to * G).unwrap(), Resized::Unchanged);
            return;
        }
        let done = self.kv.resize(to * G);
        if to > 0 && !before.committed[to - 1] {
            let Err(Error::NotCommitted { gap, .. }) = done else {
                panic!("a hole ends at {to}: {done:?}");
            };
            assert_eq!(gap.end, to * G);
            return;
        }
        let expected = self.model.decommit(to..from, false);
        match done {
            Ok(Resized::Shrunk(done)) => self.gone(&before, to..from, &done, expected),
            Ok(other) => panic!("{other:?}"),
            Err(error) => self.failed(before, &error),
        }
    }
}

fuzz_target!(|program: (Setting, Vec<Step>)| {
    let (setting, steps) = program;
    let least = 1 << (setting.least % 5);
    let greatest = least << (setting.more % 5);
    let size = least * (1 + setting.slots as usize % 96);
    let memory = 1 + setting.memory as usize % (2 * size);
    // Of a device's memory the last byte cannot be had.
    let device = SimDevice::new().memory(((memory + 1) * G) as u64);
    let sim = Simulation::builder()
        .device(device)
        .ledger_only()
        .build()
        .unwrap();
    let driver = Driver::simulated(&sim).unwrap();
    let device = driver.device(0).unwrap();
    let bound = (setting.cache as usize).min(memory);
    let kv = ElasticRange::builder(size * G, &AllocationProps::on(&device))
        .access(&device, cuda_vmm::Access::ReadWrite)
        .blocks(least * G..=greatest * G)
        .cache(bound * G)
        .reserve()
        .unwrap();
    let model = Model {
        committed: vec![false; size],
        blocks: BTreeMap::new(),
        cache: Vec::new(),
        bound,
        least,
        greatest,
    };
    let mut world = World {
        sim,
        device,
        kv,
        model,
        memory,
        faulty: false,
        stuck: false,
        undone: true,
    };
    world.agree();
    for step in steps.into_iter().take(100) {
        world.play(step);
        if !world.undone {
            break;
        }
    }
    world.kv.close().unwrap();
    assert!(world.sim.snapshot().holds_no_memory());
});
