//! Physical memory: created, released, and what its handle says of it.

use std::ffi::c_int;

use crate::sys::{
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType, CUresult, Call,
};

use super::super::misuse::MisuseKind;
use super::super::place::Place;
use super::abi::{In, Out};
use super::store::{Identity, Origin, Store};
use super::{demand, invalid, refuse, Answer, State};

/// Handles look like the pointers they are on a real driver, and none is ever given out twice: so whether a value was a
/// handle once is arithmetic, with nothing to remember.
const FIRST_HANDLE: u64 = 0x5107_0000_0000;
const HANDLE_STEP: u64 = 0x80;

pub(super) const POSIX: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
pub(super) const FABRIC: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC.0;
pub(super) const WIN32: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32.0;
pub(super) const WIN32_KMT: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32_KMT.0;

/// The compression types that exist: none, and generic.
const COMPRESSIONS: u8 = 2;

/// Memory, however many handles lead to it.
#[derive(Debug)]
pub(super) struct Physical {
    pub(super) place: Place,
    pub(super) size: u64,
    pub(super) types: u32,
    pub(super) compressed: bool,
    pub(super) rdma: bool,
    pub(super) usage: u16,
    pub(super) store: Store,
    /// What an import finds it by, if it can be shared.
    pub(super) identity: Option<Identity>,
    /// Handles that are released or not, but of which a count or a mapping is left.
    pub(super) handles: u32,
    /// Whether it was ever exported, so that a descriptor or an import may be there still.
    pub(super) exported: bool,
    /// Whether another simulation made it, on whose account it is.
    pub(super) foreign: bool,
}

/// A handle: created, or imported.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    pub(super) physical: u64,
    /// How often it must still be released.
    pub(super) count: u32,
    /// How often it is mapped.
    pub(super) mapped: u32,
    pub(super) imported: bool,
}

impl State {
    pub(super) fn cuMemCreate(
        &mut self,
        handle: Out<u64>,
        size: usize,
        properties: In<CUmemAllocationProp>,
        flags: u64,
    ) -> Answer {
        handle.wanted()?;
        let properties = properties.get()?;
        let size = size as u64;
        demand(flags == 0)?;
        demand(properties.type_ == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
        let Some(place) = Place::of(&properties.location) else {
            return invalid();
        };
        let granule = self.granule_of(place)?;
        demand(size != 0 && size % granule == 0)?;
        let asked = &properties.allocFlags;
        demand(asked.compressionType < COMPRESSIONS)?;
        let special = asked.compressionType != 0 || asked.gpuDirectRDMACapable != 0;
        demand(!(place.is_host() && special))?;
        let types = properties.requestedHandleTypes.0;
        self.permit(place, types)?;
        self.reap();
        self.charge(place, size)?;
        let physical = match self.new_physical(place, size, &properties) {
            Ok(physical) => physical,
            Err(refusal) => {
                self.discharge(place, size);
                return Err(refusal);
            }
        };
        handle.put(self.new_handle(physical, false))
    }

    pub(super) fn cuMemRelease(&mut self, handle: u64) -> Answer {
        demand(handle != 0)?;
        let Some(entry) = self.handles.get_mut(&handle) else {
            // A stale handle that is released once more was measured to be refused; one that never was is followed.
            return match self.was_issued(handle) {
                true => {
                    self.misuse(Call::cuMemRelease, MisuseKind::ReleasedTwice, handle);
                    invalid()
                }
                false => self.no_handle(Call::cuMemRelease, handle),
            };
        };
        if entry.count == 0 {
            self.misuse(Call::cuMemRelease, MisuseKind::ReleasedTwice, handle);
            return invalid();
        }
        entry.count -= 1;
        self.forget_if_unused(handle);
        Ok(())
    }

    /// Validates nothing but the option, as the driver does.
    pub(super) fn cuMemGetAllocationGranularity(
        &mut self,
        granularity: Out<usize>,
        properties: In<CUmemAllocationProp>,
        option: CUmemAllocationGranularity_flags,
    ) -> Answer {
        granularity.wanted()?;
        let properties = properties.get()?;
        type Wanted = CUmemAllocationGranularity_flags;
        let recommended = match option {
            Wanted::CU_MEM_ALLOC_GRANULARITY_MINIMUM => false,
            Wanted::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED => true,
            _ => return invalid(),
        };
        let device = match Place::of(&properties.location) {
            Some(Place::Device(ordinal)) => self.device(ordinal).ok(),
            _ => None,
        };
        let answer = match device.map(|device| &self.config.devices[device]) {
            Some(device) if recommended => device.recommended,
            Some(device) => device.minimum,
            None => self.config.granule(),
        };
        granularity.put(answer)
    }

    pub(super) fn cuMemGetAllocationPropertiesFromHandle(
        &mut self,
        properties: Out<CUmemAllocationProp>,
        handle: u64,
    ) -> Answer {
        properties.wanted()?;
        let entry = self.handle(Call::cuMemGetAllocationPropertiesFromHandle, handle)?;
        let physical = self.physical(entry.physical)?;
        let mut answer = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: physical.place.to_location(),
            ..Default::default()
        };
        let types = if entry.imported { 0 } else { physical.types };
        answer.requestedHandleTypes = CUmemAllocationHandleType(types);
        answer.allocFlags.compressionType = physical.compressed.into();
        answer.allocFlags.gpuDirectRDMACapable = physical.rdma.into();
        answer.allocFlags.usage = physical.usage;
        properties.put(answer)
    }

    /// A handle that can be used still; 0 is refused, and what a real driver would have followed is noted.
    pub(super) fn handle(&mut self, call: Call, handle: u64) -> Answer<Handle> {
        demand(handle != 0)?;
        match self.handles.get(&handle) {
            Some(entry) => Ok(entry.clone()),
            None => self.no_handle(call, handle),
        }
    }

    fn no_handle<T>(&mut self, call: Call, handle: u64) -> Answer<T> {
        let kind = if self.was_issued(handle) {
            MisuseKind::StaleHandle
        } else {
            MisuseKind::MadeUpHandle
        };
        self.misuse(call, kind, handle);
        refuse(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    fn was_issued(&self, handle: u64) -> bool {
        handle
            .checked_sub(FIRST_HANDLE)
            .is_some_and(|past| past % HANDLE_STEP == 0 && past / HANDLE_STEP < self.issued_handles)
    }

    pub(super) fn physical(&self, number: u64) -> Answer<&Physical> {
        match self.physicals.get(&number) {
            Some(physical) => Ok(physical),
            None => refuse(CUresult::CUDA_ERROR_UNKNOWN),
        }
    }

    pub(super) fn new_handle(&mut self, physical: u64, imported: bool) -> u64 {
        let handle = FIRST_HANDLE + HANDLE_STEP * self.issued_handles;
        self.issued_handles += 1;
        let entry = Handle {
            physical,
            count: 1,
            mapped: 0,
            imported,
        };
        self.handles.insert(handle, entry);
        if let Some(physical) = self.physicals.get_mut(&physical) {
            physical.handles += 1;
        }
        handle
    }

    /// Drops a handle without counts and mappings, and its memory with the last one.
    pub(super) fn forget_if_unused(&mut self, handle: u64) {
        let Some(entry) = self.handles.get(&handle) else {
            return;
        };
        if entry.count > 0 || entry.mapped > 0 {
            return;
        }
        let number = entry.physical;
        self.handles.remove(&handle);
        let Some(physical) = self.physicals.get_mut(&number) else {
            return;
        };
        physical.handles -= 1;
        if physical.handles > 0 {
            return;
        }
        if physical.exported && self.backend.shared(&physical.store) {
            self.lingering.push(number);
        } else {
            self.destroy(number);
        }
    }

    /// Gives back memory that only an exported descriptor kept, where that is closed by now.
    pub(super) fn reap(&mut self) {
        for number in std::mem::take(&mut self.lingering) {
            match self.physicals.get(&number) {
                Some(physical) if physical.handles > 0 => {} // imported again meanwhile
                Some(physical) if self.backend.shared(&physical.store) => {
                    self.lingering.push(number);
                }
                Some(_) => self.destroy(number),
                None => {}
            }
        }
    }

    fn destroy(&mut self, number: u64) {
        let Some(physical) = self.physicals.remove(&number) else {
            return;
        };
        if let Some(identity) = physical.identity {
            self.identities.remove(&identity);
        }
        if !physical.foreign {
            self.discharge(physical.place, physical.size);
        }
        self.backend.destroy(physical.store, physical.size);
    }

    fn new_physical(
        &mut self,
        place: Place,
        size: u64,
        properties: &CUmemAllocationProp,
    ) -> Answer<u64> {
        let types = properties.requestedHandleTypes.0;
        let exportable = types & (POSIX | FABRIC) != 0;
        let origin = self.origin(place);
        let store = self.backend.create(place, origin, size, exportable)?;
        let identity = match exportable {
            true => self.backend.identity(&store),
            false => None,
        };
        let rdma = properties.allocFlags.gpuDirectRDMACapable != 0;
        Ok(self.add_physical(Physical {
            place,
            size,
            types,
            // As an H200 grants it: what RDMA can reach is not compressed.
            compressed: !rdma && properties.allocFlags.compressionType != 0,
            rdma,
            usage: properties.allocFlags.usage,
            store,
            identity,
            handles: 0,
            exported: false,
            foreign: false,
        }))
    }

    pub(super) fn add_physical(&mut self, physical: Physical) -> u64 {
        self.issued_physicals += 1;
        let number = self.issued_physicals;
        if let Some(identity) = physical.identity {
            self.identities.insert(identity, number);
        }
        self.physicals.insert(number, physical);
        number
    }

    fn origin(&self, place: Place) -> Origin {
        match place {
            Place::Device(ordinal) => Origin::Device(self.uuid(ordinal as usize)),
            Place::Host => Origin::Host,
            Place::HostNuma(node) => Origin::HostNuma(node),
        }
    }

    /// The granularity of a place that exists.
    pub(super) fn granule_of(&self, place: Place) -> Answer<u64> {
        match place {
            Place::Device(ordinal) => {
                let device = self.device(ordinal)?;
                Ok(self.config.devices[device].minimum as u64)
            }
            Place::Host => Ok(self.granule()),
            Place::HostNuma(node) => {
                demand(self.has_node(node))?;
                Ok(self.granule())
            }
        }
    }

    pub(super) fn has_node(&self, node: c_int) -> bool {
        u32::try_from(node).is_ok_and(|node| node < self.config.host_numa_nodes)
    }

    /// Whether memory of these handle types can be had there. Bits that mean nothing are let pass, as the driver does.
    fn permit(&self, place: Place, types: u32) -> Answer {
        demand(types & (WIN32 | WIN32_KMT) == 0)?;
        demand(!(place == Place::Host && types & POSIX != 0))?;
        if let Place::Device(ordinal) = place {
            let device = &self.config.devices[self.device(ordinal)?];
            if let Some(code) = device.create_refusal(types) {
                return refuse(code);
            }
        }
        if types & FABRIC != 0 && !self.config.imex_channel {
            return refuse(CUresult::CUDA_ERROR_NOT_PERMITTED);
        }
        Ok(())
    }

    /// Free bytes of a place. The driver names more as free than can be had.
    pub(super) fn free_bytes(&self, place: Place) -> u64 {
        match place {
            Place::Device(ordinal) => {
                let device = ordinal as usize;
                self.config.devices[device].memory - self.used_on_device[device]
            }
            Place::Host | Place::HostNuma(_) => self.config.host_memory - self.used_on_host,
        }
    }

    pub(super) fn charge(&mut self, place: Place, size: u64) -> Answer {
        if size >= self.free_bytes(place) {
            return refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        *self.used(place) += size;
        Ok(())
    }

    pub(super) fn discharge(&mut self, place: Place, size: u64) {
        *self.used(place) -= size;
    }

    fn used(&mut self, place: Place) -> &mut u64 {
        match place {
            Place::Device(ordinal) => &mut self.used_on_device[ordinal as usize],
            Place::Host | Place::HostNuma(_) => &mut self.used_on_host,
        }
    }
}
