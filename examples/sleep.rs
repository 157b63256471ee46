//! An engine that gives its memory back while it sleeps: 4 GiB suspended and resumed at the same addresses, with their
//! contents dropped and with their contents kept on the host, timed, and verified by checksum.
//!
//! Runs on this machine's GPU; without one on the simulated driver with 64 MiB, which it says, and whose times mean
//! nothing. `sleep MIB` takes another size. Everything it claims it verifies, and it ends with a failure if one claim
//! does not hold.

mod machine;

use std::cell::RefCell;
use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cuda_vmm::suspend::{Backup, Group, Key, Select};
use cuda_vmm::{Access, AllocationProps, Driver, Error, Reservation};
use machine::Machine;

const MIB: usize = 1 << 20;
/// What is mapped at a time.
const CHUNK: usize = 64 * MIB;
const CYCLES: usize = 3;

type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => {
            println!("\nsleep: all as it should be");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nsleep: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let machine = Machine::find()?;
    println!("driver: {machine}");
    let size = match (std::env::args().nth(1), &machine.simulated) {
        (Some(mib), _) => mib.parse::<usize>()? * MIB,
        (None, Some(_)) => 64 * MIB,
        (None, None) => 4096 * MIB,
    };
    let driver = &machine.driver;
    let device = driver.device(0)?;
    let _context = device.make_current()?;
    println!(
        "device: {}, {} MiB to be suspended",
        device.name()?,
        size / MIB
    );

    let contents = Written::new(size);
    for (kind, keep) in [
        (Backup::None, false),
        (Backup::Host, false),
        (Backup::Host, true),
    ] {
        println!("\n{}", heading(kind, keep));
        let mut engine = Group::new(driver).keep_host_memory(keep);
        let kv = reserve(driver, size)?;
        let base = kv.base();
        let key = engine.add(kv, "weights", kind)?;
        for cycle in 1..=CYCLES {
            sleep_and_wake(&mut engine, &key, &contents, (cycle, base, kind))?;
        }
        engine.close()?;
    }
    verify("nothing waits to be given back", driver.quarantined() == 0)
}

fn heading(backup: Backup, keep: bool) -> &'static str {
    match (backup, keep) {
        (Backup::None, _) => "Contents dropped",
        (Backup::Host, false) => "Contents kept on the host, whose memory is made anew each time",
        (Backup::Host, true) => "Contents kept on the host, whose memory is kept too",
    }
}

/// Addresses for twice as much, of which every second chunk is mapped.
fn reserve(driver: &Driver, size: usize) -> Outcome<Reservation> {
    let device = driver.device(0)?;
    let props = AllocationProps::on(&device);
    let chunk = CHUNK.min(size);
    let mut kv = Reservation::builder(2 * size.next_multiple_of(chunk))
        .access(&device, Access::ReadWrite)
        .reserve(driver)?;
    for at in 0..size.div_ceil(chunk) {
        kv.map(2 * at * chunk, chunk.min(size - at * chunk), &props)?;
    }
    Ok(kv)
}

fn sleep_and_wake(
    engine: &mut Group,
    key: &Key<Reservation>,
    contents: &Written,
    (cycle, base, kind): (usize, u64, Backup),
) -> Outcome {
    contents.write(engine.get_mut(key)?)?;
    let device = engine.get(key)?.driver().device(0)?;
    let awake = device.free_memory()?;

    let start = Instant::now();
    let asleep = engine.suspend(key)?;
    let suspended = start.elapsed();
    let risen = device.free_memory()?.saturating_sub(awake);
    let refused = engine.get(key).map(drop);
    if !matches!(refused, Err(Error::Suspended { .. })) {
        return Err("a member that sleeps was lent".into());
    }

    let start = Instant::now();
    engine.resume(Select::All)?;
    let resumed = start.elapsed();
    println!(
        "  cycle {cycle}: {} MiB given back ({} MiB more are free); suspended in {}, resumed in {}",
        asleep.given_back / MIB,
        risen / MIB,
        shown(suspended, asleep.copied),
        shown(resumed, asleep.copied)
    );
    // Other programs may take and give meanwhile, but not the most of it.
    verify(
        "the memory that was given back is free for others",
        asleep.given_back == contents.size && risen > contents.size / 2,
    )?;
    let kv = engine.get(key)?;
    verify("the addresses are the same", kv.base() == base)?;
    let expected = match kind {
        Backup::Host => contents.checksum,
        Backup::None => contents.of_zeroes,
    };
    verify(
        "and so is the checksum of what is there",
        contents.of(kv)? == expected,
    )
}

fn shown(time: Duration, copied: usize) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match copied {
        0 => format!("{ms:.2} ms"),
        bytes => {
            let rate = bytes as f64 / time.as_secs_f64() / 1e9;
            format!("{ms:.1} ms ({rate:.1} GB/s)")
        }
    }
}

/// Bytes that differ from place to place, and their checksum.
struct Written {
    size: usize,
    bytes: Vec<u8>,
    checksum: u64,
    /// What zeroes come to.
    of_zeroes: u64,
    /// Where to read to: memory that was touched before is read to faster.
    back: RefCell<Vec<u8>>,
}

impl Written {
    fn new(size: usize) -> Written {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut bytes = vec![0; size];
        for word in bytes.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let back = vec![0; size];
        Written {
            size,
            checksum: checksum(&bytes),
            of_zeroes: checksum(&back),
            bytes,
            back: back.into(),
        }
    }

    fn write(&self, kv: &mut Reservation) -> Outcome {
        let ranges: Vec<_> = kv.mappings().map(|one| one.range()).collect();
        let mut at = 0;
        for range in ranges {
            kv.write(range.start, &self.bytes[at..at + range.len()])?;
            at += range.len();
        }
        Ok(())
    }

    /// The checksum of what is mapped now.
    fn of(&self, kv: &Reservation) -> Outcome<u64> {
        let mut bytes = self.back.borrow_mut();
        bytes.fill(1);
        let mut at = 0;
        for mapping in kv.mappings() {
            let end = at + mapping.size();
            kv.read(mapping.offset(), &mut bytes[at..end])?;
            at = end;
        }
        Ok(checksum(&bytes))
    }
}

/// FNV-1a, over words.
fn checksum(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let words = bytes.chunks_exact(8).map(word);
    words.fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        (sum ^ word).wrapping_mul(0x100_0000_01b3)
    })
}

fn verify(claim: &str, holds: bool) -> Outcome {
    match holds {
        true => Ok(()),
        false => Err(format!("not so: {claim}").into()),
    }
}
