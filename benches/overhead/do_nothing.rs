//! A driver that does nothing, over which the crate's own part is all there is.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_vmm::sys::{self, CUmemAccessDesc, CUmemAllocationProp, CUresult, Call, DriverCalls};

use super::GRANULE;

/// Answers SUCCESS to everything and does nothing.
#[derive(Debug)]
pub struct DoNothing;

#[allow(non_snake_case)]
unsafe impl DriverCalls for DoNothing {
    fn provides(&self, _: Call) -> bool {
        true
    }
    unsafe fn cuInit(&self, _: u32) -> CUresult {
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuDriverGetVersion(&self, version: *mut i32) -> CUresult {
        unsafe { *version = 13000 };
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuDeviceGetCount(&self, count: *mut i32) -> CUresult {
        unsafe { *count = 1 };
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuDeviceGet(&self, device: *mut i32, ordinal: i32) -> CUresult {
        unsafe { *device = ordinal };
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuDeviceTotalMem_v2(&self, bytes: *mut usize, _: i32) -> CUresult {
        unsafe { *bytes = 1 << 40 };
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuMemGetAllocationGranularity(
        &self,
        granularity: *mut usize,
        _: *const CUmemAllocationProp,
        _: sys::CUmemAllocationGranularity_flags,
    ) -> CUresult {
        unsafe { *granularity = GRANULE };
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuMemAddressReserve(
        &self,
        address: *mut u64,
        size: usize,
        _: usize,
        _: u64,
        _: u64,
    ) -> CUresult {
        // Two reservations never lie at the same addresses.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
        unsafe { *address = NEXT.fetch_add(size as u64, Ordering::Relaxed) };
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuMemAddressFree(&self, _: u64, _: usize) -> CUresult {
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuMemCreate(
        &self,
        handle: *mut u64,
        _: usize,
        _: *const CUmemAllocationProp,
        _: u64,
    ) -> CUresult {
        unsafe { *handle = 1 };
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuMemRelease(&self, _: u64) -> CUresult {
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuMemMap(&self, _: u64, _: usize, _: usize, _: u64, _: u64) -> CUresult {
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuMemUnmap(&self, _: u64, _: usize) -> CUresult {
        CUresult::CUDA_SUCCESS
    }
    unsafe fn cuMemSetAccess(
        &self,
        _: u64,
        _: usize,
        _: *const CUmemAccessDesc,
        _: usize,
    ) -> CUresult {
        CUresult::CUDA_SUCCESS
    }
}
