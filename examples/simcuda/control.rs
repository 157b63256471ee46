//! The controls: for a program that knows that it runs on this driver. What each does is told at the head of the
//! library.

use std::ffi::{c_char, c_int, CStr};
use std::fmt::Write as _;

use cuda_vmm::sim::Simulation;
use cuda_vmm::sys::CUstream;

use crate::config;
use crate::process::driver;

const DONE: c_int = 0;
const REFUSED: c_int = 1;

#[no_mangle]
unsafe extern "C" fn simcuda_snapshot(text: *mut c_char, capacity: usize) -> usize {
    // SAFETY: the caller vouches for the buffer.
    unsafe { tell(text, capacity, |driver| driver.snapshot().to_string()) }
}

#[no_mangle]
unsafe extern "C" fn simcuda_misuses(text: *mut c_char, capacity: usize) -> usize {
    let lines = |driver: &Simulation| {
        let misuses = driver.misuses();
        misuses.iter().fold(String::new(), |mut lines, misuse| {
            let _ = writeln!(lines, "{misuse}"); // A String takes every write.
            lines
        })
    };
    // SAFETY: the caller vouches for the buffer.
    unsafe { tell(text, capacity, lines) }
}

#[no_mangle]
unsafe extern "C" fn simcuda_fault(fault: *const c_char) -> c_int {
    let Ok(driver) = driver() else {
        return REFUSED;
    };
    if fault.is_null() {
        return REFUSED;
    }
    // SAFETY: not null, and the caller vouches for it as a C string.
    let text = unsafe { CStr::from_ptr(fault) }.to_string_lossy();
    match config::add_faults(driver, &text) {
        Ok(()) => DONE,
        Err(why) => {
            eprintln!("simcuda: {text}: {why}");
            REFUSED
        }
    }
}

#[no_mangle]
extern "C" fn simcuda_clear_faults() {
    if let Ok(driver) = driver() {
        driver.clear_faults();
    }
}

#[no_mangle]
extern "C" fn simcuda_hold_stream(stream: CUstream) -> c_int {
    on_stream(|driver| driver.hold_stream(stream))
}

#[no_mangle]
extern "C" fn simcuda_release_stream(stream: CUstream) -> c_int {
    on_stream(|driver| driver.release_stream(stream))
}

fn on_stream(change: impl FnOnce(&Simulation) -> bool) -> c_int {
    match driver() {
        Ok(driver) if change(driver) => DONE,
        _ => REFUSED,
    }
}

/// Writes what there is to tell into the caller's buffer, as much as fits, and gives the whole length.
///
/// # Safety
///
/// `text` must be null or a buffer of `capacity` bytes.
unsafe fn tell(
    text: *mut c_char,
    capacity: usize,
    what: impl FnOnce(&Simulation) -> String,
) -> usize {
    let told = driver().map(what).unwrap_or_default();
    if !text.is_null() && capacity > 0 {
        let fits = told.len().min(capacity - 1);
        // SAFETY: not null, of `capacity` bytes, of which these are fewer; `told` is memory of our own.
        unsafe {
            std::ptr::copy_nonoverlapping(told.as_ptr(), text.cast(), fits);
            text.add(fits).write(0);
        }
    }
    told.len()
}
