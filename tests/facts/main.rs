//! The facts: what the CUDA driver really does, held against two drivers.
//!
//! Each case is one fact that was measured on real hardware, as raw driver calls that must get exactly the measured
//! answers and leave exactly the measured state. It runs on the simulated driver and, where there is one, on the
//! machine's own, so that each run with a GPU is a measurement anew and the simulated driver cannot drift from it. A
//! run ends with the table of where the two agree; without a GPU the other side is the machine that was recorded.
//!
//! What the machine cannot run is shown as ignored, with the reason; `CUDA_VMM_REQUIRE_GPU=1` makes a missing driver a
//! failure.
//!
//! To add a case, write it into the section of its call as you expect the driver to answer, run it here on the
//! simulated driver and then on a GPU. Where they differ the GPU decides: the case and the simulated driver follow it,
//! or the table of knowing differences in `src/sim/mod.rs` gets a row. To record a machine, run this program there with
//! `CUDA_VMM_FACTS_RECORD=FILE`, lay the file into `answers/` and name it in `recorded.rs` (CONTRIBUTING.md has the
//! steps): from then on every run with a GPU tells where it differs from that driver on that device, and which answers
//! each gave.

// Raw driver calls all over: what makes each one sound, or harmless where a fact is about a refusal, is the fact
// itself.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod access;
mod address_free;
mod agreement;
mod aliases;
mod busy;
mod case;
mod codes;
mod contexts;
mod copies;
mod create;
mod cycles;
mod devices;
mod driver;
mod gpu;
mod handover;
mod lengths;
mod machine;
mod map;
mod mixed;
mod neighbours;
mod outputs;
mod owned;
mod placement;
mod pointers;
mod processes;
mod properties;
mod props;
mod recorded;
mod recording;
mod registered;
mod release;
mod reserve;
mod retain;
mod rights;
mod rows;
mod share;
mod stack;
mod stream_work;
mod streams;
mod transcript;
mod trial;
mod unmap;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use case::Section;

/// The table of facts.
const FACTS: &[Section] = &[
    contexts::SECTION,
    stack::SECTION,
    devices::SECTION,
    reserve::SECTION,
    placement::SECTION,
    address_free::SECTION,
    create::SECTION,
    properties::SECTION,
    mixed::SECTION,
    release::SECTION,
    map::SECTION,
    neighbours::SECTION,
    aliases::SECTION,
    access::SECTION,
    rights::SECTION,
    unmap::SECTION,
    cycles::SECTION,
    copies::SECTION,
    lengths::SECTION,
    pointers::SECTION,
    retain::SECTION,
    share::SECTION,
    handover::SECTION,
    streams::SECTION,
    stream_work::SECTION,
    registered::SECTION,
    rows::SECTION,
    outputs::SECTION,
];

fn main() -> ExitCode {
    if let Some(role) = support::role() {
        trial::play(FACTS, &role);
        return ExitCode::SUCCESS;
    }

    let mut arguments = Arguments::from_args();
    // Cases that count free bytes must not run beside one another.
    arguments.test_threads = Some(1);

    let record = match recorded::wanted(&arguments) {
        Ok(record) => record,
        Err(why) => {
            eprintln!("{}: {why}", recorded::RECORD);
            return ExitCode::FAILURE;
        }
    };
    trial::keep_panics();
    let machine = trial::Machine::look();
    let mut trials = trial::all(FACTS, &machine);
    trials.push(recording::trial());
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list && !agreement::conclude(FACTS, record.as_deref()) {
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
