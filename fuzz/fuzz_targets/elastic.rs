//! An elastic range against a model that lists granules, blocks and cached blocks one by one: which blocks a commit
//! makes, which ones a decommit takes and what it keeps, what the cache holds, what the bytes are, and that what failed
//! changed nothing.
#![no_main]

#[path = "elastic/model.rs"]
mod model;

use std::collections::BTreeMap;
use std::ops::Range;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::CUresult;
use cuda_vmm::{
    Access, AllocationProps, Contents, Decommitted, Device, Driver, ElasticRange, Error, Fence,
    Resized,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use model::Model;

/// Ranges of no more granules than this have their bytes looked at.
const FEW: usize = 96;

#[derive(Debug, Arbitrary)]
struct Setting {
    slots: u8,
    /// Powers of two, in granules.
    least: u8,
    more: u8,
    /// In granules.
    cache: u8,
    memory: u16,
    /// Of 2 MiB, or of 64 KiB.
    large_granules: bool,
    contents: u8,
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

/// The range, its model, and what surrounds them.
struct World {
    sim: Simulation,
    device: Device,
    kv: ElasticRange,
    model: Model,
    /// What fills each granule that is committed, where that is looked at.
    bytes: Vec<Option<u8>>,
    stamp: u8,
    /// Bytes of a granule.
    g: usize,
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
        let (kv, model, g) = (&self.kv, &self.model, self.g);
        assert!(kv
            .runs()
            .map(|run| run.start / g..run.end / g)
            .eq(model.runs()));
        let blocks = kv.reservation().mappings();
        let blocks = blocks.map(|block| (block.offset() / g, block.size() / g));
        assert!(
            blocks.eq(model.blocks.clone()),
            "{}\n{model:?}",
            kv.reservation()
        );
        assert_eq!(kv.committed_bytes(), model.count() * g);
        assert_eq!(kv.retained_bytes(), model.retained() * g);
        assert_eq!(kv.cached_bytes(), model.cached() * g);
        assert_eq!(kv.len(), model.len() * g);
        assert_eq!(kv.is_empty(), model.count() == 0);
        let free = self.device.free_memory().unwrap();
        let expected = (self.memory + 1 - model.retained() - model.cached()) * g;
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
        assert!(self.kv.cached_bytes() <= self.model.cached() * self.g);
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
        assert_eq!(done.bytes, committed * self.g);
        assert_eq!(
            (done.released, done.cached),
            (released * self.g, cached * self.g)
        );
        assert!(done
            .kept()
            .map(|part| part.start / self.g..part.end / self.g)
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
                let to = to as usize % (had + 2);
                self.model.shrink(to);
                match self.kv.trim(to * self.g) {
                    Ok(bytes) => assert_eq!(bytes, (had - self.model.cached()) * self.g),
                    Err(error) => self.failed(before, &error),
                }
            }
        }
        self.sim.clear_faults();
        if self.undone {
            self.agree();
            self.look();
        }
    }

    /// What is committed holds what was written there, or the zeroes that were promised, at both ends of each granule.
    /// What is new is then filled, each granule with another byte.
    fn look(&mut self) {
        if self.bytes.len() > FEW {
            return;
        }
        let zeroed = self.kv.contents() != Contents::Unspecified;
        for granule in 0..self.bytes.len() {
            if !self.model.committed[granule] {
                self.bytes[granule] = None;
                continue;
            }
            let offset = granule * self.g;
            for at in [offset, offset + self.g - 1] {
                let mut byte = [0];
                self.kv.read(at, &mut byte).unwrap();
                let expected = self.bytes[granule].or(zeroed.then_some(0));
                assert_eq!(byte[0], expected.unwrap_or(byte[0]), "granule {granule}");
            }
            if self.bytes[granule].is_none() {
                self.stamp = self.stamp % 255 + 1;
                self.kv.fill(offset, self.g, self.stamp).unwrap();
                self.bytes[granule] = Some(self.stamp);
            }
        }
    }

    fn commit(&mut self, before: Model, asked: Range<usize>) {
        let (bytes, blocks, mapped, from_cache) = self.model.commit(asked.clone());
        let done = self.kv.commit(asked.start * self.g, asked.len() * self.g);
        let fits = before.retained() + before.cached() + mapped - from_cache <= self.memory;
        let fits_without_cache = self.model.retained() <= self.memory;
        match done {
            Ok(done) => {
                assert_eq!(
                    (done.bytes, done.blocks, done.mapped),
                    (bytes * self.g, blocks, mapped * self.g)
                );
                // Out of memory, or said to be: the cache is empty then, and all blocks were made anew.
                let anew =
                    done.from_cache == 0 && self.kv.cached_bytes() == 0 && before.cached() > 0;
                if anew && (self.faulty || !fits) {
                    assert!(fits_without_cache);
                    self.model.cache.clear();
                } else {
                    assert!(fits);
                    assert_eq!(done.from_cache, from_cache * self.g);
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
        let (offset, bytes) = (asked.start * self.g, asked.len() * self.g);
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
        if split && self.undone && self.kv.cached_bytes() < self.model.cached() * self.g {
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
            assert_eq!(self.kv.resize(to * self.g).unwrap(), Resized::Unchanged);
            return;
        }
        let done = self.kv.resize(to * self.g);
        if to > 0 && !before.committed[to - 1] {
            let Err(Error::NotCommitted { gap, .. }) = done else {
                panic!("a hole ends at {to}: {done:?}");
            };
            assert_eq!(gap.end, to * self.g);
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
    let g = if setting.large_granules {
        2 << 20
    } else {
        1 << 16
    };
    let contents = [
        Contents::Unspecified,
        Contents::Zeroed,
        Contents::ZeroedUnlessFresh,
    ];
    let memory = 1 + setting.memory as usize % (2 * size);
    // Of a device's memory the last byte cannot be had.
    let device = SimDevice::new()
        .granularity(g, g)
        .memory(((memory + 1) * g) as u64);
    let sim = Simulation::builder()
        .device(device)
        .ledger_only()
        .build()
        .unwrap();
    let driver = Driver::simulated(&sim).unwrap();
    let device = driver.device(0).unwrap();
    let bound = (setting.cache as usize).min(memory);
    let kv = ElasticRange::builder(size * g, &AllocationProps::on(&device))
        .access(&device, Access::ReadWrite)
        .blocks(least * g..=greatest * g)
        .cache(bound * g)
        .contents(contents[setting.contents as usize % 3])
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
        bytes: vec![None; size],
        stamp: 0,
        g,
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
    assert_eq!(world.sim.misuses(), []);
});
