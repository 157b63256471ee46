//! What becomes of reservations when a process forks, panics, or ends.
//!
//! Each case is played by a process of its own, which is this program started again: what is tested is what a process
//! does to itself. It runs on the simulated driver and, where there is one, on the machine's own.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod ending;
mod forking;
mod panicking;
mod scene;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

use std::process::{ExitCode, Output};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use support::which::Which;

/// One case: a part to be played, and what its process must have come to.
struct Case {
    name: &'static str,
    /// Played in a process of its own, on its only thread.
    part: fn(Which),
    /// Whether that is what the process must have written.
    wrote: fn(&Wrote) -> bool,
}

impl Case {
    /// One whose process must have written nothing.
    const fn silent(name: &'static str, part: fn(Which)) -> Case {
        Case {
            name,
            part,
            wrote: |wrote| wrote.only(""),
        }
    }
}

/// What a process that ended with 0 wrote.
struct Wrote {
    out: String,
    err: String,
}

impl Wrote {
    fn of(output: &Output) -> Wrote {
        Wrote {
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Nothing on standard error, this on standard output.
    fn only(&self, out: &str) -> bool {
        self.err.is_empty() && self.out == out
    }
}

const CASES: &[&[Case]] = &[forking::CASES, ending::CASES, panicking::CASES];

fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().copied().flatten()
}

fn main() -> ExitCode {
    if let Some(role) = support::role() {
        let mut parts = cases().flat_map(|case| Which::BOTH.map(|which| (case, which)));
        let part = parts.find(|(case, which)| role_of(case, *which) == role);
        let Some((case, which)) = part else {
            panic!("no case is named {role:?}");
        };
        (case.part)(which);
        return ExitCode::SUCCESS;
    }
    let devices = support::devices();
    let trials = cases().flat_map(|case| {
        let devices = devices.clone();
        Which::BOTH.map(move |which| trial(case, which, devices.as_ref().err().cloned()))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn role_of(case: &Case, which: Which) -> String {
    format!("{} [{which}]", case.name)
}

fn trial(case: &'static Case, which: Which, no_driver: Option<String>) -> Trial {
    let role = role_of(case, which);
    Trial::ignorable_test(role.clone(), move || {
        match no_driver.filter(|_| which == Which::Gpu) {
            Some(why) if support::gpu_required() => {
                return Err(Failed::from(format!(
                    "{} is set: {why}",
                    support::GPU_REQUIRED
                )));
            }
            Some(why) => return Ok(Completion::ignored_with(why)),
            None => {}
        }
        let output = support::perform(&role)?;
        let wrote = Wrote::of(&output);
        match output.status.success() && (case.wrote)(&wrote) {
            true => Ok(Completion::Completed),
            false => Err(Failed::from(format!(
                "ended with {}\nstandard output: {}\nstandard error: {}",
                output.status, wrote.out, wrote.err
            ))),
        }
    })
}
