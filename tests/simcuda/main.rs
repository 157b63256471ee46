//! The simulated driver as a library (`examples/simcuda`), seen through the dynamic linker as a foreign program sees
//! it.
//!
//! It runs where the loader finds that library: `scripts/run-on-simcuda` sees to it. Anywhere else each test is ignored
//! in plain sight; `CUDA_VMM_REQUIRE_SIMCUDA=1` makes that a failure.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod child;
mod layers;
mod life;
mod setup;
mod symbols;

#[path = "../support/mod.rs"]
#[allow(dead_code)] // What the facts need of it is more.
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use support::simcuda::Simcuda;

/// Set to `1` where the library must be there.
const REQUIRED: &str = "CUDA_VMM_REQUIRE_SIMCUDA";

type Test = (&'static str, fn());

const TESTS: &[&[Test]] = &[symbols::TESTS, setup::TESTS, life::TESTS, layers::TESTS];

fn main() -> ExitCode {
    if let Some(part) = child::part() {
        child::play(&part);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // One driver for the whole process: tests that compare what it holds must not run beside one another.
    arguments.test_threads = Some(1);
    let trials = TESTS.iter().copied().flatten().copied().map(trial);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn trial((name, run): Test) -> Trial {
    Trial::ignorable_test(name, move || {
        if Simcuda::find().is_some() {
            run();
            return Ok(Completion::Completed);
        }
        let why = "the loader does not find the simulated driver here: see scripts/run-on-simcuda";
        if std::env::var_os(REQUIRED).is_some_and(|value| value == "1") {
            return Err(Failed::from(format!("{REQUIRED} is set: {why}")));
        }
        Ok(Completion::ignored_with(why))
    })
}
