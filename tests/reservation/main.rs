//! Reservations: every public method, its errors with their exact numbers, and the state afterwards.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::single_range_in_vec_init)] // Lists of ranges, of which there is sometimes one.

mod bad_ranges;
mod bad_requests;
mod closing;
mod copies;
mod drawing;
mod mapping;
mod rights;
mod scale;
mod unmapping;
mod views;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/rig.rs"]
mod rig;
