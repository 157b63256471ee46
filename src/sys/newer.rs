//! Constants and types that came after CUDA 11.8's header, or that it names otherwise, under the header's own names.
//!
//! A build against an old header and one against a new header must offer the same API, so what is newer than the oldest
//! supported header is declared here and left out of what is generated. Values are those of `cuda.h`; the version named
//! is the first header that has it. What the driver at hand makes of them is found out by asking it.

use super::{
    CUdevice_attribute_enum, CUmemAllocationHandleType_enum, CUmemAllocationType_enum,
    CUmemLocationType_enum,
};

impl CUmemLocationType_enum {
    /// Host memory, no particular node (12.2).
    pub const CU_MEM_LOCATION_TYPE_HOST: Self = Self(2);
    /// Host memory of the NUMA node that `id` names (12.2).
    pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: Self = Self(3);
    /// Host memory of the NUMA node nearest to the calling thread (12.2).
    pub const CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: Self = Self(4);
}

impl CUmemAllocationType_enum {
    /// Managed memory (13.0). The crate never asks for it; the driver's refusal is a documented fact.
    pub const CU_MEM_ALLOCATION_TYPE_MANAGED: Self = Self(2);
}

impl CUmemAllocationHandleType_enum {
    /// A fabric handle, for memory of another node over NVLink (12.3).
    pub const CU_MEM_HANDLE_TYPE_FABRIC: Self = Self(8);
}

impl CUdevice_attribute_enum {
    /// Whether the first version of the stream memory operations is supported (12.0; 11.8 has it without `_V1`).
    pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1: Self = Self(92);
    /// Whether the second version of those operations is supported with 64 bits (11.8; from 12.0 on without `_V2`).
    pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V2: Self = Self(122);
    /// Whether fabric handles are supported; says nothing of permission (12.3).
    pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: Self = Self(128);
    /// The NUMA node nearest to the device, or -1 (12.2).
    pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: Self = Self(134);
    /// Whether memory of a host NUMA node can be created (12.2).
    pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: Self = Self(141);
    /// Whether host memory of no particular node can be created (12.9).
    pub const CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: Self = Self(145);
}

/// A fabric handle: 64 opaque bytes (12.3).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CUmemFabricHandle {
    /// The bytes as the driver gave them.
    pub data: [u8; 64],
}
