//! Copies and fills, and what the driver says of an address.

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};

use cuda_vmm::sys::{CUdeviceptr, CUmemRangeHandleType, CUpointer_attribute};

use crate::case::{case, Need, Section};
use crate::codes::{call, NOT_FOUND};
use crate::gpu::Gpu;
use crate::owned::{Handle, Range};
use crate::props::{NO_ACCESS, READ, READ_WRITE};

pub const SECTION: Section = Section {
    name: "copies",
    cases: &[
        case(
            "across_adjacent_mappings",
            "fills and copies run across adjacent mappings",
            |gpu| {
                let range = gpu.reserve(4);
                let _memory = [gpu.back(range.base, 1), gpu.back(range.at(1), 2)];
                gpu.fill(range.base, 0x5a, gpu.granules(3));
                assert!(gpu
                    .bytes(range.base, gpu.granules(3))
                    .iter()
                    .all(|&byte| byte == 0x5a));
            },
        ),
        case(
            "host_to_device_and_back",
            "bytes copied in are those copied out",
            |gpu| {
                let range = gpu.reserve(2);
                let _memory = [gpu.back(range.base, 1), gpu.back(range.at(1), 1)];
                let bytes: Vec<u8> = (0..=255).collect();
                let at = range.at(1) - 128;
                call!(gpu, cuMemcpyHtoD_v2(at, bytes.as_ptr().cast(), bytes.len()) => SUCCESS);
                assert_eq!(gpu.bytes(at, bytes.len()), bytes);
            },
        ),
        case(
            "between_mappings",
            "bytes are copied from one mapping to another",
            |gpu| {
                let range = gpu.reserve(4);
                let _memory = [gpu.back(range.base, 1), gpu.back(range.at(3), 1)];
                gpu.fill(range.base, 0x2f, gpu.granularity);
                call!(gpu, cuMemcpyDtoD_v2(range.at(3), range.base, gpu.granularity) => SUCCESS);
                call!(gpu, cuCtxSynchronize() => SUCCESS);
                assert_eq!(
                    gpu.bytes(range.at(3), gpu.granularity),
                    vec![0x2f; gpu.granularity]
                );
            },
        ),
        case("read_unmapped", CHECKED, |gpu| {
            read_refused(gpu, |range| range.at(2), 1)
        }),
        case("write_unmapped", CHECKED, |gpu| {
            write_refused(gpu, |range| range.at(2), 1)
        }),
        case("read_past_the_mapping", CHECKED, |gpu| {
            read_refused(gpu, |range| range.base, gpu.granules(2))
        }),
        case("write_past_the_mapping", CHECKED, |gpu| {
            write_refused(gpu, |range| range.base, gpu.granules(2))
        }),
        case("read_without_access", CHECKED, |gpu| {
            let range = gpu.reserve(4);
            let memory = gpu.create(1);
            gpu.map(range.base, &memory);
            demand_read_refused(gpu, range.base, 1);
        }),
        case("write_without_access", CHECKED, |gpu| {
            let range = gpu.reserve(4);
            let memory = gpu.create(1);
            gpu.map(range.base, &memory);
            call!(gpu, cuMemsetD8_v2(range.base, 1, 16) => INVALID_VALUE);
            demand_sound(gpu);
        }),
        case("read_after_access_was_taken", CHECKED, |gpu| {
            let (range, _memory) = mapped(gpu);
            gpu.fill(range.base, 0x21, gpu.granularity);
            gpu.grant(range.base, gpu.granularity, NO_ACCESS);
            demand_read_refused(gpu, range.base, 1);
            gpu.grant(range.base, gpu.granularity, READ);
            assert_eq!(gpu.byte(range.base), 0x21);
        }),
        case("copy_in_read_only", READ_ONLY, |gpu| {
            let range = read_only(gpu, 0x21);
            let bytes = [1_u8; 64];
            call!(gpu, cuMemcpyHtoD_v2(range.base, bytes.as_ptr().cast(), bytes.len()) => INVALID_VALUE);
            demand_sound(gpu);
            assert_eq!(gpu.byte(range.base), 0x21);
        }),
        case("copy_between_from_unmapped", CHECKED, |gpu| {
            let (range, _memory) = mapped(gpu);
            gpu.fill(range.base, 0x21, gpu.granularity);
            call!(gpu, cuMemcpyDtoD_v2(range.base, range.at(2), 64) => INVALID_VALUE);
            demand_sound(gpu);
            assert_eq!(gpu.byte(range.base), 0x21);
        }),
        case("fill_read_only", READ_ONLY, |gpu| {
            let range = read_only(gpu, 0x21);
            call!(gpu, cuMemsetD8_v2(range.base, 1, gpu.granularity) => INVALID_VALUE);
            demand_sound(gpu);
            assert_eq!(gpu.byte(range.base), 0x21);
        }),
        case(
            "device_without_access",
            "a device without rights is refused",
            device_without_access,
        )
        .needs(Need::TwoDevices),
        case("extent_of_a_mapping", EXTENT, |gpu| {
            let range = gpu.reserve(4);
            let _memory = [gpu.back(range.base, 1), gpu.back(range.at(1), 2)];
            let first = Ok((range.base, gpu.granularity));
            let second = Ok((range.at(1), gpu.granules(2)));
            assert_eq!(gpu.extent(range.base + 5), first);
            assert_eq!(gpu.extent(range.at(1)), second);
            assert_eq!(gpu.extent(range.at(3) - 1), second);
        }),
        case(
            "extent_unmapped",
            "the extent of unmapped addresses is NOT_FOUND",
            |gpu| {
                let range = gpu.reserve(4);
                assert_eq!(gpu.extent(range.base), Err(NOT_FOUND));
            },
        ),
        case(
            "pointer_range_size",
            "a pointer's RANGE_SIZE is that of the reservation",
            |gpu| {
                let (range, _memory) = mapped(gpu);
                let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE;
                assert_eq!(ask(gpu, attribute, range.base), range.size as u64);
            },
        ),
        case(
            "pointer_mapped",
            "a pointer into a mapping is MAPPED",
            |gpu| {
                let (range, _memory) = mapped(gpu);
                let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED;
                assert_eq!(ask(gpu, attribute, range.base), 1);
            },
        ),
        case(
            "pointer_memory_type",
            "a pointer into a mapping is one to device memory",
            |gpu| {
                const DEVICE: u64 = 2;
                let (range, _memory) = mapped(gpu);
                let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
                assert_eq!(ask(gpu, attribute, range.base), DEVICE);
            },
        ),
        case(
            "pointer_legacy_ipc",
            "a pointer into a mapping cannot go by legacy IPC",
            |gpu| {
                let (range, _memory) = mapped(gpu);
                let attribute =
                    CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
                assert_eq!(ask(gpu, attribute, range.base), 0);
            },
        ),
        case(
            "dma_buf",
            "a dma-buf can be had of a mapped range of exportable memory",
            dma_buf,
        ),
    ],
};

const CHECKED: &str =
    "bytes that cannot be reached are refused before anything runs; the context stays sound";
const READ_ONLY: &str = "a write to a read-only mapping is refused";
const EXTENT: &str = "the extent of an address is its mapping, not its reservation";

/// A reservation of four granules, the first of them mapped.
fn mapped(gpu: &Gpu) -> (Range<'_>, Handle<'_>) {
    let range = gpu.reserve(4);
    let memory = gpu.back(range.base, 1);
    (range, memory)
}

/// A reservation of one granule, filled, then readable only; the mapping alone keeps the memory.
fn read_only(gpu: &Gpu, value: u8) -> Range<'_> {
    let range = gpu.reserve(1);
    gpu.back(range.base, 1).release();
    gpu.fill(range.base, value, range.size);
    gpu.grant(range.base, range.size, READ);
    range
}

/// The context still works.
fn demand_sound(gpu: &Gpu) {
    call!(gpu, cuCtxSynchronize() => SUCCESS);
    let range = gpu.reserve(1);
    let _memory = gpu.back(range.base, 1);
    gpu.fill(range.base, 0x66, range.size);
    assert_eq!(gpu.byte(range.base), 0x66);
}

fn demand_read_refused(gpu: &Gpu, at: CUdeviceptr, size: usize) {
    let mut bytes = vec![0xa5_u8; size];
    call!(gpu, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast::<c_void>(), at, size) => INVALID_VALUE);
    assert!(
        bytes.iter().all(|&byte| byte == 0xa5),
        "a refused copy wrote bytes"
    );
    demand_sound(gpu);
}

fn read_refused(gpu: &Gpu, place: fn(&Range<'_>) -> CUdeviceptr, size: usize) {
    let (range, _memory) = mapped(gpu);
    demand_read_refused(gpu, place(&range), size);
}

fn write_refused(gpu: &Gpu, place: fn(&Range<'_>) -> CUdeviceptr, size: usize) {
    let (range, _memory) = mapped(gpu);
    gpu.fill(range.base, 0x49, gpu.granularity);
    call!(gpu, cuMemsetD8_v2(place(&range), 1, size) => INVALID_VALUE);
    demand_sound(gpu);
    assert_eq!(gpu.byte(range.base), 0x49);
}

fn device_without_access(gpu: &Gpu) {
    let (range, _memory) = mapped(gpu);
    gpu.fill(range.base, 0x49, gpu.granularity);
    gpu.on_device(1, || {
        let mut byte = 0xa5_u8;
        call!(gpu, cuMemcpyDtoH_v2((&raw mut byte).cast(), range.base, 1) => INVALID_VALUE);
        assert_eq!(byte, 0xa5);
        call!(gpu, cuMemsetD8_v2(range.base, 1, gpu.granularity) => INVALID_VALUE);
        call!(gpu, cuCtxSynchronize() => SUCCESS);
    });
    assert_eq!(gpu.rights(range.base), Ok(READ_WRITE));
    assert_eq!(gpu.byte(range.base), 0x49);
}

/// A pointer attribute. The driver writes as many bytes as the attribute is wide, none of them wider than this.
fn ask(gpu: &Gpu, attribute: CUpointer_attribute, at: CUdeviceptr) -> u64 {
    let mut value = 0_u64;
    call!(gpu, cuPointerGetAttribute((&raw mut value).cast(), attribute, at) => SUCCESS);
    value
}

fn dma_buf(gpu: &Gpu) {
    let range = gpu.reserve(2);
    let memory = gpu.create_exportable(2);
    gpu.map(range.base, &memory);
    gpu.grant(range.base, range.size, READ_WRITE);
    let mut fd = -1;
    let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    call!(gpu, cuMemGetHandleForAddressRange((&raw mut fd).cast(), range.base, range.size, kind, 0) => SUCCESS);
    assert!(fd >= 0, "the driver wrote no file descriptor");
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}
