//! A simulated device, as it is configured.

use std::collections::BTreeMap;

use crate::sys::{CUdevice_attribute, CUmemAllocationHandleType, CUresult};

/// 2 MiB, the granularity of every device this driver was measured on.
pub(super) const GRANULE: usize = 2 << 20;

/// A device of a simulated driver.
///
/// It begins as an H200: 139 GiB, a granularity of 2 MiB, every capability of virtual memory management. What is set
/// here is checked when the simulation is [built](super::SimulationBuilder::build).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a device does nothing until it is given to a simulation"]
pub struct SimDevice {
    pub(super) name: String,
    pub(super) memory: u64,
    pub(super) minimum: usize,
    pub(super) recommended: usize,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) stream_memory_operations: bool,
    pub(super) jit_compiler: bool,
    attributes: BTreeMap<u32, i32>,
    create_refusals: Vec<Refused>,
    export_refusals: Vec<Refused>,
}

/// Handle types that are answered with a code of the test's choosing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused {
    types: u32,
    code: CUresult,
}

impl Default for SimDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDevice {
    /// An H200.
    pub fn new() -> Self {
        SimDevice {
            name: "NVIDIA H200 (simulated)".to_owned(),
            memory: 139 << 30,
            minimum: GRANULE,
            recommended: GRANULE,
            uuid: None,
            stream_memory_operations: true,
            jit_compiler: true,
            attributes: BTreeMap::new(),
            create_refusals: Vec::new(),
            export_refusals: Vec::new(),
        }
    }

    /// What the device calls itself.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How much memory it has. As on a real device the last of it cannot be had: a create that asks for all that
    /// `cuMemGetInfo` names as free is out of memory.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// The minimum and the recommended granularity, in bytes.
    pub fn granularity(mut self, minimum: usize, recommended: usize) -> Self {
        self.minimum = minimum;
        self.recommended = recommended;
        self
    }

    /// The UUID. Left out, it follows from the ordinal, so that two processes with a simulation each agree on which
    /// device is which.
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Whether a stream can write words. Where it cannot, `cuStreamWriteValue32` is `NOT_SUPPORTED`, and the attributes
    /// that say so read 0.
    pub fn stream_memory_operations(mut self, supported: bool) -> Self {
        self.stream_memory_operations = supported;
        self
    }

    /// Whether the driver finds its compiler of source text for the device. Where it does not, `cuModuleLoadData` is
    /// `JIT_COMPILER_NOT_FOUND`.
    pub fn jit_compiler(mut self, found: bool) -> Self {
        self.jit_compiler = found;
        self
    }

    /// Overrides an attribute. It changes what is answered, not what works: see [`refuse_create`](Self::refuse_create).
    pub fn attribute(mut self, attribute: CUdevice_attribute, value: i32) -> Self {
        self.attributes.insert(attribute.0, value);
        self
    }

    /// Answers `code` to every create on this device that asks for any of these handle types.
    pub fn refuse_create(mut self, types: CUmemAllocationHandleType, code: CUresult) -> Self {
        let types = types.0;
        self.create_refusals.push(Refused { types, code });
        self
    }

    /// Answers `code` to every export of this device's memory to any of these handle types, although it could be
    /// created.
    pub fn refuse_export(mut self, types: CUmemAllocationHandleType, code: CUresult) -> Self {
        let types = types.0;
        self.export_refusals.push(Refused { types, code });
        self
    }

    pub(super) fn create_refusal(&self, types: u32) -> Option<CUresult> {
        refusal(&self.create_refusals, types)
    }

    pub(super) fn export_refusal(&self, types: u32) -> Option<CUresult> {
        refusal(&self.export_refusals, types)
    }

    /// The refusals' codes and whether each names any handle type, for the builder to check.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (u32, CUresult)> + '_ {
        self.create_refusals
            .iter()
            .chain(&self.export_refusals)
            .map(|refused| (refused.types, refused.code))
    }

    /// The value of an attribute; `None` for a number that no header defines.
    pub(super) fn attribute_of(
        &self,
        attribute: CUdevice_attribute,
        ordinal: usize,
    ) -> Option<i32> {
        if let Some(value) = self.attributes.get(&attribute.0) {
            return Some(*value);
        }
        match attribute {
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1
            | CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V2 => {
                Some(self.stream_memory_operations.into())
            }
            _ => h200(attribute, ordinal),
        }
    }
}

fn refusal(refusals: &[Refused], types: u32) -> Option<CUresult> {
    refusals
        .iter()
        .find(|refused| refused.types & types != 0)
        .map(|refused| refused.code)
}

/// The attributes of an H200 that somebody who manages memory asks for; what is not listed reads 0.
fn h200(attribute: CUdevice_attribute, ordinal: usize) -> Option<i32> {
    /// The highest attribute number of the headers this was written against.
    const LAST: u32 = 150;
    type A = CUdevice_attribute;

    Some(match attribute {
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        A::CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        A::CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_980_000,
        A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 132,
        A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY => 1,
        A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS => 1,
        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => ordinal as i32 + 1,
        A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING => 1,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 0,
        A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM => 1,
        A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => 1,
        CUdevice_attribute(1..=LAST) => 0,
        _ => return None,
    })
}
