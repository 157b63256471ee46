//! The driver itself, its devices, their primary contexts.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::null_mut;

use super::{driver_call, Calls};
use crate::driver::answers;
use crate::error::{Attempt, Result};
use crate::sys::{CUcontext, CUdevice_attribute, CUuuid, Call};

impl Calls {
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

    /// Free and all bytes of the current context's device.
    pub(crate) fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        driver_call!(self.cuMemGetInfo_v2(&mut free, &mut total), Attempt::Plain)?;
        answers::memory(free, total)
    }
}
