//! The calls whose symbols carry a version, under their plain names too.
//!
//! The real library exports these names with the ABI they had before the version, some of it from a time of 32-bit
//! addresses. Programs that look them up by hand today mean what `cuda.h` means by the name, which is the newest
//! version.

use std::ffi::{c_uint, c_void};

use cuda_vmm::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUresult, CUstream, CUuuid, Call, CUDA_MEMCPY2D,
};

use crate::calls::*;

macro_rules! alias {
    ($($plain:ident = $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $plain($($arg: $ty),*) -> CUresult {
                // SAFETY: the arguments are the caller's own.
                unsafe { $name($($arg),*) }
            }
        )*

        const ALIASED: &[&str] = &[$(stringify!($name)),*];
    };
}
alias! {
    cuDeviceGetUuid = cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDeviceTotalMem = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDevicePrimaryCtxRelease = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset_v2(device: CUdevice);
    cuCtxPushCurrent = cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent = cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuMemGetAddressRange = cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr);
    cuMemGetInfo = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAlloc = cuMemAlloc_v2(address: *mut CUdeviceptr, size: usize);
    cuMemFree = cuMemFree_v2(address: CUdeviceptr);
    cuMemcpyHtoD = cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, size: usize);
    cuMemcpyDtoH = cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, size: usize);
    cuMemcpyDtoD = cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, size: usize);
    cuMemsetD8 = cuMemsetD8_v2(to: CUdeviceptr, value: u8, size: usize);
    cuMemcpyHtoDAsync = cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, size: usize, stream: CUstream);
    cuMemcpyDtoHAsync = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, size: usize, stream: CUstream);
    cuMemcpyDtoDAsync = cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, size: usize, stream: CUstream);
    cuMemcpy2DAsync = cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    cuMemHostRegister = cuMemHostRegister_v2(memory: *mut c_void, size: usize, flags: c_uint);
    cuMemHostGetDevicePointer = cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, memory: *mut c_void, flags: c_uint);
    cuStreamWriteValue32 = cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
    cuStreamDestroy = cuStreamDestroy_v2(stream: CUstream);
    cuEventDestroy = cuEventDestroy_v2(event: CUevent);
}

/// A symbol's name without its version.
pub const fn plain(symbol: &'static str) -> &'static str {
    match symbol.as_bytes() {
        [plain @ .., b'_', b'v', b'2'] => match std::str::from_utf8(plain) {
            Ok(plain) => plain,
            Err(_) => symbol,
        },
        _ => symbol,
    }
}

// A call that joins the list with a version in its name must join this one too, or this library does not compile.
const _: () = {
    let mut call = 0;
    while call < Call::ALL.len() {
        let symbol = Call::ALL[call].symbol();
        let versioned = plain(symbol).len() < symbol.len();
        assert!(
            !versioned || is_aliased(symbol),
            "a versioned call has no plain name"
        );
        call += 1;
    }
};

const fn is_aliased(symbol: &str) -> bool {
    let mut index = 0;
    while index < ALIASED.len() {
        if same(ALIASED[index].as_bytes(), symbol.as_bytes()) {
            return true;
        }
        index += 1;
    }
    false
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}
