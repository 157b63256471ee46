//! Memory shared between real processes: killed, at their limits, many at once, with peers that lie; each time with
//! memory on both sides, whose contents are compared.
//!
//! Each case is played by a process of its own, which is this program started again, and starts others in turn. It runs
//! on the simulated driver and, where there is one, on the machine's own: there every process asks the same device, so
//! that its free bytes tell what is left. At its end a process has no memory, and a case as many descriptors as at its
//! beginning, one thread and no children.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod clients;
mod deaths;
mod faults;
mod impostors;
mod limits;
mod ranks;
mod rounds;
mod rules;
mod side;
mod sizes;
mod span;

#[allow(dead_code)] // The messages and surroundings of the transport's own tests.
#[path = "../wire/raw.rs"]
mod raw;
#[allow(dead_code)]
#[path = "../wire/surroundings.rs"]
mod surroundings;

#[allow(dead_code)] // What one test program does not need, another does.
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
    deaths::CASES,
    rounds::CASES,
    limits::CASES,
    clients::CASES,
    impostors::CASES,
    sizes::CASES,
    ranks::CASES,
    rules::CASES,
    faults::CASES,
];

/// What can be done on the simulated driver alone.
const SIMULATED: &[Case] = faults::SIMULATED;

const PARTS: &[&[Part]] = &[
    deaths::PARTS,
    rounds::PARTS,
    limits::PARTS,
    clients::PARTS,
    impostors::PARTS,
    sizes::PARTS,
    ranks::PARTS,
    rules::PARTS,
    faults::PARTS,
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
    let simulated = SIMULATED
        .iter()
        .map(|(name, _)| trial(name, Which::Sim, None));
    let conclusion = libtest_mimic::run(&arguments, both.chain(simulated).collect());
    for said in SAID.lock().unwrap().iter() {
        println!("{said}");
    }
    conclusion.exit_code()
}

/// What cases had to say, to be read when all have ended.
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

/// Plays a case, or a part in one: the driver, the name, and what the part is told, with bars between.
fn play(role: &str) {
    let words: Vec<&str> = role.split('|').collect();
    let which = Which::named(words[0]);
    let part = PARTS.iter().copied().flatten();
    if let Some((_, part)) = part.clone().find(|(name, _)| *name == words[1]) {
        let side = Side::new(which);
        part(&side, &words[2..]);
        return side.holds_nothing();
    }
    let mut cases = CASES.iter().copied().flatten().chain(SIMULATED);
    let (_, case) = cases.find(|(name, _)| *name == words[1]).expect("a case");
    let side = Side::new(which);
    surroundings::leaves_nothing(&|| {
        let free = side.free();
        case(&side);
        side.is_back(free);
    });
    side.holds_nothing();
}
