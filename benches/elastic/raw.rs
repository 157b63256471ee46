//! The same by the driver's calls themselves, with nothing around them.

use std::sync::Arc;

use cuda_vmm::sys::{
    CUmemAccessDesc, CUmemAccess_flags, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUresult, DriverCalls,
};
use cuda_vmm::Driver;

pub(crate) struct Raw {
    calls: Arc<dyn DriverCalls>,
    pub base: u64,
    size: usize,
    properties: CUmemAllocationProp,
    access: CUmemAccessDesc,
}

pub(crate) fn ok(status: CUresult) {
    assert_eq!(status, CUresult::CUDA_SUCCESS);
}

impl Raw {
    pub fn reserve(driver: &Driver, size: usize, alignment: usize) -> Raw {
        let calls = driver.calls_raw().clone();
        let location = CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: 0,
        };
        let mut base = 0;
        ok(unsafe { calls.cuMemAddressReserve(&mut base, size, alignment, 0, 0) });
        Raw {
            calls,
            base,
            size,
            properties: CUmemAllocationProp {
                type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
                location,
                ..Default::default()
            },
            access: CUmemAccessDesc {
                location,
                flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            },
        }
    }

    /// Create, map, grant.
    pub fn map(&self, offset: usize, size: usize) -> u64 {
        let (mut handle, address) = (0, self.base + offset as u64);
        unsafe {
            ok(self
                .calls
                .cuMemCreate(&mut handle, size, &self.properties, 0));
            ok(self.calls.cuMemMap(address, size, 0, handle, 0));
            ok(self.calls.cuMemSetAccess(address, size, &self.access, 1));
        }
        handle
    }

    /// Unmap, release.
    pub fn unmap(&self, offset: usize, size: usize, handle: u64) {
        unsafe {
            ok(self.calls.cuMemUnmap(self.base + offset as u64, size));
            ok(self.calls.cuMemRelease(handle));
        }
    }

    /// Maps all of it in handles of this size, and grants all by one call.
    pub fn fill(&self, each: usize) -> Vec<u64> {
        let mut handles = Vec::with_capacity(self.size / each);
        for offset in (0..self.size).step_by(each) {
            let (mut handle, address) = (0, self.base + offset as u64);
            unsafe {
                ok(self
                    .calls
                    .cuMemCreate(&mut handle, each, &self.properties, 0));
                ok(self.calls.cuMemMap(address, each, 0, handle, 0));
            }
            handles.push(handle);
        }
        ok(unsafe {
            self.calls
                .cuMemSetAccess(self.base, self.size, &self.access, 1)
        });
        handles
    }

    /// Unmaps all of it by one call, and releases.
    pub fn empty(&self, handles: impl Iterator<Item = u64>) {
        ok(unsafe { self.calls.cuMemUnmap(self.base, self.size) });
        for handle in handles {
            ok(unsafe { self.calls.cuMemRelease(handle) });
        }
    }

    pub fn free(self) {
        ok(unsafe { self.calls.cuMemAddressFree(self.base, self.size) });
    }
}
