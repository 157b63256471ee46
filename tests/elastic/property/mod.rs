//! Random programs on an elastic range, with driver calls that fail at random, against a model: a row of granules, each
//! committed or not and with a byte that fills it, and what a second device may do.

mod program;

use std::cell::Cell;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::{Access, AllocationProps, Contents, Device, Driver, ElasticRange, Error, Fence};
use libtest_mimic::{Completion, Failed, Trial};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::case::caught;
use crate::support;
use program::{program, Operation, Program, Step, GRANULES};

/// Where programs are played.
struct World {
    driver: Driver,
    /// The second device, where there is one.
    peer: Option<Device>,
    sim: Option<Simulation>,
    g: usize,
}

impl World {
    fn simulated(ledger: bool, granules: u64) -> World {
        // Small granules: all of their bytes are looked at.
        let device = || {
            SimDevice::new()
                .granularity(1 << 16, 1 << 16)
                .memory(granules << 16)
        };
        let builder = Simulation::builder().device(device()).device(device());
        let builder = if ledger {
            builder.ledger_only()
        } else {
            builder
        };
        let sim = builder.build().unwrap();
        let driver = Driver::simulated(&sim).unwrap();
        World {
            peer: driver.device(1).ok(),
            driver,
            sim: Some(sim),
            g: 1 << 16,
        }
    }

    fn play(&self, program: &Program) {
        let device = self.driver.device(0).unwrap();
        // With a context at hand, and its free bytes asked for once, the driver's state is the same before and after.
        device.free_memory().unwrap();
        let before = self.sim.as_ref().map(Simulation::snapshot);
        let mut play = Play::new(self, program);
        for step in &program.steps {
            play.step(step);
        }
        play.range.close().unwrap();
        if let (Some(sim), Some(before)) = (&self.sim, before) {
            assert_eq!(sim.snapshot(), before);
            assert_eq!(sim.misuses(), []);
        }
    }
}

struct Play<'a> {
    world: &'a World,
    range: ElasticRange,
    contents: Contents,
    cache: usize,
    bounds: (usize, usize),
    /// The byte that fills each committed granule.
    model: Vec<Option<u8>>,
    /// What the second device may do.
    peer: Option<Access>,
    next: u8,
}

impl<'a> Play<'a> {
    fn new(world: &'a World, program: &Program) -> Play<'a> {
        let g = world.g;
        let bounds = (
            g << program.least,
            g << (program.least + program.more).min(6),
        );
        let device = world.driver.device(0).unwrap();
        let builder = ElasticRange::builder(GRANULES * g, &AllocationProps::on(&device));
        let range = builder
            .access(&device, Access::ReadWrite)
            .blocks(bounds.0..=bounds.1)
            .cache(program.cache * g)
            .contents(program.contents)
            .reserve()
            .unwrap();
        Play {
            world,
            range,
            contents: program.contents,
            cache: program.cache * g,
            bounds,
            model: vec![None; GRANULES],
            peer: world.peer.as_ref().map(|_| Access::None),
            next: 1,
        }
    }

    fn step(&mut self, step: &Step) {
        let g = self.world.g;
        let blocks = self.blocks();
        if let (Some(sim), Some((nth, code))) = (&self.world.sim, step.fault) {
            sim.inject(Fault::any_nth(nth).code(code)).unwrap();
        }
        let cached = self.range.cached_bytes();
        let result = match step.operation {
            Operation::Commit(start, size) => self.range.commit(start * g, size * g).map(|done| {
                assert_eq!(done.bytes, self.count(start, size, false) * g);
                self.committed(start, size);
            }),
            Operation::Decommit(start, size) => {
                self.range.decommit(start * g, size * g).map(|done| {
                    assert_eq!(done.bytes, self.count(start, size, true) * g);
                    self.model[start..start + size].fill(None);
                })
            }
            Operation::Split(start, size) => {
                let fence = Fence::closure(|_| Ok::<_, String>(()));
                let done = self.range.decommit_splitting(start * g, size * g, fence);
                done.map(|done| {
                    assert_eq!(done.bytes, self.count(start, size, true) * g);
                    self.model[start..start + size].fill(None);
                })
            }
            Operation::Resize(len) => {
                let old = self.range.len() / g;
                if len < old && len > 0 && self.model[len - 1].is_none() {
                    // It would end before: refused, and as before.
                    let refused = self.range.resize(len * g);
                    assert!(matches!(refused, Err(Error::NotCommitted { .. })));
                    if let Some(sim) = &self.world.sim {
                        sim.clear_faults();
                    }
                    assert_eq!(self.blocks(), blocks);
                    return self.agree();
                }
                self.range.resize(len * g).map(|_| match len > old {
                    true => self.committed(old, len - old),
                    false => self.model[len..].fill(None),
                })
            }
            Operation::Trim(to) => self.range.trim(to * g).map(|released| {
                assert_eq!(self.range.cached_bytes(), cached - released);
                assert!(self.range.cached_bytes() <= to * g);
            }),
            Operation::Grant(access) => match &self.world.peer {
                Some(peer) => {
                    let granted = self.range.set_policy(peer, access);
                    granted.map(|()| self.peer = Some(access))
                }
                None => Ok(()),
            },
        };
        if let Some(sim) = &self.world.sim {
            sim.clear_faults();
        }
        match result {
            Ok(()) => {}
            // The old handle of a split was not released: everything else was done.
            Err(Error::NotUndone(late)) if late.undo.is_empty() => {
                let Operation::Split(start, size) = step.operation else {
                    panic!("{step:?}: {late}");
                };
                self.model[start..start + size].fill(None);
            }
            Err(error) => {
                let out = matches!(error, Error::CommitOutOfMemory { .. });
                assert!(out || step.fault.is_some(), "{step:?}: {error}");
                assert!(error.undo_failures().is_empty(), "{step:?}: {error}");
                assert_eq!(self.blocks(), blocks, "{step:?}: {error}");
                assert!(self.range.cached_bytes() <= cached);
            }
        }
        self.agree();
        self.fill_new();
    }

    fn count(&self, start: usize, size: usize, committed: bool) -> usize {
        let part = &self.model[start..start + size];
        part.iter().filter(|one| one.is_some() == committed).count()
    }

    fn committed(&mut self, start: usize, size: usize) {
        for one in &mut self.model[start..start + size] {
            one.get_or_insert(0);
        }
    }

    fn blocks(&self) -> Vec<std::ops::Range<usize>> {
        self.range
            .reservation()
            .mappings()
            .map(|block| block.range())
            .collect()
    }

    /// The range tells what the model does, and its blocks are as they should be.
    fn agree(&self) {
        let g = self.world.g;
        let mut committed = vec![false; GRANULES];
        for run in self.range.runs() {
            committed[run.start / g..run.end / g].fill(true);
        }
        let model: Vec<bool> = self.model.iter().map(Option::is_some).collect();
        assert_eq!(committed, model);
        let count = model.iter().filter(|one| **one).count();
        assert_eq!(self.range.committed_bytes(), count * g);
        let last = model.iter().rposition(|one| *one);
        assert_eq!(self.range.len(), last.map_or(0, |last| last + 1) * g);
        let blocks = self.blocks();
        assert_eq!(
            self.range.retained_bytes(),
            blocks.iter().map(|block| block.len()).sum::<usize>()
        );
        assert!(self.range.cached_bytes() <= self.cache);
        for block in &blocks {
            assert!(block.len().is_power_of_two() && block.start % block.len() == 0);
            assert!((self.bounds.0..=self.bounds.1).contains(&block.len()));
            let any = model[block.start / g..block.end / g].contains(&true);
            assert!(any, "{block:?} is retained for nothing");
        }
        let backed = |granule: usize| blocks.iter().any(|block| block.contains(&(granule * g)));
        assert!((0..GRANULES).all(|granule| !model[granule] || backed(granule)));

        // The first and the last bytes, which on the simulated drivers are all.
        let mut bytes = vec![0; g.min(1 << 16)];
        for (granule, value) in self.model.iter().enumerate() {
            let Some(value) = *value else {
                continue;
            };
            let ends = [granule * g, (granule + 1) * g - bytes.len()];
            for at in ends.into_iter().take(if g > bytes.len() { 2 } else { 1 }) {
                self.range.read(at, &mut bytes).unwrap();
                // Nothing is said of what was committed a moment ago, unless it was to be zero.
                if value != 0 || self.contents != Contents::Unspecified {
                    assert!(
                        bytes == [value].repeat(bytes.len()),
                        "granule {granule} is not all {value}"
                    );
                }
            }
            if let (Some(peer), Some(access)) = (&self.world.peer, self.peer) {
                assert_eq!(self.range.access_of(granule * g, peer).unwrap(), access);
            }
        }
    }

    /// Gives what was committed a moment ago a byte of its own.
    fn fill_new(&mut self) {
        for granule in 0..GRANULES {
            if self.model[granule] == Some(0) {
                self.range
                    .fill(granule * self.world.g, self.world.g, self.next)
                    .unwrap();
                self.model[granule] = Some(self.next);
                self.next = self.next % 255 + 1;
            }
        }
    }
}

fn programs(world: &World, faults: bool, count: u32) -> Result<(), Failed> {
    let config = Config {
        cases: count,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = [7; 16];
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::XorShift, &seed));
    let played = Cell::new(0_usize);
    runner
        .run(&program(faults), |program| {
            played.set(played.get() + program.steps.len());
            world.play(&program);
            Ok(())
        })
        .map_err(|error| Failed::from(error.to_string()))?;
    println!("{} operations in {count} programs", played.get());
    Ok(())
}

pub fn trials() -> Vec<Trial> {
    let simulated = |name: &str, ledger: bool, faults: bool| {
        Trial::test(format!("random programs [{name}]"), move || {
            // Where calls fail, memory does not run out as well: a second failure would not be undone.
            let granules = if faults { 200 } else { 60 };
            programs(&World::simulated(ledger, granules), faults, 250)
        })
    };
    let on_gpu = || {
        if let Err(why) = support::devices() {
            return match support::gpu_required() {
                true => Err(format!("{} is set: {why}", support::GPU_REQUIRED).into()),
                false => Ok(Completion::ignored_with(why)),
            };
        }
        let driver = Driver::load()?;
        let device = driver.device(0)?;
        let g = AllocationProps::on(&device).granularity()?.minimum();
        let world = World {
            driver,
            peer: None,
            sim: None,
            g,
        };
        caught(|| programs(&world, false, 40).unwrap()).map(|()| Completion::Completed)
    };
    vec![
        simulated("memory", false, false),
        simulated("memory, failing calls", false, true),
        simulated("ledger", true, false),
        simulated("ledger, failing calls", true, true),
        Trial::ignorable_test("random programs [gpu]", on_gpu),
    ]
}
