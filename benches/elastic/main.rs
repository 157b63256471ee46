//! What elastic ranges and suspending cost, against the driver's raw calls in the same run.
//!
//! On a machine with a GPU the driver is the real one, and every figure has its target beside it. Without one the same
//! runs on the simulated driver, in smaller sizes, where only the crate's own part is worth a look. Figures are medians
//! of rounds taken in turns; a ratio is of two medians of the same run.
//!
//! | variable | |
//! |---|---|
//! | `CUDA_VMM_BENCH_TSV` | a file for the figures: name, microseconds of the crate, of what it is held against, ratio, target, driver |
//! | `CUDA_VMM_BENCH_FIRST` | `1`: only the first growth of a process is measured, for `compare.py` |
//! | `CUDA_VMM_REQUIRE_GPU` | `1`: a missing GPU is a failure |
#![allow(clippy::undocumented_unsafe_blocks, missing_docs)]

mod bookkeeping;
mod commits;
mod copies;
mod raw;
mod report;
mod suspend;
#[path = "../common/turns.rs"]
mod turns;

use std::time::{Duration, Instant};

use cuda_vmm::sim::{LogMode, Simulation};
use cuda_vmm::{Access, AllocationProps, Device, Driver, ElasticRange, ElasticRangeBuilder};

use report::Report;

/// The driver, its first device, and how much of everything there is.
struct Bench {
    driver: Driver,
    device: Device,
    /// The granularity.
    g: usize,
    real: bool,
}

impl Bench {
    /// Long enough for the driver to clear a few gigabytes. Not asleep: a processor that wakes up is slow at first.
    fn rest(&self) {
        let until = Instant::now() + Duration::from_millis(40);
        while self.real && Instant::now() < until {
            std::hint::spin_loop();
        }
    }

    fn find() -> Bench {
        let (driver, real) = match Driver::load() {
            Ok(driver) if driver.device_count() > 0 => (driver, true),
            found => {
                let why = found.map_or_else(|error| error.to_string(), |_| "no device".into());
                if std::env::var_os("CUDA_VMM_REQUIRE_GPU").is_some_and(|value| value == "1") {
                    eprintln!("CUDA_VMM_REQUIRE_GPU is 1, but: {why}");
                    std::process::exit(1);
                }
                println!("SIMULATED, so the targets mean nothing: {why}");
                let simulation = Simulation::builder().log(LogMode::Off).build();
                let simulation = simulation.expect("a sound configuration");
                (Driver::simulated(&simulation).expect("it starts"), false)
            }
        };
        let device = driver.device(0).expect("device 0");
        let granularity = AllocationProps::on(&device).granularity();
        Bench {
            g: granularity.expect("granularity").minimum(),
            driver,
            device,
            real,
        }
    }

    fn builder(&self, size: usize) -> ElasticRangeBuilder {
        ElasticRange::builder(size, &AllocationProps::on(&self.device))
            .access(&self.device, Access::ReadWrite)
    }

    /// The first on a GPU, the second where it is simulated.
    fn pick<T>(&self, real: T, simulated: T) -> T {
        match self.real {
            true => real,
            false => simulated,
        }
    }
}

fn main() {
    let bench = Bench::find();
    let name = bench.device.name().unwrap_or_default();
    println!("device: {name}, driver {}", bench.driver.version());
    if std::env::var_os("CUDA_VMM_BENCH_FIRST").is_some_and(|value| value == "1") {
        let _current = bench.device.make_current().expect("context");
        return commits::first(&bench);
    }
    let mut report = Report::new(format!("{name}, {}", bench.driver.version()));
    {
        // With no context in the process the driver takes thirty times as long.
        let _current = bench.device.make_current().expect("context");
        commits::at_once(&bench, &mut report);
        commits::in_steps(&bench, &mut report);
        commits::at_random(&bench, &mut report);
        copies::compare(&bench, &mut report);
        suspend::compare(&bench, &mut report);
    }
    bookkeeping::flatness(&mut report);
    report.write();
}
