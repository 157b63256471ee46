//! The range, its model, and what surrounds them.

use std::collections::BTreeMap;
use std::ops::Range;

use cuda_vmm::arena::{Arena, Extent, Fit};
use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::{
    Access, AllocationProps, Contents, Decommitted, Device, Driver, ElasticRange, Error,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

use crate::model::Model;

/// Ranges of no more granules than this have their bytes and rights looked at.
const FEW: usize = 96;

#[derive(Debug, Arbitrary)]
pub struct Setting {
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

pub struct World {
    pub sim: Simulation,
    pub driver: Driver,
    pub devices: [Device; 2],
    pub kv: ElasticRange,
    pub model: Model,
    pub arena: Arena,
    /// The arena's cursor, in bytes.
    pub cursor: usize,
    /// What the second device may do.
    pub other: Access,
    /// What fills each granule that is committed, where that is looked at.
    bytes: Vec<Option<u8>>,
    stamp: u8,
    /// Bytes of a granule.
    pub g: usize,
    pub memory: usize,
    /// Whether a call of the step in play was made to fail, or will be.
    pub faulty: bool,
    /// Whether the driver did not take a handle back, so that more is in use than the range says.
    pub stuck: bool,
    /// Whether all that failed could be undone. If not, the program ends.
    pub undone: bool,
}

impl World {
    pub fn new(setting: &Setting) -> World {
        let least = 1 << (setting.least % 5);
        let greatest = least << (setting.more % 5);
        let size = least * (1 + setting.slots as usize % 48);
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
        let memory = 1 + size / 2 + setting.memory as usize % (2 * size);
        // Of a device's memory the last byte cannot be had.
        let device = || {
            SimDevice::new()
                .granularity(g, g)
                .memory(((memory + 1) * g) as u64)
        };
        let sim = Simulation::builder()
            .device(device())
            .device(device())
            .ledger_only()
            .build()
            .unwrap();
        let driver = Driver::simulated(&sim).unwrap();
        let devices = [driver.device(0).unwrap(), driver.device(1).unwrap()];
        let bound = (setting.cache as usize).min(memory);
        let kv = ElasticRange::builder(size * g, &AllocationProps::on(&devices[0]))
            .access(&devices[0], Access::ReadWrite)
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
        World {
            arena: Arena::over([Extent::from(&kv)], Fit::First).unwrap(),
            cursor: 0,
            sim,
            driver,
            devices,
            kv,
            model,
            other: Access::None,
            bytes: vec![None; size],
            stamp: 0,
            g,
            memory,
            faulty: false,
            stuck: false,
            undone: true,
        }
    }

    pub fn agree(&self) {
        let (kv, model, g) = (&self.kv, &self.model, self.g);
        self.shape(model);
        let blocks = kv.reservation().mappings();
        let blocks = blocks.map(|block| (block.offset() / g, block.size() / g));
        assert!(
            blocks.eq(model.blocks.clone()),
            "{}\n{model:?}",
            kv.reservation()
        );
        assert_eq!(kv.retained_bytes(), model.retained() * g);
        assert_eq!(kv.cached_bytes(), model.cached() * g);
        let free = self.free();
        let expected = (self.memory + 1 - model.retained() - model.cached()) * g;
        assert!(
            free == expected || self.stuck && free < expected,
            "{free}, not {expected}"
        );
        assert_eq!(self.arena.used(), self.cursor);
        assert_eq!(self.arena.left(), kv.size() - self.cursor);
    }

    /// What is committed is what the model says.
    fn shape(&self, model: &Model) {
        let (kv, g) = (&self.kv, self.g);
        assert!(
            kv.runs()
                .map(|run| run.start / g..run.end / g)
                .eq(model.runs()),
            "{kv:?}\n{model:?}"
        );
        assert_eq!(kv.committed_bytes(), model.count() * g);
        assert_eq!(kv.len(), model.len() * g);
        assert_eq!(kv.is_empty(), model.count() == 0);
    }

    fn free(&self) -> usize {
        self.devices[0].free_memory().unwrap()
    }

    /// After a failure all is as before but for the cache, which is emptied so that it is known again.
    pub fn failed(&mut self, before: Model, error: &Error) {
        assert!(self.faulty || error.is_out_of_memory(), "{error}");
        self.sim.clear_faults();
        if !error.undo_failures().is_empty() {
            assert!(self.faulty, "{error:?}");
            self.undone = false;
            self.model = before;
            return;
        }
        self.model = before;
        assert!(self.kv.cached_bytes() <= self.model.cached() * self.g);
        self.kv.trim(0).unwrap();
        self.model.cache.clear();
    }

    /// What could not be undone goes with what it lies under, and then the range is as good as new. Of what was
    /// committed only a split that failed may have taken something.
    pub fn rescue(&mut self, split: bool) {
        if split {
            let mut runs = self.kv.runs();
            assert!(runs.all(|run| (run.start / self.g..run.end / self.g)
                .all(|granule| self.model.committed[granule])));
        } else {
            self.shape(&self.model);
        }
        self.kv.decommit(0, self.kv.size()).unwrap();
        self.kv.trim(0).unwrap();
        let (kv, g) = (&mut self.kv, self.g);
        assert_eq!((kv.committed_bytes(), kv.retained_bytes()), (0, 0));
        assert_eq!((kv.cached_bytes(), kv.runs().count()), (0, 0));
        assert_eq!(kv.reservation().mappings().count(), 0);
        let least = self.model.least * g;
        let fits = self.free() > least;
        match self.kv.commit(0, g) {
            Ok(done) => assert_eq!((done.bytes, done.blocks, done.mapped), (g, 1, least)),
            Err(error) => assert!(!fits && error.is_out_of_memory(), "{error}"),
        }
    }

    pub fn gone(
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

    /// What is committed holds what was written there, or the zeroes that were promised, at both ends of each granule.
    /// What is new is then filled, each granule with another byte. Each block is granted what the policy says.
    pub fn look(&mut self) {
        if self.bytes.len() > FEW {
            return;
        }
        for start in self.model.blocks.keys() {
            let one = self.kv.reservation();
            let [first, second] = &self.devices;
            let rights = [first, second].map(|it| one.access_of(start * self.g, it).unwrap());
            assert_eq!(rights, [Access::ReadWrite, self.other], "block {start}");
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
}
