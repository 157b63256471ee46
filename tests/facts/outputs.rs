//! Null where the driver writes or reads. Each in a process of its own: a driver that follows the null ends it.

use std::ptr;

use cuda_vmm::sys::{
    CUdevice_attribute, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUpointer_attribute,
};

use crate::case::{alone, Section};
use crate::codes::call;
use crate::props::{device, pinned, NONE, POSIX_FD};

pub const SECTION: Section = Section {
    name: "outputs",
    cases: &[
        alone("reserve", REFUSED, |gpu| {
            gpu.nothing_changes(|| {
                call!(gpu, cuMemAddressReserve(ptr::null_mut(), gpu.granularity, 0, 0, 0) => INVALID_VALUE);
            });
        }),
        alone("create", REFUSED, |gpu| {
            let properties = pinned(device(0), NONE);
            gpu.nothing_changes(|| {
                call!(gpu, cuMemCreate(ptr::null_mut(), gpu.granularity, &properties, 0) => INVALID_VALUE);
            });
        }),
        alone("create_without_properties", REFUSED, |gpu| {
            let mut handle = 0;
            gpu.nothing_changes(|| {
                call!(gpu, cuMemCreate(&mut handle, gpu.granularity, ptr::null(), 0) => INVALID_VALUE);
            });
        }),
        alone("granularity", REFUSED, |gpu| {
            let properties = pinned(device(0), NONE);
            let minimum = CUmemAllocationGranularity_flags(0);
            let mut size = 0;
            call!(gpu, cuMemGetAllocationGranularity(ptr::null_mut(), &properties, minimum) => INVALID_VALUE);
            call!(gpu, cuMemGetAllocationGranularity(&mut size, ptr::null(), minimum) => INVALID_VALUE);
        }),
        alone("get_access", REFUSED, |gpu| {
            let range = gpu.reserve(1);
            let _memory = gpu.back(range.base, 1);
            let mut flags = 0;
            call!(gpu, cuMemGetAccess(ptr::null_mut(), &device(0), range.base) => INVALID_VALUE);
            call!(gpu, cuMemGetAccess(&mut flags, ptr::null(), range.base) => INVALID_VALUE);
        }),
        alone("retain", REFUSED, |gpu| {
            let range = gpu.reserve(1);
            let _memory = gpu.back(range.base, 1);
            gpu.nothing_changes(|| {
                call!(gpu, cuMemRetainAllocationHandle(ptr::null_mut(), range.base as *mut _) => INVALID_VALUE);
            });
        }),
        alone("share", REFUSED, |gpu| {
            let memory = gpu.create_exportable(1);
            let kind = CUmemAllocationHandleType(POSIX_FD);
            let fd = gpu.export(&memory);
            let shareable = std::os::fd::AsRawFd::as_raw_fd(&fd) as isize as *mut _;
            gpu.nothing_changes(|| {
                call!(gpu, cuMemExportToShareableHandle(ptr::null_mut(), memory.raw, kind, 0) => INVALID_VALUE);
                call!(gpu, cuMemImportFromShareableHandle(ptr::null_mut(), shareable, kind) => INVALID_VALUE);
            });
        }),
        alone("properties", REFUSED, |gpu| {
            let memory = gpu.create(1);
            call!(gpu, cuMemGetAllocationPropertiesFromHandle(ptr::null_mut(), memory.raw) => INVALID_VALUE);
        }),
        alone(
            "properties_of_handle_zero",
            "handle 0 has no properties",
            |gpu| {
                let mut properties = pinned(device(0), NONE);
                call!(gpu, cuMemGetAllocationPropertiesFromHandle(&mut properties, 0) => INVALID_VALUE);
            },
        ),
        alone(
            "export_of_handle_zero",
            "handle 0 cannot be exported",
            |gpu| {
                let mut fd = -1_i32;
                let kind = CUmemAllocationHandleType(POSIX_FD);
                call!(gpu, cuMemExportToShareableHandle((&raw mut fd).cast(), 0, kind, 0) => INVALID_VALUE);
                assert_eq!(fd, -1);
            },
        ),
        alone("pointer_attribute", REFUSED, |gpu| {
            let range = gpu.reserve(1);
            let _memory = gpu.back(range.base, 1);
            let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED;
            call!(gpu, cuPointerGetAttribute(ptr::null_mut(), attribute, range.base) => INVALID_VALUE);
        }),
        alone(
            "extent",
            "an extent can be asked for without being told",
            |gpu| {
                let range = gpu.reserve(1);
                let _memory = gpu.back(range.base, 1);
                call!(gpu, cuMemGetAddressRange_v2(ptr::null_mut(), ptr::null_mut(), range.base) => SUCCESS);
            },
        ),
        alone(
            "free_bytes",
            "free and total bytes can each be left out",
            |gpu| {
                let (mut free, mut total) = (0, 0);
                call!(gpu, cuMemGetInfo_v2(ptr::null_mut(), &mut total) => SUCCESS);
                call!(gpu, cuMemGetInfo_v2(&mut free, ptr::null_mut()) => SUCCESS);
                assert!(0 < free && free <= total, "{free} of {total} bytes");
            },
        ),
        alone("ordinary_allocation", REFUSED, |gpu| {
            let mut at = 0;
            gpu.nothing_changes(|| {
                call!(gpu, cuMemAlloc_v2(ptr::null_mut(), gpu.granularity) => INVALID_VALUE);
                call!(gpu, cuMemAlloc_v2(&mut at, 0) => INVALID_VALUE);
            });
        }),
        alone("devices", REFUSED, |gpu| {
            let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE;
            call!(gpu, cuDriverGetVersion(ptr::null_mut()) => INVALID_VALUE);
            call!(gpu, cuDeviceGetCount(ptr::null_mut()) => INVALID_VALUE);
            call!(gpu, cuDeviceGet(ptr::null_mut(), 0) => INVALID_VALUE);
            call!(gpu, cuDeviceGetName(ptr::null_mut(), 8, 0) => INVALID_VALUE);
            call!(gpu, cuDeviceGetUuid_v2(ptr::null_mut(), 0) => INVALID_VALUE);
            call!(gpu, cuDeviceGetAttribute(ptr::null_mut(), attribute, 0) => INVALID_VALUE);
            call!(gpu, cuDeviceTotalMem_v2(ptr::null_mut(), 0) => INVALID_VALUE);
            call!(gpu, cuDeviceCanAccessPeer(ptr::null_mut(), 0, 0) => INVALID_VALUE);
        }),
        alone("contexts", REFUSED, |gpu| {
            call!(gpu, cuDevicePrimaryCtxRetain(ptr::null_mut(), 0) => INVALID_VALUE);
            call!(gpu, cuCtxGetCurrent(ptr::null_mut()) => INVALID_VALUE);
            call!(gpu, cuCtxGetDevice(ptr::null_mut()) => INVALID_VALUE);
        }),
        alone("streams", REFUSED, |gpu| {
            call!(gpu, cuStreamCreate(ptr::null_mut(), 0) => INVALID_VALUE);
            call!(gpu, cuEventCreate(ptr::null_mut(), 0) => INVALID_VALUE);
        }),
        alone("copies", REFUSED, |gpu| {
            let range = gpu.reserve(1);
            let _memory = gpu.back(range.base, 1);
            call!(gpu, cuMemcpyHtoD_v2(range.base, ptr::null(), 1) => INVALID_VALUE);
            call!(gpu, cuMemcpyDtoH_v2(ptr::null_mut(), range.base, 1) => INVALID_VALUE);
            call!(gpu, cuCtxSynchronize() => SUCCESS);
        }),
    ],
};

const REFUSED: &str = "null where something is written or read is refused";
