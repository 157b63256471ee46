//! The simulated driver's own interface: configuration, faults, log, snapshots, misuse, held streams, forks.
//!
//! That it answers as a real driver does is the facts suite's business; here are its controls, and the memory beneath.
#![allow(clippy::undocumented_unsafe_blocks)] // Every block is one driver call on arguments that the test owns.

mod memory;
mod rig;
