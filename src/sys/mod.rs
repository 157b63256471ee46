//! Raw declarations of the CUDA driver, and the loader that finds it at run time.
//!
//! Types and constants are generated from `cuda.h` (or, on a machine without it, taken from the declarations kept in
//! this repository, which are the same). The names are the header's own. Nothing here is linked: [`Library`] opens
//! `libcuda` when asked and fills a [`CallTable`]; [`DriverCalls`] is what the rest of the crate talks to, implemented by
//! the library, by the simulated driver, and by whoever wants to put something in between.
//!
//! # Safety
//!
//! The driver is trusted to do what its documentation says of the memory that a call is given: it writes only behind
//! the output pointers and reads only behind the input pointers, for the lengths that are stated, before it returns.
//! Every `unsafe` block of the layers above rests on that sentence and on the arguments being as the call demands.
#![allow(unsafe_code)]

mod calls;
mod library;
mod load_error;
mod location;
mod newer;

/// The generated declarations. Their documentation is the header's, which is not ours to copy; their `unsafe` blocks are
/// bindgen's, which makes a default of a struct by filling it with zeroes.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::undocumented_unsafe_blocks
)]
mod declarations {
    use super::CUmemLocation_st;

    include!(concat!(env!("OUT_DIR"), "/declarations.rs"));
}

pub(crate) use calls::for_each_call;
pub use calls::{Call, DriverCalls};
pub use declarations::*;
pub use library::Library;
pub use load_error::{Attempt, LoadError};
pub use location::CUmemLocation_st;
pub use newer::CUmemFabricHandle;

include!(concat!(env!("OUT_DIR"), "/header_version.rs"));
