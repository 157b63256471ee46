//! A case, where it runs, and what it runs on.

use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Mutex};

use cuda_vmm::sim::Simulation;
use cuda_vmm::{Access, AllocationProps, Device, Driver, Leak, Reservation};
use libtest_mimic::{Completion, Failed, Trial};

use crate::support;

/// One failure case, by the name of its kind.
pub struct Case {
    pub name: &'static str,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    Sim(fn()),
    Both(fn(&Machine)),
    Sources(fn()),
}

impl Case {
    /// For the simulated driver alone.
    pub const fn sim(name: &'static str, run: fn()) -> Case {
        Case {
            name,
            run: Run::Sim(run),
        }
    }

    /// For the simulated driver and the machine's own.
    pub const fn both(name: &'static str, run: fn(&Machine)) -> Case {
        Case {
            name,
            run: Run::Both(run),
        }
    }

    /// For where the crate's sources are, as they are beside `cargo test`.
    pub const fn sources(name: &'static str, run: fn()) -> Case {
        Case {
            name,
            run: Run::Sources(run),
        }
    }

    pub fn trials(&'static self) -> Vec<Trial> {
        match self.run {
            Run::Sim(run) => vec![Trial::test(self.name, move || caught(run))],
            Run::Sources(run) => vec![Trial::ignorable_test(self.name, move || {
                match sources().is_dir() {
                    true => caught(run).map(|()| Completion::Completed),
                    false => Ok(Completion::ignored_with("the sources are not here")),
                }
            })],
            Run::Both(run) => vec![
                Trial::test(format!("{} [sim]", self.name), move || {
                    caught(|| Machine::simulated().play(run))
                }),
                Trial::ignorable_test(
                    format!("{} [gpu]", self.name),
                    move || match support::devices() {
                        Ok(_) => {
                            caught(|| Machine::real().play(run)).map(|()| Completion::Completed)
                        }
                        Err(why) if support::gpu_required() => Err(Failed::from(format!(
                            "{} is set: {why}",
                            support::GPU_REQUIRED
                        ))),
                        Err(why) => Ok(Completion::ignored_with(why)),
                    },
                ),
            ],
        }
    }
}

/// The folder of the sources, if it is on this machine.
pub fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn caught(run: impl FnOnce()) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        Failed::from(
            text.or_else(|| panic.downcast_ref().cloned())
                .unwrap_or_default(),
        )
    })
}

/// A driver and its first device.
pub struct Machine {
    pub driver: Driver,
    pub device: Device,
    pub props: AllocationProps,
    /// The granularity.
    pub g: usize,
    pub sim: Option<Simulation>,
}

impl Machine {
    fn simulated() -> Machine {
        let sim = Simulation::new();
        Machine::of(Driver::simulated(&sim).unwrap(), Some(sim))
    }

    fn real() -> Machine {
        Machine::of(Driver::load().unwrap(), None)
    }

    fn of(driver: Driver, sim: Option<Simulation>) -> Machine {
        let device = driver.device(0).unwrap();
        let props = AllocationProps::on(&device);
        let g = props.granularity().unwrap().minimum();
        Machine {
            driver,
            device,
            props,
            g,
            sim,
        }
    }

    /// Runs a case, which must leave nothing, and must have called nothing that a driver dies of.
    fn play(self, run: fn(&Machine)) {
        let free = self.free();
        run(&self);
        self.returned(free);
        assert_eq!(self.driver.quarantined(), 0);
        if let Some(sim) = &self.sim {
            assert!(sim.snapshot().holds_no_memory(), "{}", sim.snapshot());
            assert_eq!(sim.misuses(), []);
        }
    }

    pub fn free(&self) -> usize {
        self.device.free_memory().unwrap()
    }

    /// As much is free as was, within a granule: the driver keeps small change for itself.
    #[track_caller]
    pub fn returned(&self, before: usize) {
        let now = self.free();
        assert!(
            now.abs_diff(before) <= self.g,
            "{before} bytes were free, and now {now} are"
        );
    }

    /// So many granules that the device may read and write.
    pub fn reserve(&self, granules: usize) -> Reservation {
        Reservation::builder(granules * self.g)
            .access(&self.device, Access::ReadWrite)
            .reserve(&self.driver)
            .unwrap()
    }
}

/// What the leak hook was told since somebody began to listen. Cases run one at a time.
pub struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub fn listen() -> Told {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let ours = told.clone();
        cuda_vmm::set_leak_hook(move |leak: &Leak| ours.lock().unwrap().push(leak.to_string()));
        Told(told)
    }

    pub fn take(&self) -> Vec<String> {
        mem::take(&mut self.0.lock().unwrap())
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        cuda_vmm::reset_leak_hook();
    }
}
