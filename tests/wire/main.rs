//! Parcels between processes: whole, broken, late and refused.
//!
//! Each case is played by a process of its own, which is this program started again, so that what is left open can be
//! counted: at its end a case has as many descriptors as at its beginning, one thread and no children.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod broken;
mod exchange;
mod faults;
mod hostile;
mod names;
mod processes;
mod ranks;
mod ranks_failing;
mod raw;
mod recorder;
mod results;
mod server;
mod server_clients;
mod sessions;
mod sessions_ending;
mod sessions_failing;
mod surroundings;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// A test, and a part that tests start processes for.
type Case = (&'static str, fn());
type Part = (&'static str, fn(&[&str]));

const CASES: &[&[Case]] = &[
    exchange::CASES,
    broken::CASES,
    hostile::CASES,
    names::CASES,
    server::CASES,
    server_clients::CASES,
    sessions::CASES,
    sessions_ending::CASES,
    sessions_failing::CASES,
    processes::CASES,
    ranks::CASES,
    ranks_failing::CASES,
    faults::CASES,
    results::CASES,
];

const PARTS: &[&[Part]] = &[
    server_clients::PARTS,
    sessions::PARTS,
    sessions_failing::PARTS,
    processes::PARTS,
    ranks::PARTS,
    ranks_failing::PARTS,
    faults::PARTS,
];

fn main() -> ExitCode {
    if let Some(role) = support::role() {
        let words: Vec<&str> = role.split('|').collect();
        let part = PARTS.iter().copied().flatten();
        if let Some((_, part)) = part.clone().find(|(name, _)| *name == words[0]) {
            part(&words[1..]);
            return ExitCode::SUCCESS;
        }
        let case = CASES.iter().copied().flatten();
        let (_, case) = case
            .clone()
            .find(|(name, _)| *name == role)
            .expect("a role");
        surroundings::leaves_nothing(case);
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let trials = CASES.iter().copied().flatten();
    let trials =
        trials.map(|(name, _)| Trial::test(*name, || support::play(name).map_err(Failed::from)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
