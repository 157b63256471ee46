//! Start-up and devices.

use std::ffi::{c_char, c_int, c_uint};

use crate::sys::{CUdevice_attribute, CUresult, CUuuid};

use super::abi::Out;
use super::{demand, invalid, refuse, Answer, State};

impl State {
    pub(super) fn cuInit(&mut self, flags: c_uint) -> Answer {
        demand(flags == 0)
    }

    pub(super) fn cuDriverGetVersion(&mut self, version: Out<c_int>) -> Answer {
        version.put(self.config.driver_version as c_int)
    }

    pub(super) fn cuDeviceGetCount(&mut self, count: Out<c_int>) -> Answer {
        count.put(self.config.devices.len() as c_int)
    }

    pub(super) fn cuDeviceGet(&mut self, device: Out<c_int>, ordinal: c_int) -> Answer {
        self.device(ordinal)?;
        device.put(ordinal)
    }

    pub(super) fn cuDeviceGetName(
        &mut self,
        name: Out<c_char>,
        len: c_int,
        device: c_int,
    ) -> Answer {
        let device = self.device(device)?;
        demand(len > 0)?;
        let text = self.config.devices[device].name.as_bytes();
        let kept = text.len().min(len as usize - 1);
        let mut bytes: Vec<c_char> = text[..kept].iter().map(|&byte| byte as c_char).collect();
        bytes.push(0);
        name.put_slice(&bytes, len as usize)
    }

    pub(super) fn cuDeviceGetUuid_v2(&mut self, uuid: Out<CUuuid>, device: c_int) -> Answer {
        let device = self.device(device)?;
        let bytes = self.uuid(device).map(|byte| byte as c_char);
        uuid.put(CUuuid { bytes })
    }

    pub(super) fn cuDeviceGetAttribute(
        &mut self,
        value: Out<c_int>,
        attribute: CUdevice_attribute,
        device: c_int,
    ) -> Answer {
        let device = self.device(device)?;
        match self.config.devices[device].attribute_of(attribute, device) {
            Some(answer) => value.put(answer),
            None => invalid(),
        }
    }

    pub(super) fn cuDeviceTotalMem_v2(&mut self, bytes: Out<usize>, device: c_int) -> Answer {
        // Written for a device that does not exist, too.
        bytes.put(0)?;
        let device = self.device(device)?;
        bytes.put(self.config.devices[device].memory as usize)
    }

    pub(super) fn cuDeviceCanAccessPeer(
        &mut self,
        can: Out<c_int>,
        device: c_int,
        peer: c_int,
    ) -> Answer {
        let (device, peer) = (self.device(device)?, self.device(peer)?);
        can.put(self.config.peers(device, peer).into())
    }

    /// The index of an ordinal that exists.
    pub(super) fn device(&self, ordinal: c_int) -> Answer<usize> {
        match usize::try_from(ordinal) {
            Ok(index) if index < self.config.devices.len() => Ok(index),
            _ => refuse(CUresult::CUDA_ERROR_INVALID_DEVICE),
        }
    }

    pub(super) fn uuid(&self, device: usize) -> [u8; 16] {
        self.config.devices[device].uuid.unwrap_or_default()
    }

    /// What a reservation's base and size must be a multiple of.
    pub(super) fn granule(&self) -> u64 {
        self.config.granule() as u64
    }
}
