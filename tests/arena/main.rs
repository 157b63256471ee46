//! Arenas: where pieces lie, what is counted, what is refused; and over elastic ranges, what is committed.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod growing;
mod placing;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/rig.rs"]
mod rig;
#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;
