//! The main job from beginning to end: reserve, map, grant, write, read, mirror, unmap, close.
//!
//! Runs on this machine's GPU; without one on the simulated driver, which it says. Everything it claims it verifies,
//! and it ends with a failure if one claim does not hold.

mod machine;

use std::error::Error as StdError;
use std::process::ExitCode;

use cuda_vmm::{Access, AllocationProps, Driver, Error, Reservation};
use machine::Machine;

/// What is mapped at a time. The free bytes of a GPU may move by less, when the driver takes some for itself.
const CHUNK: usize = 16 << 20;

type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => {
            println!("\nquickstart: all as it should be");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nquickstart: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let machine = Machine::find()?;
    println!("driver: {machine}");

    // Asking for free memory once makes the driver create what it keeps for itself, so that it is not taken for a leak.
    free_memory(&machine.driver)?;
    let (free, snapshot) = (free_memory(&machine.driver)?, snapshot(&machine));
    use_memory(&machine.driver)?;

    println!("\nWhat is left");
    let free_now = free_memory(&machine.driver)?;
    println!("  free bytes on device 0: {free} before, {free_now} after");
    match &machine.simulated {
        Some((simulation, _)) => verify(
            "the simulated driver is in the very state of before",
            Some(simulation.snapshot()) == snapshot,
        ),
        None => verify(
            "no chunk is missing (other programs may take memory meanwhile)",
            free_now + CHUNK > free,
        ),
    }
}

fn use_memory(driver: &Driver) -> Outcome {
    let device = driver.device(0)?;
    println!("device: {}", device.name()?);

    // Sizes are bytes, and multiples of the granularity of the memory that is to be mapped.
    let props = AllocationProps::on(&device);
    let chunk = props.granularity()?.round_up(CHUNK).ok_or("too large")?;

    // Addresses only; they cost no memory. What is mapped later is for the device to read and write.
    let mut kv = Reservation::builder(16 * chunk)
        .access(&device, Access::ReadWrite)
        .reserve(driver)?;
    println!("\nReserved\n{kv}");

    // Each map creates memory, maps it and grants access: all three, or nothing.
    let first = kv.map(0, chunk, &props)?;
    kv.map(chunk, 2 * chunk, &props)?;
    kv.map(3 * chunk, chunk, &props)?;

    // One allocation at two neighbouring places: what is written over the end of the first is at the start of it.
    let ring = props.create(chunk)?;
    kv.map_existing(8 * chunk, &ring)?;
    kv.map_existing(9 * chunk, &ring)?;
    drop(ring); // The mappings keep the memory.
    println!("Mapped\n{kv}");

    println!("Contents");
    let pattern: Vec<u8> = (0..4 * chunk).map(|byte| (byte % 251) as u8).collect();
    kv.write(0, &pattern)?;
    let mut back = vec![0; pattern.len()];
    kv.read(0, &mut back)?;
    verify(
        "a pattern over three mappings and their seams reads back",
        back == pattern,
    )?;

    kv.write(9 * chunk - 4, b"seamless")?;
    let (mut start, mut end) = ([0; 4], [0; 4]);
    kv.read(8 * chunk, &mut start)?;
    kv.read(10 * chunk - 4, &mut end)?;
    verify(
        "the ring's end runs on into its start",
        (&end, &start) == (b"seam", b"less"),
    )?;

    kv.set_access(3 * chunk, chunk, &device, Access::Read)?;
    verify(
        "the driver confirms that the fourth chunk is now read-only",
        kv.access_of(3 * chunk, &device)? == Access::Read,
    )?;

    verify(
        "and a write to it is refused",
        matches!(kv.write(3 * chunk, b"no"), Err(Error::NoAccess { .. })),
    )?;

    println!("\nMistakes, and the answers");
    // The driver itself would map over the end of a reservation, and unmap across a hole, and say SUCCESS.
    refused(
        "map over the end",
        kv.map(15 * chunk, 2 * chunk, &props),
        |error| matches!(error, Error::OutOfRange { .. }),
    )?;
    refused(
        "unmap a range with a hole in it",
        kv.unmap_range(0, 10 * chunk),
        |error| matches!(error, Error::Hole { .. }),
    )?;
    refused(
        "map a size that is no multiple",
        kv.map(5 * chunk, 6912, &props),
        |error| matches!(error, Error::Misaligned { .. }),
    )?;

    // Unmapping does not wait: work that uses the memory must have ended. Copies of this crate have when they return.
    kv.unmap(first)?;
    println!("\nAfter one unmap\n{kv}");
    kv.close()?; // Consumes the reservation: no use after it compiles.
    verify("nothing waits to be given back", driver.quarantined() == 0)
}

fn verify(claim: &str, holds: bool) -> Outcome {
    if !holds {
        return Err(format!("not so: {claim}").into());
    }
    println!("  ok: {claim}");
    Ok(())
}

fn refused<T>(what: &str, answer: Result<T, Error>, expected: fn(&Error) -> bool) -> Outcome {
    match answer {
        Err(error) if expected(&error) => {
            println!("  {what}:\n    {error}");
            Ok(())
        }
        Err(error) => Err(format!("{what}: refused for another reason: {error}").into()),
        Ok(_) => Err(format!("{what}: was not refused").into()),
    }
}

fn free_memory(driver: &Driver) -> Outcome<usize> {
    Ok(driver.device(0)?.free_memory()?)
}

fn snapshot(machine: &Machine) -> Option<cuda_vmm::sim::Snapshot> {
    let (simulation, _) = machine.simulated.as_ref()?;
    Some(simulation.snapshot())
}
