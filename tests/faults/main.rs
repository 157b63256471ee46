//! Faults: every driver call of every fallible operation made to fail, and what is left asserted exactly.
//!
//! [`operations`] and [`endings`] are tables of all that can fail; `complete` reads the crate's sources and fails when
//! a public operation stands in neither. An operation runs once undisturbed, so that the log tells which calls it
//! makes. Then, in a fresh simulation each time:
//!
//! - each of its calls fails once, with each code: the error is that call's, and the driver's state and the
//!   reservation's own view are as before ([`once`]);
//! - an undoing call fails too, each in turn and then all of them for ever: the first error is still the first, the
//!   others are attached in order, what is left is owned, and is gone after a later close or reclaim ([`twice`]);
//! - what ends an object (close, release, drop) gives up exactly what the driver took, and tells of the rest
//!   ([`ending`]).
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod complete;
mod ending;
mod endings;
mod expect;
mod leaks;
mod of_pools;
mod on_groups;
mod on_ranges;
mod on_reservations;
mod on_sharing;
mod once;
mod operations;
mod stage;
mod twice;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_vmm::sys::CUresult;
use libtest_mimic::{Arguments, Trial};

use stage::Mode;

/// What the failing calls answer. INVALID_VALUE comes beside them where one call fails once: of what the crate owns it
/// is a contradiction, and what is in doubt then is what tests/failure_cases is about.
const CODES: [CUresult; 4] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// How many combinations of operation, mode, failing calls and codes were tried.
static TRIED: AtomicUsize = AtomicUsize::new(0);

/// Counts one combination.
fn tried() {
    TRIED.fetch_add(1, Ordering::Relaxed);
}

/// The code to answer second, never the same as the first, so that one cannot be taken for the other.
fn other_than(code: CUresult) -> CUresult {
    let at = CODES.iter().position(|one| *one == code);
    CODES[at.map_or(0, |at| (at + 1) % CODES.len())]
}

fn main() -> ExitCode {
    leaks::listen();
    let arguments = Arguments::from_args();
    let mut trials = vec![complete::trial()];
    for mode in Mode::BOTH {
        for operation in operations::all().filter(|one| one.runs_in(mode)) {
            let name = format!("{operation} [{mode}]");
            trials.push(Trial::test(format!("{name} once"), move || {
                once::check(operation, mode);
                Ok(())
            }));
            trials.push(Trial::test(format!("{name} twice"), move || {
                twice::check(operation, mode);
                Ok(())
            }));
        }
        for end in endings::ALL {
            trials.push(Trial::test(format!("{end} [{mode}]"), move || {
                ending::check(end, mode);
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        println!(
            "{} combinations of failing calls were tried",
            TRIED.load(Ordering::Relaxed)
        );
    }
    conclusion.exit_code()
}
