//! Waiting before unmapping: with a fence, work in flight ends well; a wait that fails leaves everything mapped and
//! owned.
//!
//! Each case is one trial a driver. On the simulated driver a held stream stands for work that takes its time.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

mod closing;
mod failing;
mod fences;
mod stage;
mod unclaimed;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use stage::Stage;

/// A case, by name.
type Case = (&'static str, fn(&Stage));

const CASES: &[Case] = &[
    ("a_stream_is_waited_for", fences::a_stream_is_waited_for),
    ("an_event_is_waited_for", fences::an_event_is_waited_for),
    (
        "the_default_stream_is_waited_for",
        fences::the_default_stream_is_waited_for,
    ),
    (
        "a_closure_comes_before_the_unmap",
        fences::a_closure_comes_before_the_unmap,
    ),
    (
        "a_range_is_unmapped_after_its_work",
        fences::a_range_is_unmapped_after_its_work,
    ),
    (
        "a_deadline_gives_up_with_everything_mapped",
        fences::a_deadline_gives_up_with_everything_mapped,
    ),
    (
        "a_deadline_that_is_kept_unmaps",
        fences::a_deadline_that_is_kept_unmaps,
    ),
    (
        "a_failed_wait_leaves_everything_mapped",
        failing::a_failed_wait_leaves_everything_mapped,
    ),
    (
        "a_panic_while_waiting_is_a_failed_wait",
        failing::a_panic_while_waiting_is_a_failed_wait,
    ),
    (
        "checks_come_before_the_wait",
        failing::checks_come_before_the_wait,
    ),
    (
        "other_reservations_are_usable_while_one_waits",
        failing::other_reservations_are_usable_while_one_waits,
    ),
    ("close_waits", closing::close_waits),
    (
        "close_in_the_background_waits",
        closing::close_in_the_background_waits,
    ),
    (
        "a_failed_wait_in_the_background_comes_back",
        closing::a_failed_wait_in_the_background_comes_back,
    ),
    (
        "what_is_taken_out_after_a_failed_wait_is_as_before",
        unclaimed::what_is_taken_out_after_a_failed_wait_is_as_before,
    ),
];

/// Only the simulated driver can be made to do these without harm.
const SIMULATED: &[Case] = &[
    (
        "nobody_joins_a_close_that_failed",
        unclaimed::nobody_joins_a_close_that_failed,
    ),
    (
        "a_lost_context_leaves_everything_mapped",
        failing::a_lost_context_leaves_everything_mapped,
    ),
    (
        "nobody_joins_a_failed_wait",
        unclaimed::nobody_joins_a_failed_wait,
    ),
    (
        "an_error_of_a_failed_wait_unmaps_nothing",
        unclaimed::an_error_of_a_failed_wait_unmaps_nothing,
    ),
    (
        "an_error_of_a_failed_close_is_tried_again",
        unclaimed::an_error_of_a_failed_close_is_tried_again,
    ),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The leak hook is the process's.
    arguments.test_threads = Some(1);
    let missing = support::devices().err();
    let mut trials = Vec::new();
    for (name, case) in CASES.iter().chain(SIMULATED) {
        trials.push(Trial::test(format!("{name} [sim]"), || {
            run(*case, Stage::simulated())
        }));
    }
    for (name, case) in CASES {
        let ignored = missing.is_some() && !support::gpu_required();
        let missing = missing.clone();
        let trial = Trial::test(format!("{name} [gpu]"), move || match missing {
            Some(why) => Err(why.into()),
            None => run(*case, Stage::real()),
        });
        trials.push(trial.with_ignored_flag(ignored));
    }
    if let Some(why) = support::devices().err() {
        eprintln!("SKIPPED: the [gpu] trials: {why}");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(case: fn(&Stage), stage: Stage) -> Result<(), Failed> {
    case(&stage);
    let Stage {
        driver,
        device,
        props,
        sim,
        ..
    } = stage;
    drop((driver, device, props));
    match sim {
        Some(sim) if !sim.snapshot().is_empty() => {
            Err(format!("left behind:\n{}", sim.snapshot()).into())
        }
        _ => Ok(()),
    }
}
