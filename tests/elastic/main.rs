//! Elastic ranges: each case on both simulated drivers and on the machine's own, where there is one.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod bad_input;
mod case;
mod contents;
mod faults;
mod memory;
mod property;
mod quarantine;
mod rights;
mod shape;
mod splitting;

// Not all of it is used here.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Free bytes are compared, and the real driver has but one device.
    arguments.test_threads = Some(1);
    let tables = [
        shape::CASES,
        contents::CASES,
        memory::CASES,
        bad_input::CASES,
        rights::CASES,
        splitting::CASES,
        faults::CASES,
        quarantine::CASES,
    ];
    let cases = tables.into_iter().flatten();
    let mut trials: Vec<_> = cases.flat_map(|case| case.trials()).collect();
    trials.extend(property::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
