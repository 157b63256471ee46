//! Memory of the host that is registered, so that the devices reach it at full speed.
//!
//! Books only: the simulated driver copies to and from every memory of the host alike. What is refused follows the
//! driver's documentation; the codes that a real driver gives to an overlap and to an unknown address were not measured.

use std::ffi::c_uint;

use crate::sys::CUresult;

use super::abi::Raw;
use super::{demand, invalid, refuse, Answer, State};

/// For all contexts, mapped for the device, memory of another device, read-only.
const KNOWN: c_uint = 0xf;

/// A registered range of the host's memory. It belongs to a context and goes with it.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) size: u64,
    device: usize,
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
        self.registered.insert(start, Registered { size, device });
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

    /// Forgets what a context leaves behind.
    pub(super) fn clear_registered(&mut self, device: usize) {
        self.registered.retain(|_, range| range.device != device);
    }
}
