//! Properties: random programs of operations on reservations and allocations, with driver calls that fail at random,
//! played against a model.
//!
//! A [step](operation::Step) is one operation of the crate and what the driver refuses meanwhile. The [model](model)
//! says beforehand what must come of it: success, or the very error, made before the driver is called or by the driver.
//! After every step the model is compared with all that the crate tells (mappings, holes, rights, backing, the drawn
//! reservation), and with all that the driver knows (a snapshot of the simulated one; what a real one answers to
//! questions). At the end everything is closed and nothing may be left.
//!
//! A program that fails is shrunk to a few steps, which are printed with the seed.
//!
//! | variable | default | |
//! |---|---|---|
//! | `CUDA_VMM_PROPERTY_OPERATIONS` | 120000 simulated, 50000 on a GPU | how many operations to play |
//! | `CUDA_VMM_PROPERTY_SEED` | 1 | other programs |
//! | `CUDA_VMM_PROPERTY_TRACE` | | `1`: each step before it is played, for a driver that kills the process |
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod agree;
mod bounds;
mod contents;
mod leaks;
mod model;
mod operation;
mod picture;
mod play;
mod strategy;
mod tally;
mod trial;
mod verdict;
mod world;

// Not all of it is used here.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    leaks::listen();
    trial::keep_panics();
    let mut arguments = Arguments::from_args();
    // So that a seed plays the same operations each time: beside one another the trials share the process's addresses,
    // and whether an exact address is free, and with it what the later steps come to, depends on who was first.
    arguments.test_threads = Some(1);
    let conclusion = libtest_mimic::run(&arguments, trial::all());
    if !arguments.list {
        trial::tell();
    }
    conclusion.exit_code()
}
