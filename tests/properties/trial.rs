//! Programs without end until enough operations were played, and the report of one that fails.

use std::cell::RefCell;
use std::panic::{catch_unwind, set_hook};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use cuda_vmm::Driver;
use libtest_mimic::{Completion, Failed, Trial};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::operation::Step;
use crate::strategy::program;
use crate::support;
use crate::tally::Tally;
use crate::verdict::Verdict;
use crate::world::{Ground, World};

const OPERATIONS: &str = "CUDA_VMM_PROPERTY_OPERATIONS";
const SEED: &str = "CUDA_VMM_PROPERTY_SEED";
const TRACE: &str = "CUDA_VMM_PROPERTY_TRACE";

/// On the simulated driver, all trials together.
const SIMULATED: u64 = 120_000;
const ON_GPU: u64 = 50_000;
/// A trial of so many must come to everything.
const MANY: u64 = 20_000;

/// What all trials together have played.
static PLAYED: Mutex<Option<Tally>> = Mutex::new(None);
static PROGRAMS: AtomicU64 = AtomicU64::new(0);

pub fn all() -> Vec<Trial> {
    let simulated = [
        ("ledger", Ground::Ledger, false),
        ("ledger, failing calls", Ground::Ledger, true),
        ("memory", Ground::Memory, false),
        ("memory, failing calls", Ground::Memory, true),
    ];
    let share = variable(OPERATIONS, SIMULATED).div_ceil(simulated.len() as u64);
    let mut trials: Vec<Trial> = simulated
        .into_iter()
        .map(|(name, ground, faults)| {
            let run = move || run(ground, faults, share);
            Trial::test(format!("simulated driver, {name}"), run)
        })
        .collect();
    trials.push(Trial::ignorable_test("this machine's GPU", on_gpu));
    trials
}

fn on_gpu() -> Result<Completion, Failed> {
    if let Err(why) = support::devices() {
        let gpu = support::GPU_REQUIRED;
        return match support::gpu_required() {
            true => Err(format!("{gpu} is set: {why}").into()),
            false => Ok(Completion::ignored_with(why)),
        };
    }
    // With no context in the process the driver takes thirty times as long.
    let driver = Driver::load()?;
    let device = driver.device(0)?;
    let _context = device.make_current()?;
    let free = device.free_memory()?;
    run(Ground::Real, false, variable(OPERATIONS, ON_GPU))?;
    let left = device.free_memory()?;
    let granule = cuda_vmm::AllocationProps::on(&device)
        .granularity()?
        .minimum();
    println!("free bytes on device 0: {free} before, {left} after");
    match free.abs_diff(left) <= granule {
        true => Ok(Completion::Completed),
        false => Err("more than one granule is missing".into()),
    }
}

/// Says what all trials together have done.
pub fn tell() {
    let played = PLAYED.lock().unwrap();
    let Some(tally) = &*played else {
        return;
    };
    println!(
        "{tally}{} operations in {} programs were played and compared; seed {}",
        tally.operations(),
        PROGRAMS.load(Ordering::Relaxed),
        variable(SEED, 1),
    );
}

fn run(ground: Ground, faults: bool, operations: u64) -> Result<(), Failed> {
    let seed = variable(SEED, 1);
    let (mut played, mut number) = (Tally::default(), 0);
    while played.operations() < operations {
        let tally = RefCell::default();
        let outcome = runner(seed, number).run(&program(faults), |steps| {
            *tally.borrow_mut() = play(ground, &steps);
            Ok(())
        });
        if let Err(error) = outcome {
            return Err(report(ground, seed, number, error));
        }
        played.add(&tally.borrow());
        PROGRAMS.fetch_add(1, Ordering::Relaxed);
        number += 1;
    }
    if played.operations() >= MANY {
        reaches_everything(&played, faults)?;
    }
    let mut all = PLAYED.lock().unwrap();
    all.get_or_insert_with(Tally::default).add(&played);
    Ok(())
}

/// Programs that never come to an operation, or only ever see it refused, show nothing about it.
fn reaches_everything(played: &Tally, faults: bool) -> Result<(), Failed> {
    let never_done = played.lacking(Verdict::Done);
    // A view asks the driver nothing.
    let mut never_failed = played.lacking(Verdict::Failed);
    never_failed.retain(|operation| faults && *operation != "view");
    match never_done.is_empty() && never_failed.is_empty() {
        true => Ok(()),
        false => Err(Failed::from(format!(
            "never done: {never_done:?}, never failed: {never_failed:?}\n{played}"
        ))),
    }
}

/// Plays a program.
fn play(ground: Ground, steps: &[Step]) -> Tally {
    let mut world = World::new(ground);
    let traced = std::env::var_os(TRACE).is_some_and(|value| value == "1");
    for step in steps {
        if traced {
            eprintln!("{step:?}");
        }
        world.step(step);
    }
    world.end()
}

/// Plays one program, always the same for the same numbers.
fn runner(seed: u64, number: u64) -> TestRunner {
    let config = Config {
        cases: 1,
        // A program that fails becomes a test of its own; no folder of seeds beside the sources.
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mixed(seed).to_le_bytes());
    bytes[8..].copy_from_slice(&mixed(seed ^ mixed(number)).to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::XorShift, &bytes))
}

/// Spreads neighbouring numbers over all 64 bits (the end of SplitMix64): the generator starts where it is told to.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

thread_local! {
    /// Where the last panic of this thread was, and what it said.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps panics for the report: shrinking makes thousands.
pub fn keep_panics() {
    set_hook(Box::new(|panic| LAST_PANIC.set(panic.to_string())));
}

fn report(ground: Ground, seed: u64, number: u64, error: TestError<Vec<Step>>) -> Failed {
    let TestError::Fail(reason, steps) = error else {
        return Failed::from(error.to_string());
    };
    let steps = pruned(ground, steps);
    let why = match catch_unwind(|| play(ground, &steps)) {
        Ok(_) => format!("it does not fail a second time; the first time: {reason}"),
        Err(_) => LAST_PANIC.take(),
    };
    let lines = steps.iter().map(|step| format!("  {step:?}\n"));
    let lines: String = lines.collect();
    Failed::from(format!(
        "program {number} of seed {seed}, shrunk to {} steps:\n{lines}{why}",
        steps.len()
    ))
}

/// Leaves out every step without which the program still fails. Shrinking tries that once, and then makes steps
/// simpler; what has become too simple to matter goes here.
fn pruned(ground: Ground, mut steps: Vec<Step>) -> Vec<Step> {
    let mut at = 0;
    while at < steps.len() {
        let mut without = steps.clone();
        without.remove(at);
        match catch_unwind(|| play(ground, &without)) {
            Ok(_) => at += 1,
            Err(_) => (steps, at) = (without, 0),
        }
    }
    steps
}

fn variable(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}, and should be a number")),
        Err(_) => otherwise,
    }
}
