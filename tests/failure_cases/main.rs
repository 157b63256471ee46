//! placeholder
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]
mod case;
mod contradictions;
mod impossible;
mod liar;
#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/rig.rs"]
mod rig;
#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use case::Case;
use libtest_mimic::Arguments;

const SECTIONS: &[&[Case]] = &[contradictions::CASES, impossible::CASES];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let trials = SECTIONS.iter().copied().flatten().flat_map(Case::trials);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
