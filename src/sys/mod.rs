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
mod newer;

/// The generated declarations. Documentation is the header's, which is not ours to copy.
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals
)]
mod declarations {
    include!("declarations.rs");
}

pub(crate) use calls::for_each_call;
pub use calls::{Call, DriverCalls};
pub use declarations::*;
pub use library::Library;
pub use newer::CUmemFabricHandle;
