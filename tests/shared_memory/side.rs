//! One process's side: its driver, and what it holds.

use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::sim::Simulation;
use cuda_vmm::{Access, AllocationProps, Device, Driver, HandleType, Reservation};

use crate::support::simcuda::Simcuda;
use crate::support::which::Which;
use crate::surroundings::{open_fds, soon, Other};

pub struct Side {
    pub which: Which,
    pub driver: Driver,
    pub device: Device,
    /// The granularity.
    pub g: usize,
    pub sim: Option<Simulation>,
}

impl Side {
    pub fn new(which: Which) -> Side {
        let sim = (which == Which::Sim).then(Simulation::new);
        let driver = match &sim {
            Some(sim) => Driver::simulated(sim),
            None => Driver::load(),
        };
        let driver = driver.unwrap();
        let device = driver.device(0).unwrap();
        let g = AllocationProps::on(&device)
            .granularity()
            .unwrap()
            .minimum();
        let side = Side {
            which,
            driver,
            device,
            g,
            sim,
        };
        // The context stays from here on, and what the driver takes for it is not taken for a leak. A first mapping
        // does the same for what it keeps of the addresses.
        side.free();
        let mut kv = side.reserve(1);
        kv.map(0, side.g, &side.props()).unwrap();
        kv.write(0, &[1]).unwrap();
        kv.close().unwrap();
        side
    }

    /// Another process on the same driver, in this part.
    pub fn other(&self, part: &str) -> Other {
        Other::start(&self.role(part))
    }

    pub fn role(&self, part: &str) -> String {
        format!("{}|{part}", self.which)
    }

    /// Memory that can be shared.
    pub fn props(&self) -> AllocationProps {
        AllocationProps::on(&self.device).shareable_as(HandleType::PosixFd.into())
    }

    /// So many granules that the device may read and write.
    pub fn reserve(&self, granules: usize) -> Reservation {
        Reservation::builder(granules * self.g)
            .access(&self.device, Access::ReadWrite)
            .reserve(&self.driver)
            .unwrap()
    }

    pub fn free(&self) -> usize {
        self.device.free_memory().unwrap()
    }

    /// Whether the free bytes are those of one device that all processes share. On the simulated driver they are those
    /// of this process's own memory, for as long as anybody holds it.
    pub fn sees_the_others(&self) -> bool {
        self.which == Which::Gpu && Simcuda::find().is_none()
    }

    /// As much is free as was, within a granule: the driver keeps small change for itself. What another process holds
    /// comes back when it lets go, or some time after its end.
    #[track_caller]
    pub fn is_back(&self, before: usize) {
        let free = || self.free();
        soon_enough(
            || free().abs_diff(before) <= self.g,
            || format!("{before} bytes were free, and now {} are", free()),
        );
    }

    /// As many descriptors are open as were. The simulated driver keeps one of exported memory for as long as another
    /// process has it.
    #[track_caller]
    pub fn fds_are_back(&self, before: usize) {
        soon_enough(
            || {
                self.free();
                open_fds() == before
            },
            || format!("{before} descriptors were open, and now {} are", open_fds()),
        );
    }

    /// Everything was given back, and nothing was done that a real driver would have died of.
    #[track_caller]
    pub fn holds_nothing(&self) {
        assert_eq!(self.driver.quarantined(), 0);
        if let Some(sim) = &self.sim {
            let left = || sim.snapshot();
            soon_enough(|| left().holds_no_memory(), || left().to_string());
            assert_eq!(sim.misuses(), []);
        }
    }
}

/// It is so, now or in a while; else this is what there is instead.
#[track_caller]
fn soon_enough(is_so: impl Fn() -> bool, instead: impl Fn() -> String) {
    let until = soon(10);
    while !is_so() {
        assert!(Instant::now() < until, "{}", instead());
        thread::sleep(Duration::from_millis(2));
    }
}
