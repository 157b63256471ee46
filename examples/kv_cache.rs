//! A key-value cache: many sequences that grow token by token and end, each at addresses of its own, in one range whose
//! memory comes and goes with them.
//!
//! A fixed allocation would hold the longest sequence that may come, for every slot, all the time. Here each slot has the
//! addresses for that, and memory for what it holds. Runs on this machine's GPU; without one on the simulated driver,
//! in smaller sizes. Everything it claims it verifies.

mod machine;

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::process::ExitCode;

use cuda_vmm::{Access, AllocationProps, Contents, Driver, ElasticRange};
use machine::Machine;

type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

/// How many sequences there can be at a time.
const SLOTS: usize = 24;

/// How many steps are played; in each, every sequence grows.
const STEPS: usize = 96;

/// After so many steps the range is drawn.
const DRAWN: usize = 24;

fn main() -> ExitCode {
    match run() {
        Ok(()) => {
            println!("\nkv_cache: all as it should be");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nkv_cache: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let machine = Machine::find()?;
    println!("driver: {machine}");
    let driver = &machine.driver;
    let device = driver.device(0)?;
    println!("device: {}", device.name()?);
    // Asking once makes the driver create what it keeps for itself, so that it is not taken for a leak.
    device.free_memory()?;
    let free = device.free_memory()?;
    // A GPU's slot has addresses for 1 GiB, a simulated one's for 64 MiB.
    let longest = match machine.simulated {
        None => 1 << 30,
        Some(_) => 64 << 20,
    };
    let mut cache = KvCache::new(driver, longest)?;
    cache.play()?;
    let block = cache.range.blocks().0;
    cache.range.close()?;
    until_full(driver, longest)?;

    println!("\nWhat is left");
    let left = device.free_memory()?;
    println!("  free bytes on device 0: {free} before, {left} after");
    verify(
        "no block is missing (other programs may take memory meanwhile)",
        left + block > free,
    )?;
    verify("nothing waits to be given back", driver.quarantined() == 0)
}

/// A sequence in a slot.
#[derive(Clone, Copy)]
struct Sequence {
    /// Its number, which its bytes are made of.
    number: u32,
    len: usize,
    /// Where it ends.
    end: usize,
}

struct KvCache {
    range: ElasticRange,
    /// Bytes of addresses for each slot.
    longest: usize,
    /// Bytes by which a sequence grows in a step.
    step: usize,
    slots: [Option<Sequence>; SLOTS],
    begun: u32,
    ended: u32,
    random: u64,
}

impl KvCache {
    fn new(driver: &Driver, longest: usize) -> Outcome<KvCache> {
        let device = driver.device(0)?;
        let props = AllocationProps::on(&device);
        let g = props.granularity()?.minimum();
        // Blocks of some granules ahead of need, and a few blocks at hand for the sequences that come next.
        let least = (longest / 16).max(g).next_power_of_two();
        let range = ElasticRange::builder(SLOTS * longest, &props)
            .access(&device, Access::ReadWrite)
            .blocks(least..=longest)
            .cache(4 * least)
            .contents(Contents::Zeroed)
            .reserve()?;
        println!(
            "{SLOTS} slots of {} MiB of addresses, blocks of {} MiB and more",
            longest >> 20,
            least >> 20
        );
        Ok(KvCache {
            range,
            longest,
            step: longest / 64,
            slots: [None; SLOTS],
            begun: 0,
            ended: 0,
            random: 1,
        })
    }

    fn play(&mut self) -> Outcome {
        let fixed = SLOTS * self.longest;
        let (mut most, mut sum) = (0, 0_u128);
        for step in 1..=STEPS {
            for slot in 0..SLOTS {
                self.advance(step, slot)?;
            }
            let held = self.range.retained_bytes() + self.range.cached_bytes();
            most = most.max(held);
            sum += held as u128;
            if step % DRAWN == 0 {
                println!("\nAfter {step} steps\n{}", bar(&self.range));
            }
        }
        let average = (sum / STEPS as u128) as usize;
        println!("\n{} sequences begun, {} ended", self.begun, self.ended);
        println!("  a fixed allocation holds {:>6} MiB, always", fixed >> 20);
        println!("  the range held           {:>6} MiB at most", most >> 20);
        println!("  and on average           {:>6} MiB", average >> 20);
        println!(
            "  saved                    {:>6} MiB on average, {} %",
            (fixed - average) >> 20,
            100 * (fixed - average) / fixed
        );
        verify("memory was saved", most < fixed)?;
        verify(
            "sequences began and ended",
            self.ended > 0 && self.begun > self.ended,
        )?;
        for slot in 0..SLOTS {
            if let Some(sequence) = self.slots[slot] {
                self.check(slot, sequence)?;
                self.end(slot)?;
            }
        }
        verify(
            "every sequence that was left held its own bytes to the last",
            self.range.is_empty(),
        )?;
        verify(
            "with the last sequence all blocks went, but for those at hand",
            self.range.retained_bytes() == 0,
        )?;
        self.range.trim(0)?;
        verify("and those can be let go", self.range.cached_bytes() == 0)
    }

    /// Ends a sequence, or lets it grow, or begins one.
    fn advance(&mut self, step: usize, slot: usize) -> Outcome {
        match self.slots[slot] {
            Some(sequence) if sequence.len >= sequence.end => {
                self.check(slot, sequence)?;
                self.end(slot)
            }
            Some(sequence) => self.grow(slot, sequence),
            // A slot stays empty for some steps.
            None if step % 4 == slot % 4 => {
                let steps = 1 + self.below(48);
                self.begun += 1;
                let sequence = Sequence {
                    number: self.begun,
                    len: 0,
                    end: steps * self.step,
                };
                self.grow(slot, sequence)
            }
            None => Ok(()),
        }
    }

    /// Commits what the next tokens need, which mostly is committed already, and writes them.
    fn grow(&mut self, slot: usize, mut sequence: Sequence) -> Outcome {
        let start = slot * self.longest;
        let g = self.range.granularity();
        let (old, new) = (sequence.len, sequence.len + self.step);
        let needed = new.next_multiple_of(g);
        let fresh = self.range.commit(start, needed)?.bytes;
        if fresh > 0 {
            // Zeroes were promised: nobody reads what another sequence left.
            let mut first = [1; 64];
            self.range.read(start + needed - fresh, &mut first)?;
            if first != [0; 64] {
                return Err("not so: what is committed anew reads as zero".into());
            }
        }
        self.range
            .fill(start + old, self.step, sequence.number as u8)?;
        sequence.len = new;
        self.slots[slot] = Some(sequence);
        Ok(())
    }

    /// The first, a middle, and the last bytes are the sequence's own.
    fn check(&self, slot: usize, sequence: Sequence) -> Outcome {
        let start = slot * self.longest;
        for at in [0, sequence.len / 2, sequence.len - 64] {
            let mut bytes = [0; 64];
            self.range.read(start + at, &mut bytes)?;
            if bytes != [sequence.number as u8; 64] {
                return Err(
                    format!("not so: sequence {} holds its own bytes", sequence.number).into(),
                );
            }
        }
        Ok(())
    }

    fn end(&mut self, slot: usize) -> Outcome {
        // The crate's copies are done when they return, so nothing is in flight; kernels would be waited for with
        // `decommit_after`.
        self.range.decommit(slot * self.longest, self.longest)?;
        self.slots[slot] = None;
        self.ended += 1;
        Ok(())
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % bound
    }
}

/// More sequences than the device has memory for, each of full length: when memory is out, the oldest has to go.
fn until_full(driver: &Driver, longest: usize) -> Outcome {
    println!("\nUntil the device is full");
    let device = driver.device(0)?;
    let slots = device.total_memory()? / longest + 2;
    let mut range = ElasticRange::builder(slots * longest, &AllocationProps::on(&device))
        .access(&device, Access::ReadWrite)
        .blocks(longest..=longest)
        .reserve()?;
    let mut held = VecDeque::new();
    let mut evicted = 0;
    for slot in 0..slots {
        loop {
            match range.commit(slot * longest, longest) {
                Ok(_) => break,
                Err(error) if error.is_out_of_memory() => {
                    let Some(oldest) = held.pop_front() else {
                        return Err(error.into());
                    };
                    if evicted == 0 {
                        println!("  {error}");
                    }
                    range.decommit(oldest * longest, longest)?;
                    evicted += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        held.push_back(slot);
    }
    println!("  {slots} sequences begun, {evicted} evicted for the others");
    verify("memory ran out, and those that stayed are whole", {
        let whole = |slot: &usize| range.is_committed(slot * longest, longest);
        evicted > 0 && held.iter().all(whole) && held.len() + evicted == slots
    })?;
    range.close()?;
    Ok(())
}

/// The first two lines of the drawing: what is held, and the bar.
fn bar(range: &ElasticRange) -> String {
    let picture = range.to_string();
    let lines: Vec<&str> = picture.lines().take(2).collect();
    lines.join("\n")
}

fn verify(claim: &str, holds: bool) -> Outcome {
    if !holds {
        return Err(format!("not so: {claim}").into());
    }
    println!("  ok: {claim}");
    Ok(())
}
