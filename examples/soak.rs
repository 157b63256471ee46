//! Many operations for a long time: whether memory comes back, the device's and the process's.
//!
//!     soak [CYCLES]
//!
//! For `CUDA_VMM_SOAK_SECONDS` (10) it maps, writes, reads, mirrors, grants and unmaps on several reservations, in
//! sizes of up to 8 GiB on a GPU. Then it opens a reservation, maps, and closes it CYCLES times (200). It ends with a
//! failure if the free bytes of the device are not back within one granule, or if the process has grown by more than
//! [`GROWTH`].
//!
//! Runs on this machine's GPU; without one on the simulated driver, in small sizes, which it says. `CUDA_VMM_SOAK_SEED`
//! (1) chooses the operations.

mod machine;

use std::env;
use std::error::Error as StdError;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cuda_vmm::{Access, Allocation, AllocationProps, Device, Driver, Error, Reservation};
use machine::Machine;

/// What the process may grow by over all cycles: 10,000 cycles that lose 105 bytes each are found.
const GROWTH: usize = 1 << 20;
/// Cycles that are not counted: they fill the caches of the driver and the allocator, and the simulated driver's log.
const WARM_UP: usize = 1_000;
const RESERVATIONS: usize = 4;
/// Granules in each reservation: 64 GiB where a granule is 2 MiB. All together are more than a GPU has memory, so that
/// it runs out.
const GRANULES: usize = 32 << 10;
/// The largest mapping on a GPU, and on a simulated one, whose memory is the machine's own.
const LARGEST: (usize, usize) = (8 << 30, 16 << 20);
/// Allocations of the caller's at a time, for mirrors.
const PAGES: usize = 8;

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
    let device = machine.driver.device(0)?;
    // With no context in the process the driver would set the device up anew for every grant.
    let _context = device.make_current()?;
    let props = AllocationProps::on(&device);
    let granule = props.granularity()?.minimum();
    let largest = match machine.simulated {
        None => LARGEST.0,
        Some(_) => LARGEST.1,
    };

    let mut soak = Soak::start(&machine.driver, &device, &props, largest, Random(seed))?;
    let before = device.free_memory()?;
    let (done, short) = soak.run_for(Duration::from_secs(seconds))?;
    soak.end()?;
    let after = device.free_memory()?;
    println!("{done} operations in {seconds} s, {short} of them out of memory");
    println!("free bytes: {before} before, {after} after");
    if before.abs_diff(after) > granule {
        return Err(format!("more than one granule ({granule} bytes) is missing").into());
    }
    if machine.driver.quarantined() != 0 {
        return Err("the driver did not take everything back".into());
    }
    cycle(&machine.driver, &device, &props, cycles)
}

/// Opens, maps and closes, and looks at the process's memory.
fn cycle(driver: &Driver, device: &Device, props: &AllocationProps, cycles: usize) -> Outcome {
    let granule = props.granularity()?.minimum();
    let once = || -> Outcome {
        let mut kv = Reservation::builder(64 * granule)
            .access(device, Access::ReadWrite)
            .reserve(driver)?;
        kv.map(0, granule, props)?;
        kv.map(2 * granule, 2 * granule, props)?;
        kv.write(0, b"cycle")?;
        Ok(kv.close()?)
    };
    (0..WARM_UP).try_for_each(|_| once())?;
    let before = resident()?;
    (0..cycles).try_for_each(|_| once())?;
    let after = resident()?;
    println!("{cycles} cycles: {before} bytes resident before, {after} after");
    match after.saturating_sub(before) {
        grown if grown > GROWTH => Err(format!("the process grew by {grown} bytes").into()),
        _ => Ok(()),
    }
}

/// A mapping, with the byte that it was filled with.
struct Filled {
    offset: usize,
    size: usize,
    value: u8,
}

struct Soak<'a> {
    device: &'a Device,
    props: &'a AllocationProps,
    granule: usize,
    largest: usize,
    random: Random,
    kvs: Vec<(Reservation, Vec<Filled>)>,
    pages: Vec<Allocation>,
}

impl<'a> Soak<'a> {
    fn start(
        driver: &Driver,
        device: &'a Device,
        props: &'a AllocationProps,
        largest: usize,
        random: Random,
    ) -> Outcome<Self> {
        let granule = props.granularity()?.minimum();
        let reserve = |_| {
            Reservation::builder(GRANULES * granule)
                .access(device, Access::ReadWrite)
                .reserve(driver)
                .map(|kv| (kv, Vec::new()))
        };
        Ok(Soak {
            device,
            props,
            granule,
            largest,
            random,
            kvs: (0..RESERVATIONS).map(reserve).collect::<Result<_, _>>()?,
            pages: Vec::new(),
        })
    }

    /// How many operations there were, and how many of them found no memory.
    fn run_for(&mut self, time: Duration) -> Outcome<(u64, u64)> {
        let end = Instant::now() + time;
        let (mut done, mut short) = (0, 0);
        while Instant::now() < end {
            match self.operation() {
                Ok(()) => done += 1,
                Err(error) if is_out_of_memory(&*error) => {
                    (done, short) = (done + 1, short + 1);
                    self.make_room()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((done, short))
    }

    fn operation(&mut self) -> Outcome {
        let at = self.random.below(RESERVATIONS);
        match self.random.below(16) {
            0..6 => self.map(at),
            6..10 => self.unmap(at),
            10 => self.mirror(at),
            11 => self.page(),
            12 => self.rights(at),
            _ => self.check(at),
        }
    }

    /// Small sizes mostly, each power of two as often as the next.
    fn size(&mut self) -> usize {
        let most = (self.largest / self.granule).ilog2() as usize;
        let power = 1 << self.random.below(most + 1);
        (power + self.random.below(power)).min(self.largest / self.granule) * self.granule
    }

    /// A hole that is long enough, or none.
    fn hole(&mut self, at: usize, size: usize) -> Option<usize> {
        let long_enough = |hole: &std::ops::Range<usize>| hole.len() >= size;
        let holes: Vec<_> = self.kvs[at].0.holes().filter(long_enough).collect();
        let hole = holes.get(self.random.below(holes.len().max(1)))?;
        let room = (hole.len() - size) / self.granule;
        Some(hole.start + self.random.below(room + 1) * self.granule)
    }

    fn map(&mut self, at: usize) -> Outcome {
        let size = self.size();
        let Some(offset) = self.hole(at, size) else {
            return self.unmap(at);
        };
        let releasing = self.random.below(4) == 0;
        let (kv, filled) = &mut self.kvs[at];
        match releasing {
            true => kv.map_releasing(offset, size, self.props)?,
            false => kv.map(offset, size, self.props)?,
        };
        let value = self.random.below(256) as u8;
        filled.push(Filled {
            offset,
            size,
            value,
        });
        Ok(kv.fill(offset, size, value)?)
    }

    fn unmap(&mut self, at: usize) -> Outcome {
        let (kv, filled) = &mut self.kvs[at];
        if filled.is_empty() {
            return Ok(());
        }
        let Filled { offset, size, .. } = filled.swap_remove(self.random.below(filled.len()));
        Ok(kv.unmap_range(offset, size)?)
    }

    /// Maps a page, looks at it through the mapping, and unmaps it.
    fn mirror(&mut self, at: usize) -> Outcome {
        if self.pages.is_empty() {
            return self.page();
        }
        let page = self.random.below(self.pages.len());
        let Some(offset) = self.hole(at, self.pages[page].size()) else {
            return Ok(());
        };
        let kv = &mut self.kvs[at].0;
        let block = kv.map_existing(offset, &self.pages[page])?;
        kv.write(offset, b"mirror")?;
        let retained = Allocation::retain(kv.driver(), kv.base() + offset as u64)?;
        kv.unmap(block)?;
        let block = kv.map_existing(offset, &retained)?;
        let mut back = [0; 6];
        kv.read(offset, &mut back)?;
        kv.unmap(block)?;
        retained.release()?;
        match &back == b"mirror" {
            true => Ok(()),
            false => Err("a mirror reads something else than was written".into()),
        }
    }

    fn page(&mut self) -> Outcome {
        if self.pages.len() == PAGES {
            let page = self.pages.swap_remove(self.random.below(PAGES));
            return Ok(page.release()?);
        }
        let size = self.size().min(256 * self.granule);
        self.pages.push(self.props.create(size)?);
        Ok(())
    }

    fn rights(&mut self, at: usize) -> Outcome {
        let (kv, filled) = &mut self.kvs[at];
        let Some(Filled { offset, size, .. }) = filled.first() else {
            return Ok(());
        };
        kv.set_access(*offset, *size, self.device, Access::Read)?;
        match kv.write(*offset, &[0]) {
            Err(Error::NoAccess { .. }) => {}
            answer => return Err(format!("a write to read-only memory: {answer:?}").into()),
        }
        Ok(kv.set_access(*offset, *size, self.device, Access::ReadWrite)?)
    }

    /// The first and the last bytes are still what they were filled with.
    fn check(&mut self, at: usize) -> Outcome {
        let (kv, filled) = &self.kvs[at];
        if filled.is_empty() {
            return Ok(());
        }
        let Filled {
            offset,
            size,
            value,
        } = filled[self.random.below(filled.len())];
        for start in [offset, offset + size - 64] {
            let mut bytes = [!value; 64];
            kv.read(start, &mut bytes)?;
            if bytes != [value; 64] {
                return Err(
                    format!("offset {start} reads something else than was filled in").into(),
                );
            }
        }
        Ok(())
    }

    /// Unmaps half of everything.
    fn make_room(&mut self) -> Outcome {
        for at in 0..RESERVATIONS {
            for _ in 0..self.kvs[at].1.len().div_ceil(2) {
                self.unmap(at)?;
            }
        }
        Ok(())
    }

    fn end(self) -> Outcome {
        for (kv, filled) in self.kvs {
            if kv.mapping_count() != filled.len() {
                return Err("there are mappings that nobody made".into());
            }
            kv.close()?;
        }
        for page in self.pages {
            page.release()?;
        }
        Ok(())
    }
}

fn is_out_of_memory(error: &(dyn StdError + 'static)) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(Error::is_out_of_memory)
}

/// Numbers that look random (SplitMix64): the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) % limit as u64) as usize
    }
}

/// Bytes of the process that are in memory.
fn resident() -> Outcome<usize> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1);
    let pages: usize = pages
        .ok_or("/proc/self/statm has no second field")?
        .parse()?;
    let smaps = fs::read_to_string("/proc/self/smaps")?;
    let page = smaps
        .lines()
        .find_map(|line| line.strip_prefix("KernelPageSize:"));
    let kib = page.and_then(|page| page.trim().strip_suffix(" kB"));
    let kib: usize = kib
        .ok_or("/proc/self/smaps names no page size")?
        .trim()
        .parse()?;
    Ok(pages * kib * 1024)
}

fn variable(name: &str, otherwise: u64) -> Outcome<u64> {
    match env::var(name) {
        Ok(text) => Ok(text
            .parse()
            .map_err(|error| format!("{name} is {text:?}: {error}"))?),
        Err(_) => Ok(otherwise),
    }
}
