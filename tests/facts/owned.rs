//! Address ranges and handles that a case made, given back when it ends, however it ends.

use std::cell::Cell;

use cuda_vmm::sys::{CUdeviceptr, CUmemGenericAllocationHandle};

use crate::codes::call;
use crate::gpu::Gpu;

/// A reservation. Dropped, it unmaps whatever lies in it and frees the addresses.
pub struct Range<'g> {
    gpu: &'g Gpu,
    pub base: CUdeviceptr,
    pub size: usize,
    freed: Cell<bool>,
}

impl<'g> Range<'g> {
    pub fn new(gpu: &'g Gpu, base: CUdeviceptr, size: usize) -> Self {
        Range {
            gpu,
            base,
            size,
            freed: Cell::new(false),
        }
    }

    /// The address of a granule; those behind the end count on.
    pub fn at(&self, granule: usize) -> CUdeviceptr {
        self.base + self.gpu.granules(granule) as CUdeviceptr
    }

    /// The address behind the last byte.
    pub fn end(&self) -> CUdeviceptr {
        self.base + self.size as CUdeviceptr
    }

    /// Frees the addresses, which must succeed.
    pub fn free(&self) {
        call!(self.gpu, cuMemAddressFree(self.base, self.size) => SUCCESS);
        self.freed.set(true);
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        if self.freed.get() {
            return;
        }
        // An unmap over holes succeeds, so one call empties the range. What cannot be undone here shows in the
        // comparison of the world before and after the case.
        unsafe {
            let _ = self.gpu.calls().cuMemUnmap(self.base, self.size);
            let _ = self.gpu.calls().cuMemAddressFree(self.base, self.size);
        }
    }
}

/// One count of an allocation. Dropped, it is released.
pub struct Handle<'g> {
    gpu: &'g Gpu,
    pub raw: CUmemGenericAllocationHandle,
    pub size: usize,
    released: Cell<bool>,
}

impl<'g> Handle<'g> {
    pub fn new(gpu: &'g Gpu, raw: CUmemGenericAllocationHandle, size: usize) -> Self {
        Handle {
            gpu,
            raw,
            size,
            released: Cell::new(false),
        }
    }

    /// Releases the count, which must succeed.
    pub fn release(&self) {
        call!(self.gpu, cuMemRelease(self.raw) => SUCCESS);
        self.released.set(true);
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if !self.released.get() {
            let _ = unsafe { self.gpu.calls().cuMemRelease(self.raw) };
        }
    }
}
