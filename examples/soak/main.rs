//! Many operations for a long time: whether memory comes back, the device's and the process's.
//!
//!     soak [CYCLES]
//!
//! For `CUDA_VMM_SOAK_SECONDS` (10) it does three things in turns, chosen at random: it maps, writes, reads, mirrors,
//! grants and unmaps on several reservations, in sizes of up to 8 GiB on a GPU; it commits, decommits, resizes, splits,
//! trims and copies in elastic ranges, in blocks of up to 1 GiB there; and it suspends and resumes the group that these
//! ranges are in, with their contents and without. Everything that is read is held against what must be there. Then it
//! opens a reservation and an elastic range, maps, suspends, resumes, and closes them, CYCLES times (200). It ends with
//! a failure if the free bytes of the device are not back within one granule, or if the process has grown by more than
//! [`cycles::GROWTH`].
//!
//! Runs on this machine's GPU; without one on the simulated driver, in small sizes, which it says. `CUDA_VMM_SOAK_SEED`
//! (1) chooses the operations.

mod cycles;
mod elastic;
mod groups;
#[path = "../machine/mod.rs"]
mod machine;
mod random;
mod reservations;

use std::env;
use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cuda_vmm::{AllocationProps, Error};
use groups::Sleepers;
use machine::Machine;
use random::Random;
use reservations::Reservations;

/// The largest mapping on a GPU, and on a simulated one, whose memory is the machine's own.
const LARGEST: (usize, usize) = (8 << 30, 16 << 20);
/// All mappings together: on a GPU more than there is, so that it runs out.
const MAPPED: (usize, usize) = (usize::MAX / 2, 1 << 30);
/// The largest block of an elastic range.
const LARGEST_BLOCK: (usize, usize) = (1 << 30, 16 << 20);
/// The size of an elastic range.
const RANGE: (usize, usize) = (4 << 30, 64 << 20);

type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => {
            println!("soak: nothing was lost");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("soak: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let cycles = env::args().nth(1).map_or(Ok(200), |text| text.parse())?;
    let seconds = variable("CUDA_VMM_SOAK_SECONDS", 10)?;
    let seed = variable("CUDA_VMM_SOAK_SEED", 1)?;
    let machine = Machine::find()?;
    println!("driver: {machine}\nseed: {seed}");
    let driver = &machine.driver;
    let device = driver.device(0)?;
    // With no context in the process the driver would set the device up anew for every grant.
    let _context = device.make_current()?;
    let props = AllocationProps::on(&device);
    let granule = props.granularity()?.minimum();
    let pick = |(real, simulated): (usize, usize)| match machine.simulated {
        None => real,
        Some(_) => simulated,
    };

    let mut random = Random(seed);
    let for_reservations = Random(random.bits());
    let bounds = [pick(LARGEST), pick(MAPPED)];
    let mut kvs = Reservations::start(driver, &device, &props, bounds, for_reservations)?;
    let sizes = groups::Sizes {
        range: pick(RANGE),
        block: pick(LARGEST_BLOCK),
    };
    let mut sleepers = Sleepers::new(driver, &props, sizes, Random(random.bits()))?;
    // What the driver keeps for itself of the first registered memory is not lost.
    sleepers.open()?;
    sleepers.nap()?;
    sleepers.close()?;
    let before = device.free_memory()?;
    sleepers.open()?;

    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut done, mut short) = (0u64, 0u64);
    while Instant::now() < end {
        let outcome = match random.below(3) {
            0 => sleepers.operation(),
            _ => kvs.operation(),
        };
        done += 1;
        match outcome {
            Ok(()) => {}
            Err(error) if is_out_of_memory(&*error) => {
                short += 1;
                kvs.make_room()?;
                sleepers.make_room()?;
            }
            Err(error) => return Err(error),
        }
    }
    // First, so that there is room for those that sleep.
    kvs.end()?;
    sleepers.nap()?;
    let played = sleepers.played();
    sleepers.close()?;
    let after = device.free_memory()?;
    println!("{done} operations in {seconds} s, {short} of them out of memory");
    println!("of these: {played}");
    println!("free bytes: {before} before, {after} after");
    if before.abs_diff(after) > granule {
        return Err(format!("more than one granule ({granule} bytes) is missing").into());
    }
    if driver.quarantined() != 0 {
        return Err("the driver did not take everything back".into());
    }
    cycles::run(driver, &device, &props, cycles)
}

fn is_out_of_memory(error: &(dyn StdError + 'static)) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(Error::is_out_of_memory)
}

/// An error, unless it is as it should be.
fn must(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    match holds {
        true => Ok(()),
        false => Err(otherwise().into()),
    }
}

fn variable(name: &str, otherwise: u64) -> Outcome<u64> {
    match env::var(name) {
        Ok(text) => Ok(text
            .parse()
            .map_err(|error| format!("{name} is {text:?}: {error}"))?),
        Err(_) => Ok(otherwise),
    }
}
