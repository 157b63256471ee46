//! The shared feature pool, within one process.
//!
//! Each case is one trial a setting: producer and consumers on a simulated driver each, as two processes have it; both
//! on one simulated driver; both on the machine's own driver where there is one. What needs held streams, faults or
//! snapshots is for the simulated drivers alone. What needs several processes is in `tests/pool_processes`.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod acknowledge;
mod bad_input;
mod closing;
mod edges;
mod expiry;
mod faults;
mod gather;
mod ground;
mod lifecycle;
mod order;
mod slices;
mod threads;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use ground::{Ground, Setting};

/// A case, by name.
type Case = (&'static str, fn(&Ground));

/// For every driver.
const BOTH: &[&[Case]] = &[
    lifecycle::CASES,
    bad_input::CASES,
    slices::CASES,
    acknowledge::CASES,
    expiry::CASES,
    closing::CASES,
    threads::CASES,
    gather::CASES,
];

/// For a simulated driver on each side.
const SIMULATED: &[&[Case]] = &[
    bad_input::SIMULATED,
    slices::SIMULATED,
    acknowledge::SIMULATED,
    order::SIMULATED,
    closing::SIMULATED,
    faults::SIMULATED,
    gather::SIMULATED,
    edges::SIMULATED,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The leak hook and the CPU time are the process's.
    arguments.test_threads = Some(1);
    let missing = support::devices().err();
    let mut trials = Vec::new();
    for (name, case) in BOTH.iter().chain(SIMULATED).copied().flatten() {
        trials.push(Trial::test(format!("{name} [sim]"), || {
            run(*case, Setting::Apart)
        }));
    }
    for (name, case) in BOTH.iter().copied().flatten() {
        trials.push(Trial::test(format!("{name} [one sim]"), || {
            run(*case, Setting::Together)
        }));
    }
    for (name, case) in BOTH.iter().copied().flatten() {
        let ignored = missing.is_some() && !support::gpu_required();
        let missing = missing.clone();
        let trial = Trial::test(format!("{name} [gpu]"), move || match missing {
            Some(why) => Err(why.into()),
            None => run(*case, Setting::Gpu),
        });
        trials.push(trial.with_ignored_flag(ignored));
    }
    if let Some(why) = support::devices().err() {
        eprintln!("SKIPPED: the [gpu] trials: {why}");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(case: fn(&Ground), setting: Setting) -> Result<(), Failed> {
    let ground = Ground::new(setting);
    case(&ground);
    ground.leaves_nothing()
}
