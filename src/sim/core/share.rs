//! Sharing: exported, imported, and found again from an address.

use std::os::fd::{IntoRawFd, RawFd};

use crate::sys::{CUmemAllocationHandleType, CUmemFabricHandle, CUresult, Call};

use super::super::place::Place;
use super::abi::{Out, Raw};
use super::allocate::{Physical, FABRIC, POSIX, WIN32, WIN32_KMT};
use super::fabric;
use super::store::{Origin, Shared};
use super::{demand, invalid, refuse, Answer, State};

impl State {
    pub(super) fn cuMemExportToShareableHandle(
        &mut self,
        shareable: Raw,
        handle: u64,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) -> Answer {
        shareable.wanted()?;
        demand(flags == 0)?;
        let entry = self.handle(Call::cuMemExportToShareableHandle, handle)?;
        demand(!entry.imported)?;
        let physical = self.physical(entry.physical)?;
        demand(kind.0 == POSIX || kind.0 == FABRIC)?;
        demand(physical.types & kind.0 != 0)?;
        if let Place::Device(ordinal) = physical.place {
            let device = &self.config.devices[self.device(ordinal)?];
            if let Some(code) = device.export_refusal(kind.0) {
                return refuse(code);
            }
        }
        if kind.0 == FABRIC {
            let name = self.export_name(entry.physical)?;
            return shareable.put(name);
        }
        let fd = self.export_fd(entry.physical)?;
        shareable.put(fd)
    }

    pub(super) fn cuMemImportFromShareableHandle(
        &mut self,
        handle: Out<u64>,
        shareable: Raw,
        kind: CUmemAllocationHandleType,
    ) -> Answer {
        handle.wanted()?;
        let physical = match kind.0 {
            // The descriptor itself stands in the pointer's place.
            POSIX => self.import_fd(shareable.bits() as isize)?,
            FABRIC => self.import_fabric(&shareable.get()?)?,
            WIN32 | WIN32_KMT => return refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => return invalid(),
        };
        handle.put(self.new_handle(physical, true))
    }

    /// One more count on the handle that is mapped there.
    pub(super) fn cuMemRetainAllocationHandle(&mut self, handle: Out<u64>, address: Raw) -> Answer {
        handle.wanted()?;
        let Some((_, mapping)) = self.mapping_at(address.bits() as u64) else {
            return invalid();
        };
        let retained = mapping.handle;
        if let Some(entry) = self.handles.get_mut(&retained) {
            entry.count += 1;
        }
        handle.put(retained)
    }

    /// A descriptor that keeps the memory until it, and every copy of it, is closed.
    pub(super) fn export_fd(&mut self, number: u64) -> Answer<RawFd> {
        let Some(physical) = self.physicals.get_mut(&number) else {
            return refuse(CUresult::CUDA_ERROR_UNKNOWN);
        };
        match self.backend.export(&physical.store) {
            Some(fd) => {
                physical.exported = true;
                Ok(fd.into_raw_fd())
            }
            // The ledger has no descriptors to give; otherwise the process has run out of them.
            None if self.config.ledger_only => refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            None => refuse(CUresult::CUDA_ERROR_OPERATING_SYSTEM),
        }
    }

    /// A fabric handle. It keeps nothing, but an import by it does.
    fn export_name(&mut self, number: u64) -> Answer<CUmemFabricHandle> {
        let Some(physical) = self.physicals.get_mut(&number) else {
            return refuse(CUresult::CUDA_ERROR_UNKNOWN);
        };
        let identity = physical.identity;
        match identity.and_then(|identity| fabric::handle(&physical.store, identity)) {
            Some(name) => {
                physical.exported = true;
                Ok(name)
            }
            None => refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    fn import_fd(&mut self, fd: isize) -> Answer<u64> {
        let shared = RawFd::try_from(fd)
            .ok()
            .and_then(|fd| self.backend.import(fd));
        match shared {
            Some(shared) => self.adopt(shared),
            None => refuse(CUresult::CUDA_ERROR_UNKNOWN),
        }
    }

    fn import_fabric(&mut self, handle: &CUmemFabricHandle) -> Answer<u64> {
        if !self.config.imex_channel || handle.data == [0; 64] {
            return refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let Some(named) = fabric::read(handle) else {
            return invalid();
        };
        if let Some(&number) = self.identities.get(&named.identity) {
            return Ok(number);
        }
        // A fabric handle keeps nothing alive: what it names may be gone, and its descriptor be another file's by now.
        match named
            .path()
            .and_then(|path| self.backend.import_path(&path))
        {
            Some(shared) if shared.identity == named.identity => self.adopt(shared),
            _ => refuse(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Memory that another simulation made, or that this one made itself and gets back.
    fn adopt(&mut self, shared: Shared) -> Answer<u64> {
        if let Some(&number) = self.identities.get(&shared.identity) {
            return Ok(number);
        }
        let place = match shared.origin {
            Origin::Host => Place::Host,
            Origin::HostNuma(node) => Place::HostNuma(node),
            Origin::Device(uuid) => {
                let mut devices = 0..self.config.devices.len();
                match devices.find(|&device| self.uuid(device) == uuid) {
                    Some(device) => Place::Device(device as i32),
                    None => return refuse(CUresult::CUDA_ERROR_UNKNOWN),
                }
            }
        };
        Ok(self.add_physical(Physical {
            place,
            size: shared.size,
            types: 0,
            compressed: false,
            rdma: false,
            usage: 0,
            store: shared.store,
            identity: Some(shared.identity),
            handles: 0,
            exported: false,
            foreign: true,
        }))
    }
}
