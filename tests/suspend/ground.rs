//! The driver that a case runs on.

use cuda_vmm::sim::{LogMode, SimDevice, Simulation, Snapshot};
use cuda_vmm::sys::{CUresult, DriverCalls};
use cuda_vmm::{Access, AllocationProps, Device, Driver, Reservation};

pub struct Ground {
    pub driver: Driver,
    /// Two at most; a real machine may have one.
    pub devices: Vec<Device>,
    pub sim: Option<Simulation>,
    /// The granularity.
    pub g: usize,
}

impl Ground {
    pub fn simulated() -> Ground {
        let small = || SimDevice::new().memory(256 << 20);
        let builder = Simulation::builder().device(small()).device(small());
        Ground::on(builder.log(LogMode::All).build().unwrap())
    }

    /// Simulated, with granules of this many bytes.
    pub fn small(granularity: usize) -> Ground {
        let device = || {
            let device = SimDevice::new().memory(64 << 20);
            device.granularity(granularity, granularity)
        };
        let builder = Simulation::builder().device(device()).device(device());
        Ground::on(builder.log(LogMode::All).build().unwrap())
    }

    pub fn on(sim: Simulation) -> Ground {
        Ground::of(Driver::simulated(&sim).unwrap(), Some(sim))
    }

    pub fn real() -> Ground {
        Ground::of(Driver::load().unwrap(), None)
    }

    fn of(driver: Driver, sim: Option<Simulation>) -> Ground {
        let devices: Vec<Device> = driver.devices().collect::<Result<_, _>>().unwrap();
        let devices: Vec<Device> = devices.into_iter().take(2).collect();
        let g = AllocationProps::on(&devices[0]).granularity().unwrap();
        Ground {
            g: g.minimum(),
            driver,
            devices,
            sim,
        }
    }

    pub fn device(&self) -> &Device {
        &self.devices[0]
    }

    pub fn props(&self) -> AllocationProps {
        AllocationProps::on(self.device())
    }

    /// A device that can reach the first one's memory, if there is one.
    pub fn peer(&self) -> Option<&Device> {
        let peer = self.devices.get(1)?;
        let reaches = peer.can_access_peer(self.device()).unwrap();
        reaches.then_some(peer)
    }

    /// So many granules that the first device may read and write.
    pub fn reserve(&self, granules: usize) -> Reservation {
        Reservation::builder(granules * self.g)
            .access(self.device(), Access::ReadWrite)
            .reserve(&self.driver)
            .unwrap()
    }

    pub fn snapshot(&self) -> Option<Snapshot> {
        self.sim.as_ref().map(Simulation::snapshot)
    }

    /// How many calls the simulated driver has seen.
    pub fn calls(&self) -> u64 {
        self.sim.as_ref().map_or(0, Simulation::calls)
    }

    pub fn free(&self) -> usize {
        self.device().free_memory().unwrap()
    }

    /// A context stays current only where taking it off failed twice; whoever sees that takes it off.
    pub fn take_contexts_off(&self) {
        let Some(sim) = &self.sim else { return };
        while sim.snapshot().context_depth > 0 {
            let popped = unsafe { sim.cuCtxPopCurrent_v2(std::ptr::null_mut()) };
            assert_eq!(popped, CUresult::CUDA_SUCCESS);
        }
    }

    pub fn leaves_nothing(self) -> Result<(), libtest_mimic::Failed> {
        let Ground {
            driver,
            devices,
            sim,
            ..
        } = self;
        if driver.quarantined() != 0 {
            return Err(format!("{} pieces are quarantined", driver.quarantined()).into());
        }
        drop((driver, devices));
        let Some(sim) = sim else { return Ok(()) };
        match (sim.snapshot().is_empty(), sim.misuses().is_empty()) {
            (true, true) => Ok(()),
            _ => Err(format!("left behind:\n{}\n{:?}", sim.snapshot(), sim.misuses()).into()),
        }
    }
}
