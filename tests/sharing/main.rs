//! Memory that is shared with other processes: exported, described, imported, and found by its address. A process is a
//! simulation here; the descriptors and the memory between them are real.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod allocation;
mod attach;
mod choice;
mod descriptor;
mod export;
mod pair;
mod pointers;
mod real;
mod untrue;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/rig.rs"]
mod rig;

#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
