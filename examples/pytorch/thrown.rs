//! A C++ exception, for a caller that does not look at what it gets.
//!
//! PyTorch (its `CUDAPluggableAllocator::malloc`) takes a null pointer from an allocator for memory: the next kernel
//! runs into it, and the context is lost. What it does handle is a `std::runtime_error`, which becomes a `RuntimeError`
//! in Python. So one is made and thrown as a C++ compiler would, by the functions of the C++ runtime that the process
//! has loaded anyway; this library does not need one.
//!
//! # Safety
//!
//! The functions and the type are those of the Itanium C++ ABI, which Linux has on all machines, and of the GNU C++
//! library, which never changes them under these names. The exception passes through frames of `extern "C-unwind"`
//! functions only, where Rust lets a foreign one pass.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_void, CStr, CString};
use std::mem::transmute;

type Allocate = unsafe extern "C" fn(size: usize) -> *mut c_void;
type Construct = unsafe extern "C-unwind" fn(this: *mut c_void, text: *const c_char);
type Destroy = unsafe extern "C" fn(this: *mut c_void);
type Throw =
    unsafe extern "C-unwind" fn(exception: *mut c_void, kind: *mut c_void, destroy: Destroy) -> !;

/// More than a `std::runtime_error` has: a table of functions and one pointer.
const SIZE: usize = 64;

/// Throws a `std::runtime_error` with this text; returns where the process has no C++ runtime, and so nobody to catch
/// it.
pub fn runtime_error(text: CString) {
    let Some(runtime) = Runtime::find() else {
        return;
    };
    // SAFETY: an exception of that type is made in memory of its own by its constructor, which copies the text, and
    // thrown with its own type and destructor, as `throw` does.
    unsafe {
        let exception = (runtime.allocate)(SIZE);
        (runtime.construct)(exception, text.as_ptr());
        drop(text);
        (runtime.throw)(exception, runtime.kind, runtime.destroy)
    }
}

struct Runtime {
    allocate: Allocate,
    construct: Construct,
    destroy: Destroy,
    throw: Throw,
    /// The type's description.
    kind: *mut c_void,
}

impl Runtime {
    fn find() -> Option<Runtime> {
        // SAFETY: a C string; nothing is loaded that is not there already, and it is never closed.
        let library = unsafe {
            libc::dlopen(
                c"libstdc++.so.6".as_ptr(),
                libc::RTLD_NOW | libc::RTLD_NOLOAD,
            )
        };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library is open, the name a C string.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        // SAFETY: these are the ABI's functions, and the library's constructor and destructor; the signatures are theirs.
        unsafe {
            Some(Runtime {
                allocate: transmute::<*mut c_void, Allocate>(symbol(c"__cxa_allocate_exception")?),
                construct: transmute::<*mut c_void, Construct>(symbol(
                    c"_ZNSt13runtime_errorC1EPKc",
                )?),
                destroy: transmute::<*mut c_void, Destroy>(symbol(c"_ZNSt13runtime_errorD1Ev")?),
                throw: transmute::<*mut c_void, Throw>(symbol(c"__cxa_throw")?),
                kind: symbol(c"_ZTISt13runtime_error")?,
            })
        }
    }
}
