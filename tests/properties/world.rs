//! A driver, what was made with it, and the model of that.

use std::sync::Arc;

use cuda_vmm::sim::{CallRecord, Fault, Interposer, LogMode, SimDevice, Simulation, Snapshot};
use cuda_vmm::sys::{CUresult, DriverCalls, Library};
use cuda_vmm::{Allocation, AllocationProps, Device, Driver, Location, MappingId, Reservation};

use crate::leaks;
use crate::model::{Model, Number};
use crate::operation::{Step, Strike, Which};
use crate::tally::Tally;
use crate::verdict::Verdict;

/// What the failing calls answer.
pub const CODES: [CUresult; 4] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_INVALID_VALUE,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// Stands for a device that does not exist.
const ABSENT: Which = 11;

/// The driver that programs run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    Ledger,
    Memory,
    Real,
}

/// What is dropped first stands first.
pub struct World {
    pub kvs: Vec<Reservation>,
    pub pages: Vec<Allocation>,
    pub ids: Vec<Held>,
    /// One set of properties for each place that memory can lie in.
    pub places: Vec<Place>,
    /// The same as the first place, of another driver.
    pub foreign: AllocationProps,
    pub devices: Vec<Device>,
    pub driver: Driver,
    pub watch: Arc<Interposer>,
    pub sim: Option<Simulation>,
    pub model: Model,
    /// What was called since the step began.
    pub log: Vec<CallRecord>,
    /// The least granularity.
    pub unit: usize,
    /// The state before anything was made.
    pub start: Option<Snapshot>,
    /// Whether the step has faults.
    pub disturbed: bool,
    /// The retains of each device's context.
    pub contexts: Vec<u32>,
    /// How the step in play was judged.
    pub verdict: Option<Verdict>,
    pub tally: Tally,
}

pub struct Place {
    pub props: AllocationProps,
    pub location: Location,
    pub granularity: usize,
}

/// A mapping's id, and which mapping that is.
pub struct Held {
    pub id: MappingId,
    pub area: Number,
    pub mapping: Number,
}

impl World {
    pub fn new(ground: Ground) -> World {
        let sim = match ground {
            Ground::Real => None,
            Ground::Memory => Some(simulation(false)),
            Ground::Ledger => Some(simulation(true)),
        };
        let watch = match &sim {
            Some(sim) => Interposer::with_log(sim.clone(), LogMode::All),
            None => {
                let library = Library::open().expect("there is a driver here");
                Interposer::with_log(library, LogMode::All)
            }
        };
        World::on(Arc::new(watch), sim)
    }

    fn on(watch: Arc<Interposer>, sim: Option<Simulation>) -> World {
        let calls: Arc<dyn DriverCalls> = watch.clone();
        let driver = Driver::from_calls(calls.clone()).unwrap();
        let devices: Vec<Device> = driver.devices().collect::<Result<_, _>>().unwrap();
        // Two are as good as eight.
        let devices: Vec<Device> = devices.into_iter().take(2).collect();
        let host = AllocationProps::on_host_numa(&driver, 0);
        let place = |props: AllocationProps| Place {
            location: props.location(),
            granularity: props.granularity().unwrap().minimum(),
            props,
        };
        let places: Vec<Place> = devices
            .iter()
            .map(AllocationProps::on)
            .chain([host])
            .map(place)
            .collect();
        let foreign = Driver::from_calls(calls).unwrap().device(0).unwrap();
        let contexts = vec![0; driver.device_count() as usize];
        let least = places.iter().filter(|place| !place.location.is_host());
        let unit = least.map(|place| place.granularity).min();
        let unit = unit.expect("there is a device");
        leaks::take();
        World {
            kvs: Vec::new(),
            pages: Vec::new(),
            ids: Vec::new(),
            foreign: AllocationProps::on(&foreign),
            places,
            devices,
            driver,
            watch,
            start: sim.as_ref().map(Simulation::snapshot),
            sim,
            model: Model::default(),
            log: Vec::new(),
            unit,
            disturbed: false,
            contexts,
            verdict: None,
            tally: Tally::default(),
        }
    }

    /// Plays a step and compares everything.
    pub fn step(&mut self, step: &Step) {
        self.watch.clear_log();
        self.log.clear();
        self.verdict = None;
        self.disturbed = !step.faults.is_empty();
        let mut nth = 0;
        for strike in &step.faults {
            nth += strike.after;
            self.watch.inject(fault(strike, nth)).unwrap();
        }
        let played = self.play(&step.operation).is_some();
        self.take_off();
        self.watch.clear_faults();
        self.model.sweep();
        self.agree();
        if played {
            let undisturbed = match self.failures().is_empty() {
                true => Verdict::Done,
                false => Verdict::Failed,
            };
            let verdict = self.verdict.unwrap_or(undisturbed);
            self.tally.count(step.operation.name(), verdict);
        }
    }

    /// Notes what was called, and lets no more call fail.
    pub fn look(&mut self) {
        self.watch.clear_faults();
        self.log = self.watch.log();
    }

    /// The location of that number, or one that does not exist.
    ///
    /// On a real driver never the host: of a range in which the host has rights to some memory, driver 580.159 copies
    /// all with the CPU, and the process dies where the host has no right to the rest.
    pub fn who(&self, which: Which) -> Location {
        let places = match self.sim {
            Some(_) => self.places.len(),
            None => self.devices.len(),
        };
        match which {
            ABSENT => Location::Device(self.driver.device_count() + 5),
            _ => self.places[which % places].location,
        }
    }

    /// Ends everything in the ordinary way, and demands that nothing is left.
    pub fn end(mut self) -> Tally {
        self.disturbed = false;
        self.watch.clear_log();
        for at in 0..self.kvs.len() {
            self.contents(at);
        }
        for kv in self.kvs.drain(..) {
            kv.close().unwrap();
        }
        for page in self.pages.drain(..) {
            page.release().unwrap();
        }
        let kept = self.model.kept.len();
        assert_eq!(self.driver.reclaim().unwrap(), kept);
        self.free_leaked();
        let (sim, start) = (self.sim.clone(), self.start.clone());
        let tally = std::mem::take(&mut self.tally);
        if let (Some(sim), Some(start)) = (&sim, start) {
            let mut left = sim.snapshot();
            left.retained_contexts = start.retained_contexts.clone();
            assert_eq!(left, start, "something is left:\n{left}");
        }
        drop(self);
        if let Some(sim) = sim {
            let left = sim.snapshot();
            assert!(left.is_empty(), "something is left:\n{left}");
            assert_eq!(sim.misuses(), []);
        }
        assert_eq!(leaks::take(), [], "something was said to be leaked");
        tally
    }

    /// Reads all that can be read, and compares.
    fn contents(&mut self, at: usize) {
        let kv = &self.kvs[at];
        let device = |who: &Location| who.device().is_some();
        let ranges: Vec<_> = kv
            .mappings()
            .filter(|mapping| !mapping.is_quarantined())
            .filter(|mapping| {
                let mut rights = kv.rights(mapping);
                rights.any(|(who, access)| device(&who) && access.reads())
            })
            .map(|mapping| mapping.range())
            .collect();
        for range in ranges {
            let mut bytes = vec![0xEE; range.len()];
            kv.read(range.start, &mut bytes).unwrap();
            let expected = crate::contents::bytes(&self.model.read(at, &range));
            assert!(
                bytes == expected,
                "[{}, {}) reads wrong",
                range.start,
                range.end
            );
        }
    }
}

fn fault(strike: &Strike, nth: u64) -> Fault {
    let fault = Fault::any_nth(nth).code(CODES[strike.code]);
    match strike.forever {
        true => fault.forever(),
        false => fault,
    }
}

/// Two devices of different granularity and little memory, so that it runs out now and then.
fn simulation(ledger: bool) -> Simulation {
    const PAGE: usize = 4096;
    let builder = Simulation::builder()
        .device(
            SimDevice::new()
                .granularity(PAGE, 2 * PAGE)
                .memory(80 * PAGE as u64),
        )
        .device(
            SimDevice::new()
                .granularity(2 * PAGE, 2 * PAGE)
                .memory(80 * PAGE as u64),
        )
        .host_memory(80 * PAGE as u64)
        .log(LogMode::Off);
    let builder = match ledger {
        true => builder.ledger_only(),
        false => builder,
    };
    builder.build().expect("a sound configuration")
}
