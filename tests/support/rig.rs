//! What a test of the safe layers begins with: a simulated driver, and its devices.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_vmm::sim::{SimDevice, Simulation, SimulationBuilder};
use cuda_vmm::{Access, AllocationProps, Device, Driver, Error, Reservation};

/// 2 MiB, the granularity of the simulated devices.
pub const G: usize = 2 << 20;

/// An address that is free, and that no other test asks for: they all run in one process, whose addresses they share.
pub fn free_address() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0x2000_0000_0000);
    NEXT.fetch_add(64 << 30, Ordering::Relaxed)
}

pub struct Rig {
    pub devices: Vec<Device>,
    pub driver: Driver,
    pub sim: Simulation,
}

impl Rig {
    /// One device.
    pub fn new() -> Rig {
        Rig::with(Simulation::builder())
    }

    /// So many devices that reach each other.
    pub fn of(devices: usize) -> Rig {
        Rig::with((0..devices).fold(Simulation::builder(), |builder, _| {
            builder.device(SimDevice::new())
        }))
    }

    pub fn with(builder: SimulationBuilder) -> Rig {
        let sim = builder.build().expect("a sound configuration");
        let driver = Driver::simulated(&sim).expect("no fault is pending");
        let devices = driver.devices().collect::<Result<_, _>>().unwrap();
        Rig {
            devices,
            driver,
            sim,
        }
    }

    pub fn device(&self) -> &Device {
        &self.devices[0]
    }

    /// Memory of device 0.
    pub fn props(&self) -> AllocationProps {
        AllocationProps::on(self.device())
    }

    /// So many granules that device 0 may read and write.
    pub fn reserve(&self, granules: usize) -> Reservation {
        Reservation::builder(granules * G)
            .access(self.device(), Access::ReadWrite)
            .reserve(&self.driver)
            .unwrap()
    }

    /// Runs what must be refused before the driver is called, changing nothing, and gives the error.
    pub fn refused<T>(
        &self,
        kv: &mut Reservation,
        run: impl FnOnce(&mut Reservation) -> Result<T, Error>,
    ) -> Error {
        let before = (self.sim.calls(), self.sim.snapshot(), kv.to_string());
        let Err(error) = run(kv) else {
            panic!("it was not refused:\n{kv}");
        };
        let after = (self.sim.calls(), self.sim.snapshot(), kv.to_string());
        assert_eq!(after, before, "{error}");
        error
    }

    /// Everything was given back: nothing is left, and nothing was done that a real driver would have died of.
    pub fn leaves_nothing(self) {
        let Rig {
            devices,
            driver,
            sim,
        } = self;
        drop((devices, driver));
        let left = sim.snapshot();
        assert!(left.is_empty(), "something is left:\n{left}");
        assert_eq!(sim.misuses(), []);
    }
}

/// The error is this very one, all of its fields included.
#[track_caller]
pub fn same(error: &Error, expected: &Error) {
    assert_eq!(format!("{error:?}"), format!("{expected:?}"));
}

/// The error is this very one, and says so in these words.
#[track_caller]
pub fn says(error: &Error, expected: &Error, text: &str) {
    same(error, expected);
    assert_eq!(error.to_string(), text);
}
