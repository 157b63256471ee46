//! What lies at an address.

use crate::sys::{CUmemRangeHandleType, CUpointer_attribute, CUresult};

use super::super::place::{Place, Rights};
use super::abi::{Out, Raw};
use super::allocate::{FABRIC, POSIX};
use super::{demand, invalid, refuse, Answer, State};

/// `CUmemorytype` of host and device memory.
const MEMORY_OF_HOST: u32 = 1;
const MEMORY_OF_DEVICE: u32 = 2;

/// What a range for a dma-buf must be a multiple of.
const PAGE: u64 = 4096;

/// The range and the memory around an address.
struct Found {
    /// The whole reservation, or the ordinary allocation.
    base: u64,
    size: u64,
    block: Option<Block>,
}

/// The memory at an address.
struct Block {
    base: u64,
    size: u64,
    /// No other memory has it, or had it.
    number: u64,
    place: Place,
    types: u32,
    rdma: bool,
}

impl State {
    /// The mapping's base and size, not the reservation's; and only of what the current context's device may touch.
    pub(super) fn cuMemGetAddressRange_v2(
        &mut self,
        base: Out<u64>,
        size: Out<usize>,
        address: u64,
    ) -> Answer {
        let device = self.current_device()?;
        let block = match self.found(address).and_then(|found| found.block) {
            Some(block) if self.rights_at(device, address) != Rights::None => block,
            _ => return refuse(CUresult::CUDA_ERROR_NOT_FOUND),
        };
        base.put_if_wanted(block.base);
        size.put_if_wanted(block.size as usize);
        Ok(())
    }

    pub(super) fn cuPointerGetAttribute(
        &mut self,
        value: Raw,
        attribute: CUpointer_attribute,
        address: u64,
    ) -> Answer {
        type A = CUpointer_attribute;
        value.wanted()?;
        let Some(found) = self.found(address) else {
            return invalid();
        };
        // Of addresses at which nothing is mapped the driver tells nothing, not even that they are reserved.
        let Some(block) = found.block else {
            return invalid();
        };
        match attribute {
            A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => value.put(found.base),
            A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => value.put(found.size as usize),
            A::CU_POINTER_ATTRIBUTE_MAPPED => value.put(1u32),
            A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => value.put(if block.place.is_host() {
                MEMORY_OF_HOST
            } else {
                MEMORY_OF_DEVICE
            }),
            A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => value.put(address),
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER => {
                value.put(0u64)?;
                invalid()
            }
            A::CU_POINTER_ATTRIBUTE_BUFFER_ID => value.put(block.number),
            A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
                let device = self.current_device()?;
                value.put(self.rights_at(device, address).flags().0)
            }
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => value.put(match block.place {
                Place::Device(ordinal) => ordinal,
                Place::Host | Place::HostNuma(_) => 0,
            }),
            A::CU_POINTER_ATTRIBUTE_IS_MANAGED => value.put(0u32),
            A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
                value.put(u32::from(self.ordinary_at(address).is_some()))
            }
            A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => value.put(u64::from(block.types)),
            A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => value.put(u32::from(block.rdma)),
            A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => value.put(block.size as usize),
            A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => value.put(block.base),
            _ => invalid(),
        }
    }

    /// A descriptor for other drivers. It is the memory's own, and pins it as an export does.
    pub(super) fn cuMemGetHandleForAddressRange(
        &mut self,
        handle: Raw,
        address: u64,
        size: usize,
        kind: CUmemRangeHandleType,
        flags: u64,
    ) -> Answer {
        handle.wanted()?;
        let size = size as u64;
        demand(flags == 0)?;
        demand(kind == CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)?;
        demand(size != 0 && size % PAGE == 0 && address % PAGE == 0)?;
        let Some((base, mapping)) = self.mapping_at(address) else {
            return invalid();
        };
        demand(
            address
                .checked_add(size)
                .is_some_and(|end| end <= base + mapping.size),
        )?;
        let number = mapping.physical;
        if self.physical(number)?.types & (POSIX | FABRIC) == 0 {
            return refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let fd = self.export_fd(number)?;
        handle.put(fd)
    }

    /// What a device may do with the byte at an address.
    fn rights_at(&self, device: usize, address: u64) -> Rights {
        match self.mapping_at(address) {
            Some((_, mapping)) => mapping.rights.of(Place::Device(device as i32)),
            None if self.ordinary_at(address).is_some() => Rights::ReadWrite,
            None => Rights::None,
        }
    }

    fn found(&self, address: u64) -> Option<Found> {
        if let Some((base, memory)) = self.ordinary_at(address) {
            let block = Block {
                base,
                size: memory.size,
                number: memory.number,
                place: Place::Device(memory.device as i32),
                types: 0,
                rdma: true,
            };
            return Some(Found {
                base,
                size: memory.size,
                block: Some(block),
            });
        }
        let block = self.mapping_at(address).and_then(|(base, mapping)| {
            let physical = self.physical(mapping.physical).ok()?;
            Some(Block {
                base,
                size: mapping.size,
                number: mapping.physical,
                place: physical.place,
                types: physical.types,
                rdma: physical.rdma,
            })
        });
        // Behind the end of its reservation a mapping has no other range than its own.
        let range = self.reservation_at(address).or_else(|| {
            block
                .as_ref()
                .map(|block| block.base..block.base + block.size)
        })?;
        Some(Found {
            base: range.start,
            size: range.end - range.start,
            block,
        })
    }
}
