//! Memory shared between processes.

pub mod wire;
