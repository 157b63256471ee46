//! What the library exports, and how it is looked up.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};

use cuda_vmm::sys::{CUresult, Call, Library};

use crate::Test;

pub const TESTS: &[Test] = &[
    ("every_call_is_exported", every_call_is_exported),
    ("plain_names_are_exported", plain_names_are_exported),
    (
        "a_plain_name_is_its_newest_version",
        a_plain_name_is_its_newest_version,
    ),
    (
        "look_ups_before_cuda_12_have_no_status",
        look_ups_before_cuda_12_have_no_status,
    ),
    ("an_unknown_name_is_not_found", an_unknown_name_is_not_found),
    (
        "a_look_up_that_makes_no_sense_is_refused",
        a_look_up_that_makes_no_sense_is_refused,
    ),
    ("errors_have_names_and_words", errors_have_names_and_words),
    (
        "text_that_does_not_fit_is_cut",
        text_that_does_not_fit_is_cut,
    ),
];

const SUCCESS: u32 = CUresult::CUDA_SUCCESS.0;
const INVALID_VALUE: u32 = CUresult::CUDA_ERROR_INVALID_VALUE.0;
const NOT_FOUND: u32 = CUresult::CUDA_ERROR_NOT_FOUND.0;

// CUdriverProcAddressQueryResult
const FOUND: c_uint = 0;
const SYMBOL_NOT_FOUND: c_uint = 1;

type LookUp = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> u32;
type LookUp2 =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_uint) -> u32;
type ErrorText = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;

/// What no look-up gives.
fn untouched() -> *mut c_void {
    std::ptr::NonNull::dangling().as_ptr()
}

/// Opens the library anew, as a program that links against nothing does.
pub fn open() -> *mut c_void {
    let library = Library::open().expect("the library is there");
    let path = CString::new(library.path().as_os_str().as_bytes()).expect("a path");
    let opened = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!opened.is_null(), "{path:?}");
    opened
}

/// A symbol's address, or null.
pub fn symbol(name: &str) -> *mut c_void {
    let name = CString::new(name).expect("a name");
    unsafe { libc::dlsym(open(), name.as_ptr()) }
}

fn look_up_2(name: &str, version: c_int) -> (u32, *mut c_void, c_uint) {
    let name = CString::new(name).expect("a name");
    let look_up = unsafe { transmute::<*mut c_void, LookUp2>(symbol("cuGetProcAddress_v2")) };
    let (mut function, mut status) = (untouched(), 77);
    let code = unsafe { look_up(name.as_ptr(), &mut function, version, 0, &mut status) };
    (code, function, status)
}

fn look_up_1(name: &str, version: c_int) -> (u32, *mut c_void) {
    let name = CString::new(name).expect("a name");
    let look_up = unsafe { transmute::<*mut c_void, LookUp>(symbol("cuGetProcAddress")) };
    let mut function = untouched();
    let code = unsafe { look_up(name.as_ptr(), &mut function, version, 0) };
    (code, function)
}

fn plain(call: Call) -> &'static str {
    call.symbol().trim_end_matches("_v2")
}

fn every_call_is_exported() {
    let library = Library::open().expect("the library is there");
    for &call in Call::ALL {
        assert!(library.table().provides(call), "{call}");
    }
}

fn plain_names_are_exported() {
    let addresses: BTreeSet<usize> = Call::ALL
        .iter()
        .map(|&call| symbol(plain(call)) as usize)
        .collect();
    assert!(!addresses.contains(&0), "a plain name is not exported");
    assert_eq!(
        addresses.len(),
        Call::ALL.len(),
        "two calls share an address"
    );
}

fn a_plain_name_is_its_newest_version() {
    for &call in Call::ALL {
        let found = (SUCCESS, symbol(call.symbol()), FOUND);
        assert_eq!(look_up_2(plain(call), 13_000), found, "{call}");
        assert_eq!(look_up_2(plain(call), 2_000), found, "{call}");
    }
    for name in ["cuGetErrorName", "cuGetErrorString"] {
        assert_eq!(look_up_2(name, 6_000), (SUCCESS, symbol(name), FOUND));
    }
    let with_status = symbol("cuGetProcAddress_v2");
    assert_eq!(
        look_up_2("cuGetProcAddress", 12_000),
        (SUCCESS, with_status, FOUND)
    );
    let without = symbol("cuGetProcAddress");
    assert_eq!(
        look_up_2("cuGetProcAddress", 11_080),
        (SUCCESS, without, FOUND)
    );
}

fn look_ups_before_cuda_12_have_no_status() {
    let found = (SUCCESS, symbol("cuMemGetInfo_v2"));
    assert_eq!(look_up_1("cuMemGetInfo", 11_030), found);
    assert_eq!(look_up_1("cuNoSuchCall", 11_030), (NOT_FOUND, null_mut()));
}

fn an_unknown_name_is_not_found() {
    for name in [
        "cuNoSuchCall",
        "cuLaunchCooperativeKernel",
        "cuMemGetInfo_v2",
        "cumemcreate",
        "",
    ] {
        let answer = look_up_2(name, 13_000);
        assert_eq!(answer, (SUCCESS, null_mut(), SYMBOL_NOT_FOUND), "{name:?}");
    }
}

fn a_look_up_that_makes_no_sense_is_refused() {
    assert_eq!(
        look_up_2("cuInit", 13_001),
        (INVALID_VALUE, untouched(), 77),
        "newer than the driver"
    );
    let look_up = unsafe { transmute::<*mut c_void, LookUp2>(symbol("cuGetProcAddress_v2")) };
    let name = c"cuInit".as_ptr();
    let (mut function, mut status) = (untouched(), 77);
    unsafe {
        let mut ask = |name, flags| look_up(name, &mut function, 13_000, flags, &mut status);
        assert_eq!(ask(null(), 0), INVALID_VALUE);
        assert_eq!(ask(name, 3), INVALID_VALUE);
        assert_eq!(
            look_up(name, null_mut(), 13_000, 0, &mut status),
            INVALID_VALUE
        );
        assert_eq!((function, status), (untouched(), 77));
        assert_eq!(look_up(name, &mut function, 13_000, 2, null_mut()), SUCCESS);
    }
    assert_eq!(function, symbol("cuInit"));
}

fn error_text(symbol_name: &str, code: u32) -> (u32, Option<String>) {
    let ask = unsafe { transmute::<*mut c_void, ErrorText>(symbol(symbol_name)) };
    let mut text: *const c_char = untouched().cast();
    let answer = unsafe { ask(code, &mut text) };
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    (
        answer,
        text.map(|text| text.to_str().expect("text").to_owned()),
    )
}

fn errors_have_names_and_words() {
    let texts = [
        (0, "CUDA_SUCCESS", "success"),
        (1, "CUDA_ERROR_INVALID_VALUE", "invalid value"),
        (2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
        (999, "CUDA_ERROR_UNKNOWN", "unknown"),
    ];
    for (code, name, words) in texts {
        assert_eq!(
            error_text("cuGetErrorName", code),
            (SUCCESS, Some(name.to_owned()))
        );
        assert_eq!(
            error_text("cuGetErrorString", code),
            (SUCCESS, Some(words.to_owned()))
        );
    }
    for ask in ["cuGetErrorName", "cuGetErrorString"] {
        assert_eq!(error_text(ask, 77_777), (INVALID_VALUE, None));
        let ask = unsafe { transmute::<*mut c_void, ErrorText>(symbol(ask)) };
        assert_eq!(unsafe { ask(1, null_mut()) }, INVALID_VALUE);
    }
}

fn text_that_does_not_fit_is_cut() {
    type Tell = unsafe extern "C" fn(*mut c_char, usize) -> usize;
    let tell = unsafe { transmute::<*mut c_void, Tell>(symbol("simcuda_snapshot")) };
    let whole = crate::support::simcuda::Simcuda::find()
        .expect("found before")
        .snapshot();
    let mut text = [0x55_u8; 8];
    let length = unsafe { tell(text.as_mut_ptr().cast(), 5) };
    assert_eq!(length, whole.len());
    assert_eq!(text[..4], whole.as_bytes()[..4]);
    assert_eq!(text[4..], [0, 0x55, 0x55, 0x55]);
}
