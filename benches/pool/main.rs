//! What the pool costs, against the driver's raw calls in the same run.
//!
//! On a machine with a GPU the driver is the real one, and the targets hold. Without one the same runs on the simulated
//! driver, in smaller sizes, where only the order of events means something. Figures are medians in microseconds, of
//! rounds taken in turns; a ratio is of two medians of the same run.
//!
//! | variable | |
//! |---|---|
//! | `CUDA_VMM_BENCH_TSV` | a file for the rows: name, microseconds of the crate, of what it is compared with, ratio, target, verdict, driver |
//! | `CUDA_VMM_BENCH_ONLY` | one section: `publish`, `batch`, `copy-out`, `large`, `recycle`, `processes`, `many-live` or `own-part` |
//! | `CUDA_VMM_REQUIRE_GPU` | `1`: a missing GPU is a failure |
//!
//! # How the figures are taken
//!
//! | | |
//! |---|---|
//! | publish | from the call to the ticket; the slice is cancelled afterwards, not timed |
//! | copy out | from the ticket's bytes to the bytes in the target and the acknowledgement |
//! | raw copy | `cuMemcpyDtoDAsync` and `cuStreamSynchronize`, between memory of the same kinds |
//! | live slices | as many of 256 bytes, with a hole of 256 bytes behind each |
//! | recycle pass | one call of `Pool::recycle`; it fails the program if it makes a driver call |
//! | crate's own part | the same calls over a driver that leaves out copies, waits and events; changes of the context are made |
//! | between processes | see `processes.rs` |
#![allow(clippy::undocumented_unsafe_blocks, missing_docs)]

mod copy_out;
mod counted;
mod mailbox;
mod own_part;
mod processes;
mod publish;
mod recycle;
mod report;
mod rig;
#[path = "../common/turns.rs"]
mod turns;

use std::sync::Arc;

use cuda_vmm::sim::{LogMode, Simulation};
use cuda_vmm::sys::{DriverCalls, Library};
use cuda_vmm::{AllocationProps, Device, Driver};

use counted::Counted;
use report::Report;

const SMALL: usize = 4 << 10;

/// The driver, its first device, and how much of everything there is.
struct Bench {
    driver: Driver,
    counted: Arc<Counted>,
    device: Device,
    granule: usize,
    real: bool,
}

impl Bench {
    fn find() -> Bench {
        let (driver, counted, real) = match Bench::load() {
            Ok((driver, counted)) => (driver, counted, true),
            Err(why) => {
                if std::env::var_os("CUDA_VMM_REQUIRE_GPU").is_some_and(|value| value == "1") {
                    eprintln!("CUDA_VMM_REQUIRE_GPU is 1, but: {why}");
                    std::process::exit(1);
                }
                eprintln!("SIMULATED, so the figures mean nothing: {why}");
                let simulation = Simulation::builder().log(LogMode::Off).build();
                let simulation = simulation.expect("a valid configuration");
                let counted = Arc::new(Counted::new(Arc::new(simulation)));
                let driver = Driver::from_calls(counted.clone()).expect("it starts");
                (driver, counted, false)
            }
        };
        let device = driver.device(0).expect("device 0");
        let granularity = AllocationProps::on(&device).granularity();
        Bench {
            granule: granularity.expect("granularity").recommended(),
            driver,
            counted,
            device,
            real,
        }
    }

    /// The machine's driver, or why it cannot be used.
    fn load() -> Result<(Driver, Arc<Counted>), String> {
        let library: Arc<dyn DriverCalls> =
            Arc::new(Library::open().map_err(|error| error.to_string())?);
        let counted = Arc::new(Counted::new(library));
        let driver = Driver::from_calls(counted.clone()).map_err(|error| error.to_string())?;
        match driver.device_count() {
            0 => Err("no device".to_owned()),
            _ => Ok((driver, counted)),
        }
    }

    /// The first on a GPU, the second on the simulated driver.
    fn pick<T>(&self, real: T, simulated: T) -> T {
        match self.real {
            true => real,
            false => simulated,
        }
    }
}

fn named(size: usize) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if size % unit == 0 {
            return format!("{} {name}", size / unit);
        }
    }
    format!("{size} B")
}

type Section = fn(&Bench, &mut Report);

/// In the order in which they run.
const SECTIONS: [(&str, Section); 8] = [
    ("publish", publish::small),
    ("batch", publish::batch),
    ("copy-out", copy_out::small),
    ("large", copy_out::large),
    ("recycle", recycle::passes),
    ("processes", processes::compare),
    ("many-live", publish::with_many_live),
    ("own-part", own_part::measure),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let bench = Bench::find();
    // Raw calls need a current context; it costs the crate's calls the same.
    let _current = bench.device.make_current().expect("a context");
    if let [role, name, descriptor] = &words[..] {
        if role == processes::CONSUMER {
            return processes::consume(&bench, name, descriptor.parse().expect("a descriptor"));
        }
    }
    let device = bench.device.name().unwrap_or_default();
    let driver = format!("{device}, {}", bench.driver.version());
    println!("device: {driver}");
    let mut report = Report::new(driver);
    let only = std::env::var("CUDA_VMM_BENCH_ONLY").ok();
    for (name, section) in SECTIONS {
        if only.as_ref().is_none_or(|only| only == name) {
            section(&bench, &mut report);
        }
    }
    if report.is_empty() {
        eprintln!("CUDA_VMM_BENCH_ONLY names no section");
        std::process::exit(2);
    }
    report.finish(!bench.real);
}
