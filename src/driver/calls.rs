//! One method a driver call: status in, `Result` out. The only code of the safe layers that names `sys::cu*`.
//!
//! # Safety
//!
//! Every call is made by [`driver_call!`], under facts that the types above establish, so that these methods are safe
//! to use within the crate: a handle passed here was given by this driver and has not been released
//! (`allocation::Handle` owns it); a range passed to map, unmap or free lies in a live reservation (`Reservation` owns
//! it); a context is one that is retained. Output pointers are those of locals, host memory comes as slices with their
//! own lengths. For the driver's own behaviour see the trust stated in [`sys`](crate::sys).
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use super::answers;
use crate::code::Code;
use crate::error::{Attempt, DriverFailure, Error, Result};
use crate::fork;
use crate::location::Location;
use crate::recipe::Recipe;
use crate::sys::{
    CUcontext, CUdevice_attribute, CUevent, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUresult, CUstream, CUuuid, Call, DriverCalls,
};

/// A physical handle as the driver gave it.
pub(crate) type RawHandle = crate::sys::CUmemGenericAllocationHandle;

/// The calls of one driver, checked.
pub(crate) struct Calls {
    raw: Arc<dyn DriverCalls>,
    generation: u32,
}

/// Makes a call, unless this is a forked child, and judges its status; the attempt is only worked out on failure.
macro_rules! driver_call {
    ($self:ident.$call:ident($($argument:expr),*), $attempt:expr) => {
        $self.judge(
            Call::$call,
            // SAFETY: handles, ranges and contexts are live ones of this driver, pointers are to locals and slices: see
            // the head of this file for who established that.
            (!$self.forked()).then(|| unsafe { $self.raw.$call($($argument),*) }),
            || $attempt,
        )
    };
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
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.generation != fork::current()
    }

    /// What a call's status means; none where a forked child did not make the call.
    #[inline]
    fn judge(
        &self,
        call: Call,
        status: Option<CUresult>,
        attempt: impl FnOnce() -> Attempt,
    ) -> Result<()> {
        match status {
            Some(CUresult::CUDA_SUCCESS) => Ok(()),
            Some(status) => Err(self.failure(call, status, attempt())),
            None => Err(Error::ForkedChild),
        }
    }

    #[cold]
    fn failure(&self, call: Call, status: CUresult, attempt: Attempt) -> Error {
        match (status, attempt) {
            (CUresult::CUDA_ERROR_NOT_FOUND, _) if !self.raw.provides(call) => {
                Error::MissingCall { call }
            }
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, Attempt::Reserve { size, .. }) => {
                Error::OutOfAddressSpace { size }
            }
            // Of a creation only: asking for a granularity is attempted for no bytes, and takes no memory.
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, Attempt::Create { size, location, .. })
                if call == Call::cuMemCreate =>
            {
                Error::OutOfMemory { size, location }
            }
            (status, attempt) => {
                let code = Code::from(status);
                let failure = DriverFailure {
                    call,
                    code,
                    attempt,
                };
                match answers::contradicted(&failure) {
                    Some(ours) => Error::contradiction(ours, failure),
                    None => Error::Driver(failure),
                }
            }
        }
    }

    pub(crate) fn init(&self) -> Result<()> {
        driver_call!(self.cuInit(0), Attempt::Plain)
    }

    pub(crate) fn driver_version(&self) -> Result<u32> {
        let mut version: c_int = 0;
        driver_call!(self.cuDriverGetVersion(&mut version), Attempt::Plain)?;
        answers::number(Call::cuDriverGetVersion, version)
    }

    pub(crate) fn device_count(&self) -> Result<u32> {
        let mut count: c_int = 0;
        driver_call!(self.cuDeviceGetCount(&mut count), Attempt::Plain)?;
        answers::number(Call::cuDeviceGetCount, count)
    }

    pub(crate) fn device_get(&self, ordinal: u32) -> Result<c_int> {
        let mut device: c_int = 0;
        driver_call!(
            self.cuDeviceGet(&mut device, ordinal as c_int),
            Attempt::Device { ordinal }
        )?;
        answers::number(Call::cuDeviceGet, device).map(|_| device)
    }

    pub(crate) fn device_name(&self, device: c_int) -> Result<String> {
        let mut name = [0u8; 256];
        // The last byte is not offered, so that the name ends within the buffer whatever the driver does.
        driver_call!(
            self.cuDeviceGetName(name.as_mut_ptr().cast(), 255, device),
            Attempt::device(device)
        )?;
        let end = name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    pub(crate) fn device_uuid(&self, device: c_int) -> Result<[u8; 16]> {
        let mut uuid = CUuuid::default();
        driver_call!(
            self.cuDeviceGetUuid_v2(&mut uuid, device),
            Attempt::device(device)
        )?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    pub(crate) fn device_attribute(
        &self,
        device: c_int,
        attribute: CUdevice_attribute,
    ) -> Result<i32> {
        let mut value: c_int = 0;
        driver_call!(
            self.cuDeviceGetAttribute(&mut value, attribute, device),
            Attempt::device(device)
        )?;
        Ok(value)
    }

    pub(crate) fn device_total_memory(&self, device: c_int) -> Result<usize> {
        let mut bytes = 0;
        driver_call!(
            self.cuDeviceTotalMem_v2(&mut bytes, device),
            Attempt::device(device)
        )?;
        Ok(bytes)
    }

    pub(crate) fn device_can_access_peer(&self, device: c_int, peer: c_int) -> Result<bool> {
        let mut can: c_int = 0;
        driver_call!(
            self.cuDeviceCanAccessPeer(&mut can, device, peer),
            Attempt::device(device)
        )?;
        answers::truth(Call::cuDeviceCanAccessPeer, can)
    }

    pub(crate) fn primary_context_retain(&self, device: c_int) -> Result<CUcontext> {
        let mut context: CUcontext = null_mut();
        driver_call!(
            self.cuDevicePrimaryCtxRetain(&mut context, device),
            Attempt::device(device)
        )?;
        Ok(context)
    }

    pub(crate) fn primary_context_release(&self, device: c_int) -> Result<()> {
        driver_call!(
            self.cuDevicePrimaryCtxRelease_v2(device),
            Attempt::device(device)
        )
    }

    pub(crate) fn context_push(&self, context: CUcontext) -> Result<()> {
        driver_call!(self.cuCtxPushCurrent_v2(context), Attempt::Plain)
    }

    pub(crate) fn context_pop(&self) -> Result<CUcontext> {
        let mut popped: CUcontext = null_mut();
        driver_call!(self.cuCtxPopCurrent_v2(&mut popped), Attempt::Plain)?;
        Ok(popped)
    }

    /// Waits for the current context's default stream: a copy or a fill may return before the device has done it.
    pub(crate) fn default_stream_synchronize(&self) -> Result<()> {
        driver_call!(self.cuStreamSynchronize(null_mut()), Attempt::Plain)
    }

    pub(crate) fn stream_synchronize(&self, stream: CUstream) -> Result<()> {
        driver_call!(self.cuStreamSynchronize(stream), Attempt::Plain)
    }

    pub(crate) fn stream_is_done(&self, stream: CUstream) -> Result<bool> {
        is_done(driver_call!(self.cuStreamQuery(stream), Attempt::Plain))
    }

    pub(crate) fn event_synchronize(&self, event: CUevent) -> Result<()> {
        driver_call!(self.cuEventSynchronize(event), Attempt::Plain)
    }

    pub(crate) fn event_is_done(&self, event: CUevent) -> Result<bool> {
        is_done(driver_call!(self.cuEventQuery(event), Attempt::Plain))
    }

    /// Free and all bytes of the current context's device.
    pub(crate) fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        driver_call!(self.cuMemGetInfo_v2(&mut free, &mut total), Attempt::Plain)?;
        answers::memory(free, total)
    }

    pub(crate) fn address_reserve(&self, size: usize, alignment: usize, hint: u64) -> Result<u64> {
        let mut address = 0;
        driver_call!(
            self.cuMemAddressReserve(&mut address, size, alignment, hint, 0),
            Attempt::Reserve {
                size,
                alignment,
                hint
            }
        )?;
        Ok(address)
    }

    pub(crate) fn address_free(&self, address: u64, size: usize) -> Result<()> {
        driver_call!(
            self.cuMemAddressFree(address, size),
            Attempt::Range { address, size }
        )
    }

    #[inline]
    pub(crate) fn mem_create(&self, size: usize, recipe: &Recipe) -> Result<RawHandle> {
        let mut handle = 0;
        let properties = recipe.to_raw();
        driver_call!(
            self.cuMemCreate(&mut handle, size, &properties, 0),
            creation(recipe, size)
        )?;
        answers::handle(Call::cuMemCreate, handle)
    }

    #[inline]
    pub(crate) fn mem_release(&self, handle: RawHandle, size: usize) -> Result<()> {
        driver_call!(self.cuMemRelease(handle), Attempt::Handle { size })
    }

    #[inline]
    pub(crate) fn mem_map(&self, address: u64, size: usize, handle: RawHandle) -> Result<()> {
        driver_call!(
            self.cuMemMap(address, size, 0, handle, 0),
            Attempt::Range { address, size }
        )
    }

    #[inline]
    pub(crate) fn mem_unmap(&self, address: u64, size: usize) -> Result<()> {
        driver_call!(
            self.cuMemUnmap(address, size),
            Attempt::Range { address, size }
        )
    }

    /// Sets what the descriptors' locations may do; nothing is asked of the driver where there are none.
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
        driver_call!(
            self.cuMemSetAccess(address, size, descriptors.as_ptr(), descriptors.len()),
            Attempt::Access {
                address,
                size,
                location: Location::from_raw(first.location)
            }
        )
    }

    pub(crate) fn mem_get_access(&self, address: u64, location: Location) -> Result<u64> {
        let mut flags = 0;
        let place = location.to_raw();
        driver_call!(
            self.cuMemGetAccess(&mut flags, &place, address),
            Attempt::Access {
                address,
                size: 0,
                location
            }
        )?;
        Ok(flags)
    }

    pub(crate) fn mem_granularity(
        &self,
        recipe: &Recipe,
        option: CUmemAllocationGranularity_flags,
    ) -> Result<usize> {
        let mut granularity = 0;
        let properties = recipe.to_raw();
        driver_call!(
            self.cuMemGetAllocationGranularity(&mut granularity, &properties, option),
            creation(recipe, 0)
        )?;
        Ok(granularity)
    }

    pub(crate) fn mem_properties(&self, handle: RawHandle) -> Result<CUmemAllocationProp> {
        let mut properties = CUmemAllocationProp::default();
        driver_call!(
            self.cuMemGetAllocationPropertiesFromHandle(&mut properties, handle),
            Attempt::Plain
        )?;
        Ok(properties)
    }

    pub(crate) fn mem_retain(&self, address: u64) -> Result<RawHandle> {
        let mut handle = 0;
        driver_call!(
            self.cuMemRetainAllocationHandle(&mut handle, address as *mut c_void),
            Attempt::Range { address, size: 0 }
        )?;
        answers::handle(Call::cuMemRetainAllocationHandle, handle)
    }

    /// Base and size of the one mapping (or ordinary allocation) at the address. Needs a current context.
    pub(crate) fn mem_address_range(&self, address: u64) -> Result<(u64, usize)> {
        let (mut base, mut size) = (0, 0);
        driver_call!(
            self.cuMemGetAddressRange_v2(&mut base, &mut size, address),
            Attempt::Range { address, size: 0 }
        )?;
        answers::range_at(address, base, size)
    }

    pub(crate) fn copy_to_device(&self, address: u64, from: &[u8]) -> Result<()> {
        let size = from.len();
        driver_call!(
            self.cuMemcpyHtoD_v2(address, from.as_ptr().cast(), size),
            Attempt::Range { address, size }
        )
    }

    pub(crate) fn copy_to_host(&self, to: &mut [u8], address: u64) -> Result<()> {
        let size = to.len();
        driver_call!(
            self.cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), address, size),
            Attempt::Range { address, size }
        )
    }

    pub(crate) fn copy_on_device(&self, to: u64, from: u64, size: usize) -> Result<()> {
        driver_call!(
            self.cuMemcpyDtoD_v2(to, from, size),
            Attempt::Range { address: to, size }
        )
    }

    pub(crate) fn fill(&self, address: u64, value: u8, size: usize) -> Result<()> {
        driver_call!(
            self.cuMemsetD8_v2(address, value, size),
            Attempt::Range { address, size }
        )
    }
}

/// What the answer to a query says of the work: done, not yet, or that it failed.
fn is_done(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(Code::ERROR_NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a failed creation, or a question about one, was to do.
fn creation(recipe: &Recipe, size: usize) -> Attempt {
    let Recipe {
        location,
        handle_types,
        rdma,
        compression,
    } = *recipe;
    Attempt::Create {
        size,
        location,
        handle_types,
        rdma,
        compression,
    }
}
