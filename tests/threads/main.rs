//! What may go from thread to thread, what may be used by several at once, and that it then works.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod bounds;
mod closures;
mod crew;
mod shared;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/rig.rs"]
mod rig;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
