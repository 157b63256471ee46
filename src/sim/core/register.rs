//! Memory of the host that is registered, so that the devices reach it at full speed.
//!
//! Books only: the simulated driver copies to and from every memory of the host alike. A device reaches registered
//! memory at the host's own address. What is refused follows the driver's documentation; the codes that a real driver
//! gives to an overlap and to an unknown address were not measured.

use std::ffi::c_uint;
use std::ops::Range;

use crate::sys::CUresult;

use super::super::place::Rights;
use super::abi::{Out, Raw};
use super::{demand, invalid, refuse, Answer, State};

/// For all contexts, mapped for the device, memory of another device, read-only.
const KNOWN: c_uint = 0xf;
/// The last of them.
const READ_ONLY: c_uint = 8;

/// A registered range of the host's memory. It belongs to a context and goes with it.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) size: u64,
    device: usize,
    /// What devices may do with it.
    rights: Rights,
}

impl State {
    pub(super) fn cuMemHostRegister_v2(
        &mut self,
        memory: Raw,
        size: usize,
        flags: c_uint,
    ) -> Answer {
        memory.wanted()?;
        demand(size != 0 && flags & !KNOWN == 0)?;
        let device = self.working_device()?;
        let (start, size) = (memory.bits() as u64, size as u64);
        let Some(end) = start.checked_add(size) else {
            return invalid();
        };
        let before = self.registered.range(..end).next_back();
        if before.is_some_and(|(base, range)| base + range.size > start) {
            return refuse(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let rights = match flags & READ_ONLY {
            0 => Rights::ReadWrite,
            _ => Rights::Read,
        };
        let range = Registered {
            size,
            device,
            rights,
        };
        self.registered.insert(start, range);
        Ok(())
    }

    pub(super) fn cuMemHostUnregister(&mut self, memory: Raw) -> Answer {
        memory.wanted()?;
        self.working_device()?;
        match self.registered.remove(&(memory.bits() as u64)) {
            Some(_) => Ok(()),
            None => refuse(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
        }
    }

    /// The host's own address, as on a machine with unified addresses. Memory that was registered without `DEVICEMAP`
    /// has it too.
    pub(super) fn cuMemHostGetDevicePointer_v2(
        &mut self,
        address: Out<u64>,
        memory: Raw,
        flags: c_uint,
    ) -> Answer {
        address.wanted()?;
        memory.wanted()?;
        demand(flags == 0)?;
        self.working_device()?;
        let start = memory.bits() as u64;
        demand(self.registered_at(start).is_some())?;
        address.put(start)
    }

    /// The registered range that an address lies in, and its base.
    pub(super) fn registered_at(&self, address: u64) -> Option<(u64, &Registered)> {
        let (&base, range) = self.registered.range(..=address).next_back()?;
        (address - base < range.size).then_some((base, range))
    }

    /// Refuses what is not registered as one range, or not for that.
    pub(super) fn demand_registered(&self, range: Range<u64>, needed: Rights) -> Answer {
        let found = self.registered_at(range.start);
        demand(found.is_some_and(|(base, of)| range.end <= base + of.size && of.rights >= needed))
    }

    /// Forgets what a context leaves behind.
    pub(super) fn clear_registered(&mut self, device: usize) {
        self.registered.retain(|_, range| range.device != device);
    }
}
