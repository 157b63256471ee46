//! The pool between real processes: under load, with consumers and producers that die, hang, misbehave or forget, with
//! calls that fail, and with two devices.
//!
//! Each case runs in a process of its own, which is this program started again, and starts others in turn. It runs on
//! the simulated driver and, where there is one, on the machine's own. At its end a process has no memory, and a case as
//! many descriptors as at its beginning, the same threads and no children.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod bad_clients;
mod deaths;
mod devices;
mod faults;
mod load;
mod neglect;
mod scene;

#[allow(dead_code)] // Shared with the suites of the transport and of shared memory.
#[path = "../wire/raw.rs"]
mod raw;
#[allow(dead_code)]
#[path = "../shared_memory/side.rs"]
mod side;
#[allow(dead_code)]
#[path = "../wire/surroundings.rs"]
mod surroundings;

#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::sync::Mutex;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use side::Side;
use support::which::Which;

/// A test, and a part that tests start processes for.
type Case = (&'static str, fn(&Side));
type Part = (&'static str, fn(&Side, &[&str]));

const CASES: &[&[Case]] = &[
    neglect::CASES,
    deaths::CASES,
    bad_clients::CASES,
    faults::CASES,
    load::CASES,
];

/// What can be done on the simulated driver alone.
const SIMULATED: &[&[Case]] = &[faults::SIMULATED, devices::SIMULATED];

const PARTS: &[&[Part]] = &[
    neglect::PARTS,
    deaths::PARTS,
    faults::PARTS,
    devices::PARTS,
    load::PARTS,
];

fn main() -> ExitCode {
    if let Some(role) = support::role() {
        play(&role);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Some count the free bytes of the device.
    arguments.test_threads = Some(1);
    let missing = support::devices().err();
    let both = CASES.iter().copied().flatten().flat_map(|(name, _)| {
        let missing = missing.clone();
        Which::BOTH.map(move |which| trial(name, which, missing.clone()))
    });
    let simulated = SIMULATED.iter().copied().flatten();
    let simulated = simulated.map(|(name, _)| trial(name, Which::Sim, None));
    let conclusion = libtest_mimic::run(&arguments, both.chain(simulated).collect());
    for said in SAID.lock().unwrap().iter() {
        println!("{said}");
    }
    conclusion.exit_code()
}

/// What cases print, shown after all have ended.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn trial(name: &'static str, which: Which, missing: Option<String>) -> Trial {
    Trial::ignorable_test(format!("{name} [{which}]"), move || {
        match missing.filter(|_| which == Which::Gpu) {
            Some(why) if support::gpu_required() => {
                let set = support::GPU_REQUIRED;
                return Err(Failed::from(format!("{set} is set: {why}")));
            }
            Some(why) => return Ok(Completion::ignored_with(why)),
            None => {}
        }
        let ended = support::perform(&format!("{which}|{name}"))?;
        let said = String::from_utf8_lossy(&ended.stdout);
        if !ended.status.success() {
            let why = String::from_utf8_lossy(&ended.stderr);
            return Err(Failed::from(format!(
                "ended with {}\n{said}{why}",
                ended.status
            )));
        }
        let lines = said.lines().map(|line| format!("{name} [{which}]: {line}"));
        SAID.lock().unwrap().extend(lines);
        Ok(Completion::Completed)
    })
}

/// Plays a case, or a part in one: the driver, the name, and the part's arguments, with bars between.
fn play(role: &str) {
    let words: Vec<&str> = role.split('|').collect();
    let which = Which::named(words[0]);
    let part = PARTS.iter().copied().flatten();
    if let Some((_, part)) = part.clone().find(|(name, _)| *name == words[1]) {
        let side = Side::new(which);
        part(&side, &words[2..]);
        return side.holds_nothing();
    }
    let mut cases = CASES.iter().chain(SIMULATED).copied().flatten();
    let (_, case) = cases.find(|(name, _)| *name == words[1]).expect("a case");
    let side = Side::new(which);
    surroundings::leaves_nothing(&|| {
        let free = side.free();
        case(&side);
        side.is_back(free);
    });
    side.holds_nothing();
}
