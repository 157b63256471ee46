//! The structures that the calls take, filled in one line.

use cuda_vmm::sys::{
    CUmemAccessDesc, CUmemAccess_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

/// Handle types, as the bits they are in the properties.
pub const NONE: u32 = 0;
pub const POSIX_FD: u32 = 1;
pub const WIN32: u32 = 2;
pub const WIN32_KMT: u32 = 4;
pub const FABRIC: u32 = 8;

/// Access rights, as the numbers that get access writes.
pub const NO_ACCESS: u64 = 0;
pub const READ: u64 = 1;
pub const READ_WRITE: u64 = 3;

/// A device, by ordinal.
pub fn device(ordinal: i32) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: ordinal,
    }
}

/// The host, no particular node.
pub fn host() -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        id: 0,
    }
}

/// A NUMA node of the host.
pub fn host_numa(node: i32) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA,
        id: node,
    }
}

/// Pinned memory at a place, exportable as the handle types say.
pub fn pinned(location: CUmemLocation, handle_types: u32) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType(handle_types),
        location,
        ..Default::default()
    }
}

/// Rights for a place.
pub fn rights(location: CUmemLocation, rights: u64) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location,
        flags: CUmemAccess_flags(rights as u32),
    }
}
