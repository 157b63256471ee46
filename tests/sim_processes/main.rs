//! The simulated driver among processes.
//!
//! A program of its own, because a child that is forked while another test has a descriptor exported holds that
//! descriptor too, and so the memory, for as long as it lives.
#![allow(clippy::undocumented_unsafe_blocks)] // Every block is one call on arguments that the test owns.

mod fork;
mod import;
#[path = "../sim/rig.rs"]
#[allow(dead_code)] // Shared with the other tests of the simulated driver, which use all of it.
mod rig;
