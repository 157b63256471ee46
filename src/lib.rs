//! CUDA virtual memory management.
#![deny(unsafe_code)]

#[cfg(feature = "sim")]
pub mod sim;
pub mod sys;
