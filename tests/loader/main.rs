//! The loader against libraries that are wrong in every way users have met, built here from C.
//!
//! What the dynamic linker does with a folder in `LD_LIBRARY_PATH` is settled when a process starts, so those cases run
//! this program again as a child. Without a C compiler the tests that need one say so and pass;
//! `CUDA_VMM_REQUIRE_CC=1` makes that a failure.

mod absent;
mod made;
mod no_driver;
mod no_library;
mod usable;

use std::path::Path;

use cuda_vmm::sys::Library;

use made::CHILD;

#[test]
#[ignore = "the part of the other tests that runs in a child process"]
fn in_a_child() {
    let Some(how) = std::env::var_os(CHILD) else {
        return;
    };
    let opened = match how.to_str() {
        Some("open") => Library::open(),
        _ => Library::open_path(Path::new(&how)),
    };
    match opened {
        Ok(library) => println!("REPORT opened {}", library.path().display()),
        Err(why) => println!("REPORT {why:?}"),
    }
}
