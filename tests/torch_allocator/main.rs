//! The allocator for PyTorch (`examples/pytorch`), by the functions that C calls.
//!
//! Its modules are part of this program, so that the pool can be set up over a simulated driver; each case is one trial
//! a driver, the simulated one and the machine's own where there is one. What needs faults is for the simulated one
//! alone. The library as PyTorch loads it is exercised by `scripts/foreign/torch_allocator.py` and `torch_train.py`.
#![allow(missing_docs, unsafe_code, clippy::undocumented_unsafe_blocks)]

#[path = "../../examples/pytorch/border.rs"]
mod border;
#[path = "../../examples/pytorch/failure.rs"]
mod failure;
#[path = "../../examples/pytorch/heap.rs"]
mod heap;
#[path = "../../examples/pytorch/pool.rs"]
mod pool;
#[path = "../../examples/pytorch/thrown.rs"]
mod thrown;

mod basics;
mod exception;
mod faults;
mod ground;
mod panics;
mod pieces;
mod sleep;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use ground::Ground;

/// A case, by name.
type Case = (&'static str, fn(&Ground));

const BOTH: &[&[Case]] = &[basics::CASES, sleep::CASES];

const SIMULATED: &[&[Case]] = &[
    exception::SIMULATED,
    basics::SIMULATED,
    sleep::SIMULATED,
    faults::SIMULATED,
    panics::SIMULATED,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // There is one pool in a process.
    arguments.test_threads = Some(1);
    let mut trials: Vec<Trial> = pieces::CASES
        .iter()
        .map(|(name, case)| {
            Trial::test(*name, || {
                case();
                Ok(())
            })
        })
        .collect();
    for (name, case) in SIMULATED.iter().chain(BOTH).copied().flatten() {
        let trial = Trial::test(format!("{name} [sim]"), || {
            Ground::simulated().play(*case);
            Ok(())
        });
        trials.push(trial);
    }
    let missing = support::devices().err();
    if let Some(why) = &missing {
        eprintln!("SKIPPED: the [gpu] trials: {why}");
    }
    for (name, case) in BOTH.iter().copied().flatten() {
        let ignored = missing.is_some() && !support::gpu_required();
        let missing = missing.clone();
        let trial = Trial::test(format!("{name} [gpu]"), move || match missing {
            Some(why) => Err(why.into()),
            None => {
                Ground::real().play(*case);
                Ok(())
            }
        });
        trials.push(trial.with_ignored_flag(ignored));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
