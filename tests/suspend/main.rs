//! Suspending and resuming: memory goes and comes back at the same addresses, in the same shape, with the same rights,
//! with contents or without.
//!
//! Each case is one trial a driver: the simulated one, and the machine's own where there is one. What only a driver can
//! show that fails on demand is for the simulated one alone.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod bad_input;
mod basics;
mod contents;
mod cycles;
mod elastic;
mod endings;
mod exports;
mod faults;
mod fences;
mod ground;
mod host_memory;
mod properties;
mod ranges;
mod scene;
mod shapes;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use ground::Ground;

/// A case, by name.
type Case = (&'static str, fn(&Ground));

/// For both drivers.
const BOTH: &[&[Case]] = &[
    basics::CASES,
    shapes::CASES,
    contents::CASES,
    host_memory::CASES,
    exports::CASES,
    fences::CASES,
    bad_input::CASES,
    endings::CASES,
    elastic::CASES,
    cycles::CASES,
    properties::CASES,
];

/// For the simulated driver.
const SIMULATED: &[&[Case]] = &[
    basics::SIMULATED,
    host_memory::SIMULATED,
    elastic::SIMULATED,
    exports::SIMULATED,
    bad_input::SIMULATED,
    fences::SIMULATED,
    endings::SIMULATED,
    faults::CASES,
    properties::SIMULATED,
    ranges::SIMULATED,
];

fn main() -> ExitCode {
    if let Some(role) = support::role() {
        endings::play(&role);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Free bytes are counted, and the leak hook is the process's.
    arguments.test_threads = Some(1);
    let missing = support::devices().err();
    let mut trials = Vec::new();
    for (name, case) in BOTH.iter().chain(SIMULATED).copied().flatten() {
        trials.push(Trial::test(format!("{name} [sim]"), || {
            run(*case, Ground::simulated())
        }));
    }
    for (name, case) in BOTH.iter().copied().flatten() {
        let ignored = missing.is_some() && !support::gpu_required();
        let missing = missing.clone();
        let trial = Trial::test(format!("{name} [gpu]"), move || match missing {
            Some(why) => Err(why.into()),
            None => run(*case, Ground::real()),
        });
        trials.push(trial.with_ignored_flag(ignored));
    }
    if let Some(why) = support::devices().err() {
        eprintln!("SKIPPED: the [gpu] trials: {why}");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(case: fn(&Ground), ground: Ground) -> Result<(), Failed> {
    case(&ground);
    ground.leaves_nothing()
}
