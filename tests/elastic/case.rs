//! A case, and the drivers that it is played on.

use std::panic::{catch_unwind, AssertUnwindSafe};

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::{
    Access, AllocationProps, Decommitted, Device, Driver, ElasticRange, ElasticRangeBuilder, Error,
};
use libtest_mimic::{Completion, Failed, Trial};

use crate::support;

/// What is played, and on which drivers.
pub struct Case {
    pub name: &'static str,
    pub run: fn(&Machine),
    /// Not on the machine's own driver: faults are injected, or the devices are made for the case.
    pub simulated_only: bool,
}

impl Case {
    pub const fn everywhere(name: &'static str, run: fn(&Machine)) -> Case {
        Case {
            name,
            run,
            simulated_only: false,
        }
    }

    pub const fn simulated(name: &'static str, run: fn(&Machine)) -> Case {
        Case {
            name,
            run,
            simulated_only: true,
        }
    }

    pub fn trials(&'static self) -> Vec<Trial> {
        let simulated = |kind: &str, ledger: bool| {
            Trial::test(format!("{} [{kind}]", self.name), move || {
                caught(|| Machine::simulated(ledger).play(self.run))
            })
        };
        let mut trials = vec![simulated("memory", false), simulated("ledger", true)];
        if !self.simulated_only {
            let name = format!("{} [gpu]", self.name);
            trials.push(Trial::ignorable_test(name, || match support::devices() {
                Ok(_) => caught(|| Machine::real().play(self.run)).map(|()| Completion::Completed),
                Err(why) if support::gpu_required() => Err(Failed::from(format!(
                    "{} is set: {why}",
                    support::GPU_REQUIRED
                ))),
                Err(why) => Ok(Completion::ignored_with(why)),
            }));
        }
        trials
    }
}

pub fn caught(run: impl FnOnce()) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref().cloned());
        Failed::from(text.unwrap_or_default())
    })
}

/// A driver and its devices; two, where it is simulated.
pub struct Machine {
    pub devices: Vec<Device>,
    pub driver: Driver,
    /// The granularity.
    pub g: usize,
    /// The simulated driver keeps books only.
    pub ledger: bool,
    sim: Option<Simulation>,
}

impl Machine {
    pub fn simulated(ledger: bool) -> Machine {
        let builder = Simulation::builder()
            .imex_channel(true)
            .device(SimDevice::new())
            .device(SimDevice::new());
        let builder = match ledger {
            true => builder.ledger_only(),
            false => builder,
        };
        let sim = builder.build().expect("a sound configuration");
        let mut machine = Machine::of(Driver::simulated(&sim).unwrap(), Some(sim));
        machine.ledger = ledger;
        machine
    }

    pub fn real() -> Machine {
        Machine::of(Driver::load().unwrap(), None)
    }

    pub fn of(driver: Driver, sim: Option<Simulation>) -> Machine {
        let devices: Vec<_> = driver.devices().collect::<Result<_, _>>().unwrap();
        let g = AllocationProps::on(&devices[0])
            .granularity()
            .unwrap()
            .minimum();
        Machine {
            devices,
            driver,
            g,
            ledger: false,
            sim,
        }
    }

    pub fn sim(&self) -> &Simulation {
        self.sim
            .as_ref()
            .expect("the case is for simulated drivers")
    }

    pub fn is_simulated(&self) -> bool {
        self.sim.is_some()
    }

    pub fn props(&self) -> AllocationProps {
        AllocationProps::on(&self.devices[0])
    }

    /// A range of so many granules that device 0 may read and write.
    pub fn builder(&self, granules: usize) -> ElasticRangeBuilder {
        ElasticRange::builder(granules * self.g, &self.props())
            .access(&self.devices[0], Access::ReadWrite)
    }

    /// Plays a case, which must leave nothing, and must have called nothing that a driver dies of.
    pub fn play(self, run: fn(&Machine)) {
        let free = self.devices[0].free_memory().unwrap();
        run(&self);
        let left = self.devices[0].free_memory().unwrap();
        // A real driver keeps small change for itself.
        let change = if self.is_simulated() { 0 } else { 8 * self.g };
        assert!(
            left.abs_diff(free) <= change,
            "{free} bytes were free, and now {left} are"
        );
        assert_eq!(self.driver.quarantined(), 0);
        if let Some(sim) = &self.sim {
            assert!(sim.snapshot().holds_no_memory(), "{}", sim.snapshot());
            assert_eq!(sim.misuses(), []);
        }
    }

    /// Runs what must be refused before the driver is called, changing nothing, and gives the error.
    #[track_caller]
    pub fn refused<T: std::fmt::Debug>(
        &self,
        range: &mut ElasticRange,
        run: impl FnOnce(&mut ElasticRange) -> Result<T, Error>,
    ) -> Error {
        let calls = self.sim.as_ref().map(|sim| (sim.calls(), sim.snapshot()));
        let before = (calls, state(range));
        let error = run(range).expect_err("it was not refused");
        let calls = self.sim.as_ref().map(|sim| (sim.calls(), sim.snapshot()));
        assert_eq!((calls, state(range)), before, "{error}");
        error
    }
}

/// All that a range tells of itself.
pub fn state(range: &ElasticRange) -> String {
    format!(
        "{range}{range:?}\n{} long\n{}",
        range.len(),
        range.reservation()
    )
}

/// Sizes of the blocks, by offset, in granules.
pub fn blocks(range: &ElasticRange) -> Vec<usize> {
    let granule = range.granularity();
    range
        .reservation()
        .mappings()
        .map(|block| block.size() / granule)
        .collect()
}

/// The parts that blocks kept, in granules.
pub fn kept(gone: &Decommitted, granule: usize) -> Vec<(usize, usize)> {
    gone.kept()
        .map(|part| (part.start / granule, part.end / granule))
        .collect()
}

/// Committed runs in granules.
pub fn runs(range: &ElasticRange) -> Vec<(usize, usize)> {
    let granule = range.granularity();
    range
        .runs()
        .map(|run| (run.start / granule, run.end / granule))
        .collect()
}

/// The error is this very one, all of its fields included, and says so in these words.
#[track_caller]
pub fn says(error: &Error, expected: &Error, text: &str) {
    assert_eq!(format!("{error:?}"), format!("{expected:?}"));
    assert_eq!(error.to_string(), text);
}

/// A commit that ran out of memory: the bytes that it asked for, those that were free, those that were cached.
#[track_caller]
pub fn ran_out(error: &Error) -> (usize, Option<usize>, usize) {
    let Error::CommitOutOfMemory {
        asked,
        free,
        cached,
        ..
    } = *error
    else {
        panic!("{error:?}");
    };
    (asked, free, cached)
}
