//! The two drivers a case runs on.

use std::fmt;
use std::sync::Arc;

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::sys::DriverCalls;

use crate::support;

/// Which driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The simulated one.
    Sim,
    /// The machine's own.
    Gpu,
}

impl Which {
    pub const BOTH: [Which; 2] = [Which::Sim, Which::Gpu];
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Which::Sim => "sim",
            Which::Gpu => "gpu",
        })
    }
}

/// A driver that was not initialised yet, unless it is the machine's own and an earlier case did so.
pub struct Driver {
    calls: Arc<dyn DriverCalls>,
    /// The simulated driver's own handle, where it is that one.
    pub sim: Option<Arc<Simulation>>,
}

impl Driver {
    /// Opens the driver; a simulated one gets so many devices.
    pub fn open(which: Which, devices: usize) -> Driver {
        match which {
            Which::Sim => {
                let builder = (0..devices).fold(Simulation::builder(), |builder, _| {
                    builder.device(SimDevice::new())
                });
                let sim = Arc::new(builder.build().expect("a simulated driver"));
                Driver {
                    calls: sim.clone(),
                    sim: Some(sim),
                }
            }
            Which::Gpu => Driver {
                calls: support::real().expect("cases for the real driver run only where it is"),
                sim: None,
            },
        }
    }

    pub fn calls(&self) -> &dyn DriverCalls {
        &*self.calls
    }

    /// The calls, to be kept beyond the driver's own life.
    pub fn share(&self) -> Arc<dyn DriverCalls> {
        self.calls.clone()
    }
}
