//! A driver that is watched, and a reservation with something in it.

use std::sync::Arc;

use cuda_vmm::sim::{Interposer, Simulation, Snapshot};
use cuda_vmm::sys::Library;
use cuda_vmm::{Access, Allocation, AllocationProps, Device, Driver, Reservation};

use crate::support::which::Which;

/// Fields are dropped in this order: the reservation, the page, the driver.
pub struct Scene {
    pub kv: Reservation,
    pub page: Allocation,
    pub props: AllocationProps,
    pub device: Device,
    pub driver: Driver,
    /// Counts the calls and makes them fail, before whichever driver it is.
    pub watch: Arc<Interposer>,
    pub sim: Option<Simulation>,
    /// The granularity.
    pub g: usize,
}

/// What every mapped byte holds.
pub const FILLED: u8 = 0x5a;

impl Scene {
    /// Eight granules: an own mapping of two, a page of the caller's mapped twice, one whose handle was given up; all
    /// filled.
    pub fn open(which: Which) -> Scene {
        let sim = (which == Which::Sim).then(Simulation::new);
        let watch = Arc::new(match &sim {
            Some(sim) => Interposer::new(sim.clone()),
            None => Interposer::new(Library::open().expect("it was there a moment ago")),
        });
        let driver = Driver::from_calls(watch.clone()).unwrap();
        let device = driver.device(0).unwrap();
        let props = AllocationProps::on(&device);
        let g = props.granularity().unwrap().minimum();
        let builder = Reservation::builder(8 * g).access(&device, Access::ReadWrite);
        let mut kv = builder.reserve(&driver).unwrap();
        let page = props.create(g).unwrap();
        kv.map(0, 2 * g, &props).unwrap();
        kv.map_existing(2 * g, &page).unwrap();
        kv.map_existing(3 * g, &page).unwrap();
        kv.map_releasing(4 * g, g, &props).unwrap();
        kv.fill(0, 5 * g, FILLED).unwrap();
        Scene {
            kv,
            page,
            props,
            device,
            driver,
            watch,
            sim,
            g,
        }
    }

    /// Every byte of the five granules.
    pub fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; 5 * self.g];
        self.kv.read(0, &mut bytes).unwrap();
        bytes
    }

    /// What the simulated driver knows; nothing of the machine's own, which cannot be asked.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.sim.as_ref().map(Simulation::snapshot)
    }

    /// Ends it in the ordinary way.
    pub fn close(self) {
        let Scene {
            kv,
            page,
            props,
            device,
            driver,
            watch,
            sim,
            ..
        } = self;
        kv.close().unwrap();
        page.release().unwrap();
        drop((props, device, driver, watch));
        if let Some(sim) = sim {
            assert!(sim.snapshot().is_empty(), "{}", sim.snapshot());
            assert_eq!(sim.misuses(), []);
        }
    }
}
