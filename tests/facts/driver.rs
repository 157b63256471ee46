//! The driver that a case runs on.

use std::sync::Arc;

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::sys::{CUstream, DriverCalls};

use crate::support;
use crate::support::simcuda::Simcuda;
use crate::support::which::Which;

/// A driver that was not initialised yet, unless it is the machine's own and an earlier case did so.
pub struct Driver {
    calls: Arc<dyn DriverCalls>,
    /// The simulated driver's own handle, where it is that one.
    pub sim: Option<Arc<Simulation>>,
    /// The controls of the machine's own, where that is the simulated driver too, as a library.
    simcuda: Option<&'static Simcuda>,
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
                    simcuda: None,
                }
            }
            Which::Gpu => Driver {
                calls: support::real().expect("cases for the real driver run only where it is"),
                sim: None,
                simcuda: Simcuda::find(),
            },
        }
    }

    /// Everything a simulated driver holds.
    pub fn snapshot(&self) -> Option<String> {
        match (&self.sim, self.simcuda) {
            (Some(sim), _) => Some(sim.snapshot().to_string()),
            (None, simcuda) => simcuda.map(Simcuda::snapshot),
        }
    }

    /// What a real driver would have died of, one a line.
    pub fn misuses(&self) -> Option<String> {
        match (&self.sim, self.simcuda) {
            (Some(sim), _) => Some(
                sim.misuses()
                    .iter()
                    .map(|each| format!("{each}\n"))
                    .collect(),
            ),
            (None, simcuda) => simcuda.map(Simcuda::misuses),
        }
    }

    /// Whether it is simulated: in this program, or behind the loader.
    pub fn simulated(&self) -> bool {
        self.sim.is_some() || self.simcuda.is_some()
    }

    /// Holds back the work of a stream on a simulated driver, where it would be done at once. On real hardware it takes
    /// its time.
    pub fn hold_stream(&self, stream: CUstream) {
        let held = match (&self.sim, self.simcuda) {
            (Some(sim), _) => sim.hold_stream(stream),
            (None, Some(simcuda)) => simcuda.hold_stream(stream),
            (None, None) => true,
        };
        assert!(held, "a stream that was just created");
    }

    /// Lets a held stream run.
    pub fn release_stream(&self, stream: CUstream) {
        let released = match (&self.sim, self.simcuda) {
            (Some(sim), _) => sim.release_stream(stream),
            (None, Some(simcuda)) => simcuda.release_stream(stream),
            (None, None) => true,
        };
        assert!(released, "a stream that is held");
    }

    pub fn calls(&self) -> &dyn DriverCalls {
        &*self.calls
    }

    /// The calls, to be kept beyond the driver's own life.
    pub fn share(&self) -> Arc<dyn DriverCalls> {
        self.calls.clone()
    }
}
