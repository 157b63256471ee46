//! The simulated driver's own interface: configuration, faults, log, snapshots, misuse, held streams.
//!
//! That it answers as a real driver does is the facts suite's business; here are its controls, and the memory beneath.
#![allow(clippy::undocumented_unsafe_blocks)] // Every block is one driver call on arguments that the test owns.

mod arbitrary;
mod config;
mod contexts;
mod faults;
mod kernels;
mod log;
mod memory;
mod misuse;
mod modes;
mod queues;
mod registered;
mod rig;
mod rows;
mod sharing;
mod streams;
