//! The driver the examples run on: this machine's, or a simulated one where there is none.

use std::fmt;

use cuda_vmm::sim::Simulation;
use cuda_vmm::{Driver, Result};

/// Set to `1` on a machine that must have a GPU: the examples then refuse to simulate one.
const REQUIRE_GPU: &str = "CUDA_VMM_REQUIRE_GPU";

pub struct Machine {
    pub driver: Driver,
    /// The simulated driver and why it is used, where it is.
    pub simulated: Option<(Simulation, String)>,
}

impl Machine {
    pub fn find() -> Result<Machine, String> {
        let why = match Driver::load() {
            Ok(driver) if driver.device_count() > 0 => {
                return Ok(Machine {
                    driver,
                    simulated: None,
                });
            }
            Ok(_) => "the driver has no device".to_owned(),
            Err(error) => error.to_string(),
        };
        if std::env::var_os(REQUIRE_GPU).is_some_and(|value| value == "1") {
            return Err(format!("{REQUIRE_GPU} is 1, but: {why}"));
        }
        let simulation = Simulation::new();
        let driver = Driver::simulated(&simulation).map_err(|error| error.to_string())?;
        Ok(Machine {
            driver,
            simulated: Some((simulation, why)),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.simulated, self.driver.path()) {
            (Some((_, why)), _) => {
                write!(f, "SIMULATED, as this machine has no usable GPU: {why}")
            }
            (None, Some(path)) => f.write_str(&path.display().to_string()),
            (None, None) => f.write_str("this machine's"),
        }
    }
}
