//! Retaining the allocation that is mapped at an address.

use std::ffi::c_void;

use cuda_vmm::sys::CUdeviceptr;

use crate::case::{alone, case, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::props::READ_WRITE;

pub const SECTION: Section = Section {
    name: "retain",
    cases: &[
        case("start_of_a_mapping", SAME, |gpu| same_handle(gpu, |_| 0)),
        case("inside_a_mapping", SAME, |gpu| {
            same_handle(gpu, |size| size / 2 + 12_345)
        }),
        case("last_byte_of_a_mapping", SAME, |gpu| {
            same_handle(gpu, |size| size - 1)
        }),
        alone(
            "one_more_count",
            "a retained handle has one more count to release",
            |gpu| {
                let before = gpu.free_bytes();
                let range = gpu.reserve(1);
                let memory = gpu.back(range.base, 1);
                let retained = gpu.retain(range.base, 1);
                call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
                memory.release();
                assert_eq!(
                    gpu.free_bytes(),
                    before - range.size,
                    "the retained count keeps the memory"
                );
                retained.release();
                assert_eq!(gpu.free_bytes(), before);
                call!(gpu, cuMemRelease(retained.raw) => INVALID_VALUE);
            },
        ),
        case("unmapped", "unmapped addresses are refused", |gpu| {
            let range = gpu.reserve(2);
            let _memory = gpu.back(range.base, 1);
            refused(gpu, range.at(1));
        }),
        case("pointer_zero", "address 0 is refused", |gpu| {
            refused(gpu, 0)
        }),
        case(
            "ordinary_allocation",
            "memory of cuMemAlloc is refused",
            |gpu| {
                let mut address = 0;
                call!(gpu, cuMemAlloc_v2(&mut address, gpu.granularity) => SUCCESS);
                refused(gpu, address);
                call!(gpu, cuMemFree_v2(address) => SUCCESS);
            },
        ),
        case("host_pointer", "memory of the host is refused", |gpu| {
            let byte = Box::new(0_u8);
            refused(gpu, &raw const *byte as CUdeviceptr);
        }),
        case(
            "after_the_owner_released",
            "memory that its owner released while mapped can be retained and mapped elsewhere",
            after_the_owner_released,
        ),
    ],
};

const SAME: &str = "any address inside a mapping gives the same handle value";

fn same_handle(gpu: &Gpu, offset: fn(usize) -> usize) {
    let range = gpu.reserve(4);
    let memory = gpu.back(range.at(1), 2);
    let retained = gpu.retain(range.at(1) + offset(memory.size) as CUdeviceptr, 2);
    assert_eq!(retained.raw, memory.raw);
    retained.release();
    assert_eq!(gpu.rights(range.at(1)), Ok(READ_WRITE));
}

fn refused(gpu: &Gpu, at: CUdeviceptr) {
    gpu.nothing_changes(|| {
        let mut handle = 0;
        call!(gpu, cuMemRetainAllocationHandle(&mut handle, at as *mut c_void) => INVALID_VALUE);
    });
}

fn after_the_owner_released(gpu: &Gpu) {
    let range = gpu.reserve(4);
    let memory = gpu.back(range.base, 1);
    gpu.fill(range.base, 0x3e, gpu.granularity);
    memory.release();

    let retained = gpu.retain(range.base, 1);
    call!(gpu, cuMemUnmap(range.base, gpu.granularity) => SUCCESS);
    gpu.map(range.at(2), &retained);
    gpu.grant(range.at(2), gpu.granularity, READ_WRITE);
    assert_eq!(gpu.byte(range.at(2)), 0x3e);
}
