//! The list of driver calls, and everything that must exist once for each of them.
//!
//! [`for_each_call!`] holds the list. It gives the [`Call`] names, the [`DriverCalls`] trait, the dispatch through a
//! [`CallTable`], and (in the `sim` module) the interposer that can fail and record each call. A call added to the list
//! and to `wrapper.h` is in all of them; nothing can be forgotten.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use super::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUhostFn,
    CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemRangeHandleType,
    CUmodule, CUpointer_attribute, CUresult, CUstream, CUuuid, CallTable, CUDA_MEMCPY2D,
};

/// Calls the given macro with the whole list of driver calls: `name(argument: type, ...);` for each.
///
/// For what must exist once for each call and must not fall behind the list: an implementation of
/// [`DriverCalls`](crate::sys::DriverCalls) that hands every call on, a library that exports them all. The types are
/// written as [`sys`](crate::sys) and [`std::ffi`] name them; bring both into scope where the macro is used.
///
/// ```
/// macro_rules! count {
///     ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => { [$(stringify!($name)),*].len() };
/// }
/// assert_eq!(cuda_vmm::sys::for_each_call!(count), cuda_vmm::sys::Call::ALL.len());
/// ```
#[doc(hidden)] // At the crate's root, where exported macros appear; `sys` shows it.
#[macro_export]
macro_rules! for_each_call {
    ($then:ident) => {
        $then! {
            cuInit(flags: c_uint);
            cuDriverGetVersion(version: *mut c_int);
            cuDeviceGetCount(count: *mut c_int);
            cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
            cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
            cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
            cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
            cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
            cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);

            cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
            cuDevicePrimaryCtxRelease_v2(device: CUdevice);
            cuDevicePrimaryCtxReset_v2(device: CUdevice);
            cuCtxPushCurrent_v2(context: CUcontext);
            cuCtxPopCurrent_v2(context: *mut CUcontext);
            cuCtxSetCurrent(context: CUcontext);
            cuCtxGetCurrent(context: *mut CUcontext);
            cuCtxGetDevice(device: *mut CUdevice);
            cuCtxSynchronize();

            cuMemAddressReserve(address: *mut CUdeviceptr, size: usize, alignment: usize, hint: CUdeviceptr, flags: c_ulonglong);
            cuMemAddressFree(address: CUdeviceptr, size: usize);
            cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong);
            cuMemRelease(handle: CUmemGenericAllocationHandle);
            cuMemMap(address: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong);
            cuMemUnmap(address: CUdeviceptr, size: usize);
            cuMemSetAccess(address: CUdeviceptr, size: usize, descriptors: *const CUmemAccessDesc, count: usize);
            cuMemGetAccess(rights: *mut c_ulonglong, location: *const CUmemLocation, address: CUdeviceptr);
            cuMemExportToShareableHandle(shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: c_ulonglong);
            cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: CUmemAllocationHandleType);
            cuMemGetAllocationGranularity(granularity: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags);
            cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
            cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);

            cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr);
            cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
            cuMemGetHandleForAddressRange(handle: *mut c_void, address: CUdeviceptr, size: usize, kind: CUmemRangeHandleType, flags: c_ulonglong);

            cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            cuMemAlloc_v2(address: *mut CUdeviceptr, size: usize);
            cuMemFree_v2(address: CUdeviceptr);
            cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, size: usize);
            cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, size: usize);
            cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, size: usize);
            cuMemsetD8_v2(to: CUdeviceptr, value: u8, size: usize);
            cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, size: usize, stream: CUstream);
            cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, size: usize, stream: CUstream);
            cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, size: usize, stream: CUstream);
            cuMemsetD8Async(to: CUdeviceptr, value: u8, size: usize, stream: CUstream);
            cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);

            cuMemHostRegister_v2(memory: *mut c_void, size: usize, flags: c_uint);
            cuMemHostUnregister(memory: *mut c_void);
            cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, memory: *mut c_void, flags: c_uint);

            cuStreamCreate(stream: *mut CUstream, flags: c_uint);
            cuStreamDestroy_v2(stream: CUstream);
            cuStreamSynchronize(stream: CUstream);
            cuStreamQuery(stream: CUstream);
            cuEventCreate(event: *mut CUevent, flags: c_uint);
            cuEventDestroy_v2(event: CUevent);
            cuEventRecord(event: CUevent, stream: CUstream);
            cuEventSynchronize(event: CUevent);
            cuEventQuery(event: CUevent);
            cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
            cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
            cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);

            cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
            cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
            cuModuleUnload(module: CUmodule);
            cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void);
        }
    };
}
#[doc(inline)]
pub use for_each_call;

macro_rules! declare {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// A driver call, by the name of its exported symbol.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Call { $($name),* }

        impl Call {
            /// Every call of the list, in its order.
            pub const ALL: &'static [Call] = &[$(Call::$name),*];

            /// The exported symbol's name.
            pub const fn symbol(self) -> &'static str {
                match self { $(Call::$name => stringify!($name)),* }
            }
        }

        /// The driver calls this crate makes, with the C signatures of `cuda.h`.
        ///
        /// Implemented by [`Library`](super::Library) (the driver), by the simulated driver and by the interposer that
        /// fails and records calls. A method left out answers `CUDA_ERROR_NOT_FOUND`, and
        /// [`provides`](DriverCalls::provides) should then say `false` for it.
        ///
        /// # Safety
        ///
        /// An implementation must behave as the driver documents each call: write only behind output pointers and
        /// within the stated lengths, not unwind, and not keep a host pointer after it returned (but for the
        /// asynchronous copies and host functions, until the stream has passed them).
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe trait DriverCalls: Send + Sync + 'static {
            /// Whether this driver has the call at all.
            fn provides(&self, call: Call) -> bool;

            $(
                #[doc = concat!("Calls `", stringify!($name), "`.")]
                ///
                /// # Safety
                ///
                /// The arguments must be as the driver's documentation of this call demands.
                #[inline]
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    $(let _ = $arg;)*
                    CUresult::CUDA_ERROR_NOT_FOUND
                }
            )*
        }

        impl CallTable {
            /// A table filled by asking `resolve` for each symbol, a null pointer meaning that it is absent.
            ///
            /// # Safety
            ///
            /// What `resolve` returns for a name must be null or a function of that name in the CUDA driver's ABI.
            #[allow(clippy::missing_transmute_annotations)] // The member's own type, whatever the header makes it.
            pub unsafe fn resolve(mut resolve: impl FnMut(Call) -> *const c_void) -> Self {
                CallTable {
                    // SAFETY: each member is an optional function pointer, null when absent; the caller vouches that a
                    // non-null address is that very function.
                    $($name: unsafe { std::mem::transmute::<*const c_void, _>(resolve(Call::$name)) }),*
                }
            }

            /// Whether the table has the call.
            pub fn provides(&self, call: Call) -> bool {
                match call { $(Call::$name => self.$name.is_some()),* }
            }
        }

        // SAFETY: every method hands its arguments on to the driver's own function, or does nothing where it is absent.
        unsafe impl DriverCalls for CallTable {
            fn provides(&self, call: Call) -> bool {
                CallTable::provides(self, call)
            }

            $(
                #[inline]
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    match self.$name {
                        // SAFETY: the caller vouches for the arguments, whoever filled the table for the function.
                        Some(function) => unsafe { function($($arg.to_abi()),*) },
                        None => CUresult::CUDA_ERROR_NOT_FOUND,
                    }
                }
            )*
        }
    };
}
for_each_call!(declare);

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.symbol())
    }
}

/// `size_t` is `unsigned long` in the generated table and `usize` here; everything else passes unchanged.
trait ToAbi<T> {
    fn to_abi(self) -> T;
}

impl<T> ToAbi<T> for T {
    #[inline(always)]
    fn to_abi(self) -> T {
        self
    }
}

impl ToAbi<std::ffi::c_ulong> for usize {
    #[inline(always)]
    fn to_abi(self) -> std::ffi::c_ulong {
        self as std::ffi::c_ulong
    }
}

impl ToAbi<*mut std::ffi::c_ulong> for *mut usize {
    #[inline(always)]
    fn to_abi(self) -> *mut std::ffi::c_ulong {
        self.cast()
    }
}
