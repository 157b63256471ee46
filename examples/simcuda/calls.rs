//! The driver's calls, exported: one C function for each call of the crate's list.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cuda_vmm::sys::{
    for_each_call, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUhostFn, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemRangeHandleType,
    CUmodule, CUpointer_attribute, CUresult, CUstream, CUuuid, Call, DriverCalls, CUDA_MEMCPY2D,
};

use crate::process;

macro_rules! export {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $(
            #[no_mangle]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                // SAFETY: the arguments are the caller's own.
                process::call(Call::$name, |driver| unsafe { driver.$name($($arg),*) })
            }
        )*

        /// The symbols above, with their addresses.
        pub fn exported() -> impl Iterator<Item = (&'static str, *const c_void)> {
            [$((stringify!($name), $name as *const c_void)),*].into_iter()
        }
    };
}
for_each_call!(export);
