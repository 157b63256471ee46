//! The exception that C++ callers get, caught by a library in C++ that is compiled for it.
//!
//! A machine without a C++ compiler shows the test as skipped; `CUDA_VMM_REQUIRE_CC=1` makes that a failure.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::ground::{
    bytes, error, free, malloc_or_throw, resume, suspend, Ground, DROP, MIB, UNIT,
};
use crate::Case;

pub const SIMULATED: &[Case] = &[
    // The order matters: the second loads the C++ runtime.
    (
        "without a C++ runtime, no memory is NULL",
        without_a_runtime,
    ),
    ("no memory is an exception in C++", caught_in_cpp),
];

type Malloc = unsafe extern "C-unwind" fn(isize, c_int, *mut c_void) -> *mut c_void;
type Try = unsafe extern "C" fn(Malloc, isize, *mut *mut c_void, *mut c_char, usize) -> c_int;

/// 0 for memory, 1 for a `std::runtime_error`, whose text is written down, 2 for anything else that is thrown, 3 if a
/// destructor was passed over on the way.
const CATCHER: &str = r#"
#include <cstring>
#include <stdexcept>

struct Ends {
    int &ended;
    ~Ends() { ended++; }
};

typedef void *(*Malloc)(ssize_t, int, void *);

extern "C" int try_malloc(Malloc allocate, ssize_t size, void **at, char *text, size_t capacity) {
    int ended = 0;
    try {
        Ends ends{ended};
        *at = allocate(size, 0, nullptr);
        return 0;
    } catch (const std::runtime_error &error) {
        std::strncpy(text, error.what(), capacity - 1);
        text[capacity - 1] = 0;
        return ended == 1 ? 1 : 3;
    } catch (...) {
        return 2;
    }
}
"#;

fn without_a_runtime(_: &Ground) {
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
    if !unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), flags) }.is_null() {
        eprintln!("SKIPPED: the C++ runtime is here already, with the driver, say");
        return;
    }
    let malloc = malloc_or_throw();
    assert!(unsafe { malloc(-1, 0, std::ptr::null_mut()) }.is_null());
    assert_eq!(error(), "-1 is no size");
}

fn caught_in_cpp(_: &Ground) {
    let Some(library) = compiled() else { return };
    let try_malloc = |size: usize| {
        let (mut at, mut text) = (std::ptr::null_mut(), [0 as c_char; 512]);
        let thrown = unsafe {
            library(
                malloc_or_throw(),
                size as isize,
                &mut at,
                text.as_mut_ptr(),
                text.len(),
            )
        };
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        (thrown, at as u64, text.to_str().unwrap().to_owned())
    };
    let (thrown, at, text) = try_malloc(MIB);
    assert_eq!((thrown, text.as_str()), (0, ""));
    assert_eq!(try_malloc(0), (0, 0, String::new()));
    for _ in 0..3 {
        let (thrown, nothing, text) = try_malloc(300 * MIB);
        assert_eq!(
            (thrown, nothing, text),
            (1, 0, format!("cuda-vmm: {}", error()))
        );
        assert!(error().starts_with("no piece of 314572800 bytes on device 0: "));
    }
    assert_eq!(suspend(DROP), UNIT as i64);
    let asleep = "cuda-vmm: no memory is given out while it is suspended";
    assert_eq!(try_malloc(MIB), (1, 0, asleep.to_owned()));
    assert_eq!(resume(), 0);
    assert_eq!(bytes(), [UNIT as i64, UNIT as i64, MIB as i64]);
    free(at, MIB, 0);
}

/// The catcher, loaded for as long as the process lives.
fn compiled() -> Option<Try> {
    let folder = std::env::temp_dir().join(format!("cuda-vmm-thrown-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (source, library) = (folder.join("catcher.cpp"), folder.join("libcatcher.so"));
    std::fs::write(&source, CATCHER).unwrap();
    let compiler = Command::new("c++")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output();
    let compiled = match compiler {
        Ok(output) => {
            assert!(output.status.success(), "c++ failed: {output:?}");
            true
        }
        Err(why) => {
            let required = std::env::var_os("CUDA_VMM_REQUIRE_CC").is_some_and(|it| it == "1");
            assert!(!required, "no C++ compiler: {why}");
            eprintln!("SKIPPED: no C++ compiler ({why})");
            false
        }
    };
    let loaded = compiled.then(|| {
        let name = CString::new(library.as_os_str().as_bytes()).unwrap();
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{name:?} cannot be loaded");
        let symbol = unsafe { libc::dlsym(library, c"try_malloc".as_ptr()) };
        assert!(!symbol.is_null());
        unsafe { transmute::<*mut c_void, Try>(symbol) }
    });
    std::fs::remove_dir_all(&folder).unwrap();
    loaded
}
