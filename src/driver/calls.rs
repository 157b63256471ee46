//! One method a driver call: status in, `Result` out. The only code of the safe layers that names `sys::cu*`.
//!
//! # Safety
//!
//! The methods are safe to call from within the crate under one invariant, which the types above establish: a handle passed here was
//! given by this driver and has not been released (`allocation::Handle` owns it), a range passed to unmap, map or free lies in
//! a live reservation of this driver (`Reservation` owns it), and a context, stream or event is a live one. Host memory is
//! passed as slices. For the driver's own behaviour see the trust stated in [`sys`](crate::sys).
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::fork;
use crate::code::Code;
use crate::error::{Attempt, DriverFailure, Error, Result};
use crate::location::Location;
use crate::props::Recipe;
use crate::sys::{
    CUcontext, CUdevice_attribute, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUresult, CUuuid, Call, DriverCalls,
};

/// A physical handle as the driver gave it.
pub(crate) type RawHandle = crate::sys::CUmemGenericAllocationHandle;

/// The calls of one driver, checked.
pub(crate) struct Calls {
    raw: Arc<dyn DriverCalls>,
    generation: u32,
}

impl Calls {
    pub(super) fn new(raw: Arc<dyn DriverCalls>) -> Self {
        Calls {
            raw,
            generation: fork::join(),
        }
    }

    pub(super) fn raw(&self) -> &Arc<dyn DriverCalls> {
        &self.raw
    }

    /// Whether this is a forked child of the process that loaded the driver.
    pub(crate) fn forked(&self) -> bool {
        self.generation != fork::current()
    }

    /// Makes the call unless this is a forked child, and judges its status.
    #[inline]
    fn run(
        &self,
        call: Call,
        status: impl FnOnce(&dyn DriverCalls) -> CUresult,
        attempt: impl FnOnce() -> Attempt,
    ) -> Result<()> {
        if self.forked() {
            return Err(Error::ForkedChild);
        }
        match status(&*self.raw) {
            CUresult::CUDA_SUCCESS => Ok(()),
            status => Err(self.failure(call, status, attempt())),
        }
    }

    #[cold]
    fn failure(&self, call: Call, status: CUresult, attempt: Attempt) -> Error {
        if status == CUresult::CUDA_ERROR_NOT_FOUND && !self.raw.provides(call) {
            return Error::MissingCall { call };
        }
        match (call, status, &attempt) {
            (
                Call::cuMemAddressReserve,
                CUresult::CUDA_ERROR_OUT_OF_MEMORY,
                Attempt::Reserve { size, .. },
            ) => Error::OutOfAddressSpace { size: *size },
            (
                Call::cuMemCreate,
                CUresult::CUDA_ERROR_OUT_OF_MEMORY,
                Attempt::Create { size, location, .. },
            ) => Error::OutOfMemory {
                size: *size,
                location: *location,
            },
            _ => Error::Driver(DriverFailure {
                call,
                code: Code::from(status),
                attempt,
            }),
        }
    }

    pub(crate) fn init(&self) -> Result<()> {
        // SAFETY: no pointers.
        self.run(
            Call::cuInit,
            |raw| unsafe { raw.cuInit(0) },
            || Attempt::Plain,
        )
    }

    pub(crate) fn driver_version(&self) -> Result<u32> {
        let mut version: c_int = 0;
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuDriverGetVersion,
            |raw| unsafe { raw.cuDriverGetVersion(&mut version) },
            || Attempt::Plain,
        )?;
        Ok(version.unsigned_abs())
    }

    pub(crate) fn device_count(&self) -> Result<u32> {
        let mut count: c_int = 0;
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuDeviceGetCount,
            |raw| unsafe { raw.cuDeviceGetCount(&mut count) },
            || Attempt::Plain,
        )?;
        Ok(count.unsigned_abs())
    }

    pub(crate) fn device_get(&self, ordinal: u32) -> Result<c_int> {
        let mut device: c_int = 0;
        let attempt = || Attempt::Device { ordinal };
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuDeviceGet,
            |raw| unsafe { raw.cuDeviceGet(&mut device, ordinal as c_int) },
            attempt,
        )?;
        Ok(device)
    }

    pub(crate) fn device_name(&self, device: c_int) -> Result<String> {
        let mut name = [0u8; 256];
        let attempt = || Attempt::Device {
            ordinal: device as u32,
        };
        // SAFETY: the buffer is a local's and its length is passed; the driver ends the name with a zero byte within it.
        self.run(
            Call::cuDeviceGetName,
            |raw| unsafe { raw.cuDeviceGetName(name.as_mut_ptr().cast(), 255, device) },
            attempt,
        )?;
        let end = name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    pub(crate) fn device_uuid(&self, device: c_int) -> Result<[u8; 16]> {
        let mut uuid = CUuuid::default();
        let attempt = || Attempt::Device {
            ordinal: device as u32,
        };
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuDeviceGetUuid_v2,
            |raw| unsafe { raw.cuDeviceGetUuid_v2(&mut uuid, device) },
            attempt,
        )?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    pub(crate) fn device_attribute(
        &self,
        device: c_int,
        attribute: CUdevice_attribute,
    ) -> Result<i32> {
        let mut value: c_int = 0;
        let attempt = || Attempt::Device {
            ordinal: device as u32,
        };
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuDeviceGetAttribute,
            |raw| unsafe { raw.cuDeviceGetAttribute(&mut value, attribute, device) },
            attempt,
        )?;
        Ok(value)
    }

    pub(crate) fn device_total_memory(&self, device: c_int) -> Result<usize> {
        let mut bytes = 0;
        let attempt = || Attempt::Device {
            ordinal: device as u32,
        };
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuDeviceTotalMem_v2,
            |raw| unsafe { raw.cuDeviceTotalMem_v2(&mut bytes, device) },
            attempt,
        )?;
        Ok(bytes)
    }

    pub(crate) fn device_can_access_peer(&self, device: c_int, peer: c_int) -> Result<bool> {
        let mut can: c_int = 0;
        let attempt = || Attempt::Device {
            ordinal: device as u32,
        };
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuDeviceCanAccessPeer,
            |raw| unsafe { raw.cuDeviceCanAccessPeer(&mut can, device, peer) },
            attempt,
        )?;
        Ok(can != 0)
    }

    pub(crate) fn primary_context_retain(&self, device: c_int) -> Result<CUcontext> {
        let mut context: CUcontext = std::ptr::null_mut();
        let attempt = || Attempt::Device {
            ordinal: device as u32,
        };
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuDevicePrimaryCtxRetain,
            |raw| unsafe { raw.cuDevicePrimaryCtxRetain(&mut context, device) },
            attempt,
        )?;
        Ok(context)
    }

    pub(crate) fn primary_context_release(&self, device: c_int) -> Result<()> {
        let attempt = || Attempt::Device {
            ordinal: device as u32,
        };
        // SAFETY: the caller retained the context and gives that retain up.
        self.run(
            Call::cuDevicePrimaryCtxRelease_v2,
            |raw| unsafe { raw.cuDevicePrimaryCtxRelease_v2(device) },
            attempt,
        )
    }

    pub(crate) fn context_push(&self, context: CUcontext) -> Result<()> {
        // SAFETY: the context is retained by the caller.
        self.run(
            Call::cuCtxPushCurrent_v2,
            |raw| unsafe { raw.cuCtxPushCurrent_v2(context) },
            || Attempt::Plain,
        )
    }

    pub(crate) fn context_pop(&self) -> Result<CUcontext> {
        let mut popped: CUcontext = std::ptr::null_mut();
        // SAFETY: the output pointer is a local's.
        self.run(
            Call::cuCtxPopCurrent_v2,
            |raw| unsafe { raw.cuCtxPopCurrent_v2(&mut popped) },
            || Attempt::Plain,
        )?;
        Ok(popped)
    }

    pub(crate) fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the output pointers are locals'.
        self.run(
            Call::cuMemGetInfo_v2,
            |raw| unsafe { raw.cuMemGetInfo_v2(&mut free, &mut total) },
            || Attempt::Plain,
        )?;
        Ok((free, total))
    }

    pub(crate) fn address_reserve(&self, size: usize, alignment: usize, hint: u64) -> Result<u64> {
        let mut address = 0;
        let attempt = || Attempt::Reserve {
            size,
            alignment,
            hint,
        };
        // SAFETY: the output pointer is a local's.
        let reserve = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemAddressReserve(&mut address, size, alignment, hint, 0)
        };
        self.run(Call::cuMemAddressReserve, reserve, attempt)?;
        Ok(address)
    }

    pub(crate) fn address_free(&self, address: u64, size: usize) -> Result<()> {
        // SAFETY: the caller owns this reservation and nothing is mapped in it.
        self.run(
            Call::cuMemAddressFree,
            |raw| unsafe { raw.cuMemAddressFree(address, size) },
            || Attempt::Range { address, size },
        )
    }

    #[inline]
    pub(crate) fn mem_create(&self, size: usize, recipe: &Recipe) -> Result<RawHandle> {
        let mut handle = 0;
        // SAFETY: both pointers are to locals or borrowed memory that outlive the call.
        let create = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemCreate(&mut handle, size, &recipe.to_raw(), 0)
        };
        self.run(Call::cuMemCreate, create, || recipe.attempt(size))?;
        Ok(handle)
    }

    #[inline]
    pub(crate) fn mem_release(&self, handle: RawHandle, size: usize, address: u64) -> Result<()> {
        // SAFETY: the caller owns one count of this live handle and gives it up.
        self.run(
            Call::cuMemRelease,
            |raw| unsafe { raw.cuMemRelease(handle) },
            || Attempt::Range { address, size },
        )
    }

    #[inline]
    pub(crate) fn mem_map(&self, address: u64, size: usize, handle: RawHandle) -> Result<()> {
        // SAFETY: the range lies in a reservation of the caller's, and the handle is live.
        let map = |raw: &dyn DriverCalls| unsafe { raw.cuMemMap(address, size, 0, handle, 0) };
        self.run(Call::cuMemMap, map, || Attempt::Range { address, size })
    }

    #[inline]
    pub(crate) fn mem_unmap(&self, address: u64, size: usize) -> Result<()> {
        // SAFETY: the range lies in a reservation of the caller's, who answers for what still uses it.
        self.run(
            Call::cuMemUnmap,
            |raw| unsafe { raw.cuMemUnmap(address, size) },
            || Attempt::Range { address, size },
        )
    }

    #[inline]
    pub(crate) fn mem_set_access(
        &self,
        address: u64,
        size: usize,
        descriptors: &[CUmemAccessDesc],
    ) -> Result<()> {
        let Some(first) = descriptors.first() else {
            return Ok(());
        };
        let attempt = || Attempt::Access {
            address,
            size,
            location: Location::from_raw(first.location),
        };
        // SAFETY: the descriptors are a slice and its length; the range lies in a reservation of the caller's.
        let set = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemSetAccess(address, size, descriptors.as_ptr(), descriptors.len())
        };
        self.run(Call::cuMemSetAccess, set, attempt)
    }

    pub(crate) fn mem_get_access(&self, address: u64, location: Location) -> Result<u64> {
        let mut flags = 0;
        let place = location.to_raw();
        let attempt = || Attempt::Access {
            address,
            size: 0,
            location,
        };
        // SAFETY: both pointers are to locals.
        self.run(
            Call::cuMemGetAccess,
            |raw| unsafe { raw.cuMemGetAccess(&mut flags, &place, address) },
            attempt,
        )?;
        Ok(flags)
    }

    pub(crate) fn mem_granularity(
        &self,
        recipe: &Recipe,
        option: CUmemAllocationGranularity_flags,
    ) -> Result<usize> {
        let mut granularity = 0;
        // SAFETY: both pointers are to locals.
        let ask = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemGetAllocationGranularity(&mut granularity, &recipe.to_raw(), option)
        };
        self.run(Call::cuMemGetAllocationGranularity, ask, || {
            recipe.attempt(0)
        })?;
        Ok(granularity)
    }

    pub(crate) fn mem_properties(&self, handle: RawHandle) -> Result<CUmemAllocationProp> {
        let mut properties = CUmemAllocationProp::default();
        // SAFETY: the output pointer is a local's, and the handle is live.
        let ask = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemGetAllocationPropertiesFromHandle(&mut properties, handle)
        };
        self.run(Call::cuMemGetAllocationPropertiesFromHandle, ask, || {
            Attempt::Plain
        })?;
        Ok(properties)
    }

    pub(crate) fn mem_retain(&self, address: u64) -> Result<RawHandle> {
        let mut handle = 0;
        // SAFETY: the output pointer is a local's; the address is only looked up.
        let retain = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemRetainAllocationHandle(&mut handle, address as *mut c_void)
        };
        self.run(Call::cuMemRetainAllocationHandle, retain, || {
            Attempt::Range { address, size: 0 }
        })?;
        Ok(handle)
    }

    /// Base and size of the one mapping (or ordinary allocation) at the address. Needs a current context.
    pub(crate) fn mem_address_range(&self, address: u64) -> Result<(u64, usize)> {
        let (mut base, mut size) = (0, 0);
        // SAFETY: the output pointers are locals'; the address is only looked up.
        let ask = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemGetAddressRange_v2(&mut base, &mut size, address)
        };
        self.run(Call::cuMemGetAddressRange_v2, ask, || Attempt::Range {
            address,
            size: 0,
        })?;
        Ok((base, size))
    }

    pub(crate) fn copy_to_device(&self, address: u64, from: &[u8]) -> Result<()> {
        let attempt = || Attempt::Range {
            address,
            size: from.len(),
        };
        // SAFETY: the host side is a slice and its length, and the call returns when it has been read.
        let copy = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemcpyHtoD_v2(address, from.as_ptr().cast(), from.len())
        };
        self.run(Call::cuMemcpyHtoD_v2, copy, attempt)
    }

    pub(crate) fn copy_to_host(&self, to: &mut [u8], address: u64) -> Result<()> {
        let size = to.len();
        // SAFETY: the host side is a slice borrowed mutably and its length, and the call returns when it has been written.
        let copy = |raw: &dyn DriverCalls| unsafe {
            raw.cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), address, size)
        };
        self.run(Call::cuMemcpyDtoH_v2, copy, || Attempt::Range {
            address,
            size,
        })
    }

    pub(crate) fn copy_on_device(&self, to: u64, from: u64, size: usize) -> Result<()> {
        // SAFETY: both ranges are mapped ranges of reservations that the caller borrows.
        let copy = |raw: &dyn DriverCalls| unsafe { raw.cuMemcpyDtoD_v2(to, from, size) };
        self.run(Call::cuMemcpyDtoD_v2, copy, || Attempt::Range {
            address: to,
            size,
        })
    }

    pub(crate) fn fill(&self, address: u64, value: u8, size: usize) -> Result<()> {
        // SAFETY: the range is a mapped range of a reservation that the caller borrows.
        let fill = |raw: &dyn DriverCalls| unsafe { raw.cuMemsetD8_v2(address, value, size) };
        self.run(Call::cuMemsetD8_v2, fill, || Attempt::Range {
            address,
            size,
        })
    }

    /// Waits for the current context's default stream: a copy or a fill may return before the device has done it.
    pub(crate) fn default_stream_synchronize(&self) -> Result<()> {
        // SAFETY: null names the default stream of the current context.
        let wait = |raw: &dyn DriverCalls| unsafe { raw.cuStreamSynchronize(std::ptr::null_mut()) };
        self.run(Call::cuStreamSynchronize, wait, || Attempt::Plain)
    }
}
