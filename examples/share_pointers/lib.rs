//! Memory that other code mapped, shared by its address: a C library over the pointer tools, for a process whose memory
//! somebody else manages, PyTorch say.
//!
//! ```c
//! void *share_pointers_serve(uint64_t address, size_t size, const char *path, size_t *lead,
//!                            char *text, size_t capacity);
//! uint64_t share_pointers_stop(void *served);
//! ```
//!
//! The first exports what is mapped at `[address, address + size)`, in whole allocations, and serves it for reading
//! under a socket file; it gives null where it cannot. `lead` is how far into the span the address lies. `text` gets a
//! line that says what was shared, or why not, cut to the capacity and ended by a zero. The second ends that, once, and
//! gives how many had it.
//!
//! The reader at the other end is `examples/read_pointers.rs`; `scripts/foreign/pytorch.py` uses both.
//!
//! # Safety
//!
//! `path` is a C string; `lead` and `text` have room for what is written to them; what is stopped was served and has
//! not been stopped. The range stays mapped while it is being exported; afterwards the memory is held by descriptors.
#![allow(unsafe_code)]

use std::ffi::{c_char, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use cuda_vmm::share::wire::{Name, Parcel, Server};
use cuda_vmm::share::{Kept, SpanSource};
use cuda_vmm::{Access, Driver, HandleType, HandleTypes};

/// What is being served, and what keeps it if it went by fabric handles.
struct Served {
    server: Server,
    _kept: Kept,
}

struct Shared {
    served: Served,
    lead: usize,
    words: String,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn serve(address: u64, size: usize, name: &Name) -> Outcome<Shared> {
    let driver = Driver::load()?;
    let source = SpanSource::of_addresses(&driver, address, size)?;
    // By descriptors, unless it was made for fabric handles alone.
    let fabric_alone = |types: HandleTypes| types == HandleTypes::FABRIC;
    let by = match source
        .pieces()
        .all(|(_, one)| fabric_alone(one.handle_types()))
    {
        true => HandleType::Fabric,
        false => HandleType::PosixFd,
    };
    let exported = source.export(by, Access::Read)?;
    let (lead, pieces) = (source.lead(), source.pieces().count());
    let words = format!(
        "{size} bytes at {address:#x}, shared by {by}: {lead} bytes into a span of {} in {pieces} pieces",
        source.size(),
    );
    source.release()?;
    let (bytes, fds, kept) = exported.into_parts();
    let server = Server::builder(Parcel::new(bytes, fds)).serve(name)?;
    let served = Served {
        server,
        _kept: kept,
    };
    Ok(Shared {
        served,
        lead,
        words,
    })
}

/// See the head of this file.
///
/// # Safety
///
/// As told there.
#[no_mangle]
pub unsafe extern "C" fn share_pointers_serve(
    address: u64,
    size: usize,
    path: *const c_char,
    lead: *mut usize,
    text: *mut c_char,
    capacity: usize,
) -> *mut std::ffi::c_void {
    // SAFETY: a C string, says the caller.
    let path = unsafe { CStr::from_ptr(path) };
    let name = Name::file(OsStr::from_bytes(path.to_bytes()));
    let (served, words) = match serve(address, size, &name) {
        Ok(shared) => {
            // SAFETY: room for it, says the caller.
            unsafe { *lead = shared.lead };
            (Box::into_raw(Box::new(shared.served)).cast(), shared.words)
        }
        Err(error) => (ptr::null_mut(), error.to_string()),
    };
    let length = words.len().min(capacity.saturating_sub(1));
    if capacity > 0 {
        // SAFETY: no more than the capacity is written, the zero included.
        unsafe {
            ptr::copy_nonoverlapping(words.as_ptr(), text.cast(), length);
            *text.add(length) = 0;
        }
    }
    served
}

/// See the head of this file.
///
/// # Safety
///
/// As told there.
#[no_mangle]
pub unsafe extern "C" fn share_pointers_stop(served: *mut std::ffi::c_void) -> u64 {
    // SAFETY: it was made by `share_pointers_serve`, and is given back once, says the caller.
    let served = unsafe { Box::from_raw(served.cast::<Served>()) };
    served.server.stop().served
}
