//! Raw declarations of the CUDA driver, and the loader that finds it at run time.
//!
//! Types and constants are generated from `cuda.h` (or, on a machine without it, taken from the declarations that come
//! with this crate, which are the same). The names are the header's own. Nothing here is linked: [`Library`] opens
//! `libcuda` when asked and fills a [`CallTable`]; [`DriverCalls`] is what the rest of the crate talks to, implemented
//! by the library, by the simulated driver, and by whoever wants to put something in between.
//!
//! # Where the declarations come from
//!
//! The build script takes the first `cuda.h` it finds, in this order:
//!
//! 1. `CUDA_VMM_HEADER`: a `cuda.h`, the folder that holds it, or a toolkit's folder. If it is set and there is none,
//!    the build fails. `CUDA_VMM_HEADER=kept` looks no further and takes the declarations that come with the crate.
//! 2. The toolkit that `CUDA_HOME` names, then the one that `CUDA_PATH` names. In a toolkit's folder, the header is
//!    looked for in `targets/<architecture>-linux/include`, then in `include`.
//! 3. The toolkit in `/usr/local/cuda`.
//! 4. The toolkit of the first `nvcc` on `PATH`.
//! 5. The toolkit in `/opt/cuda`, then `/usr/include`, `/usr/include/cuda` and `/usr/local/include`.
//!
//! | found | the build |
//! |---|---|
//! | a header and libclang | generates the declarations from that header |
//! | no header, or no libclang to read it with | takes those that come with the crate, and warns in one line |
//! | a header older than CUDA 11.8, or one that does not compile | fails, and says what to set |
//!
//! `CUDA_VMM_REQUIRE_HEADER=1` turns the second row into a failure. `LIBCLANG_PATH` and `BINDGEN_EXTRA_CLANG_ARGS` mean
//! what they mean to bindgen. On docs.rs nothing is looked for. cargo runs the script again when one of these variables
//! or the header changes; it does not see a toolkit or a libclang that is installed later, so touch a variable or
//! `cargo clean -p cuda-vmm` after that.
//!
//! Every header gives the same names and layouts, so that code written against this module builds everywhere. An
//! enumerator that only some headers have is left out, or declared here for all. [`HEADER_VERSION`] tells which header
//! it was. That is not the driver's version, which the driver itself tells when it is loaded.
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

/// The generated declarations. Their documentation is the header's, which is not ours to copy; their `unsafe` blocks
/// are bindgen's, which makes a default of a struct by filling it with zeroes. The types of calls are C's.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::undocumented_unsafe_blocks,
    clippy::type_complexity
)]
mod declarations {
    use super::CUmemLocation_st;

    include!(concat!(env!("OUT_DIR"), "/declarations.rs"));
}

#[doc(inline)]
pub use calls::for_each_call;
pub use calls::{Call, DriverCalls};
pub use declarations::*;
pub use library::Library;
pub use load_error::{LoadError, Tried};
pub use location::CUmemLocation_st;
pub use newer::CUmemFabricHandle;

include!(concat!(env!("OUT_DIR"), "/header_version.rs"));
