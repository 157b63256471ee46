//! `cuGetProcAddress`: the calls by plain name, as the CUDA run-time and many bindings look them up.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void, CStr};
use std::ptr::null_mut;

use cuda_vmm::sys::CUresult;

use crate::aliases::plain;
use crate::calls::exported;
use crate::config::DRIVER_VERSION;
use crate::errors::{cuGetErrorName, cuGetErrorString};

// CUdriverProcAddressQueryResult
const FOUND: c_uint = 0;
const SYMBOL_NOT_FOUND: c_uint = 1;

/// Default, legacy stream, stream per thread: `CUdriverProcAddress_flags` has no others.
const LAST_FLAG: c_ulonglong = 2;

/// From this version on, the plain name `cuGetProcAddress` means the form with a status.
const WITH_STATUS: c_int = 12_000;

/// The form before CUDA 12: a name that is not found is an error.
#[no_mangle]
unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the arguments are the caller's own.
    match unsafe { look_up(symbol, function, version, flags) } {
        Ok(true) => CUresult::CUDA_SUCCESS,
        Ok(false) => CUresult::CUDA_ERROR_NOT_FOUND,
        Err(code) => code,
    }
}

/// The form since CUDA 12: a name that is not found is a null function and a status, and the call succeeds.
#[no_mangle]
unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut c_uint,
) -> CUresult {
    // SAFETY: the arguments are the caller's own.
    let found = match unsafe { look_up(symbol, function, version, flags) } {
        Ok(found) => found,
        Err(code) => return code,
    };
    if !status.is_null() {
        // SAFETY: not null, and the caller vouches for it as an output.
        unsafe { status.write(if found { FOUND } else { SYMBOL_NOT_FOUND }) };
    }
    CUresult::CUDA_SUCCESS
}

/// Writes the function's address, or null, and says which.
///
/// # Safety
///
/// `symbol` must be null or a C string, `function` null or an output.
unsafe fn look_up(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
) -> Result<bool, CUresult> {
    if symbol.is_null() || function.is_null() || flags > LAST_FLAG || version > DRIVER_VERSION {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for it as a C string.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    let address = address_of(symbol, version);
    // SAFETY: not null, and the caller vouches for it as an output.
    unsafe { function.write(address.unwrap_or(null_mut())) };
    Ok(address.is_some())
}

fn address_of(symbol: &CStr, version: c_int) -> Option<*mut c_void> {
    let address = match symbol.to_str().ok()? {
        "cuGetProcAddress" if version >= WITH_STATUS => cuGetProcAddress_v2 as *const c_void,
        "cuGetProcAddress" => cuGetProcAddress as *const c_void,
        "cuGetErrorName" => cuGetErrorName as *const c_void,
        "cuGetErrorString" => cuGetErrorString as *const c_void,
        name => exported().find(|(symbol, _)| plain(symbol) == name)?.1,
    };
    Some(address.cast_mut())
}
