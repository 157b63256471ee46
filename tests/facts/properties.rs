//! Granularity, and the properties of a handle.

use cuda_vmm::sys::{
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType,
};

use crate::case::{case, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::owned::Handle;
use crate::props::{device, host, host_numa, pinned, NONE, POSIX_FD};

const RECOMMENDED: CUmemAllocationGranularity_flags =
    CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;

pub const SECTION: Section = Section {
    name: "properties",
    cases: &[
        case("granularity_is_2_mib", "the granularity is 2 MiB, minimum and recommended", |gpu| {
            assert_eq!(gpu.granularity, 2 << 20);
            same_granularity(gpu, &pinned(device(0), NONE));
        }),
        case("granularity_exportable", ONE_GRANULARITY, |gpu| {
            same_granularity(gpu, &pinned(device(0), POSIX_FD))
        }),
        case("granularity_every_handle_type", ONE_GRANULARITY, |gpu| {
            for handle_types in 0..16 {
                same_granularity(gpu, &pinned(device(0), handle_types));
            }
        }),
        case("granularity_rdma_capable", ONE_GRANULARITY, |gpu| {
            let mut properties = pinned(device(0), NONE);
            properties.allocFlags.gpuDirectRDMACapable = 1;
            same_granularity(gpu, &properties);
        }),
        case("granularity_compressible", ONE_GRANULARITY, |gpu| {
            let mut properties = pinned(device(0), NONE);
            properties.allocFlags.compressionType = 1;
            same_granularity(gpu, &properties);
        }),
        case("granularity_host", ONE_GRANULARITY, |gpu| {
            same_granularity(gpu, &pinned(host(), NONE))
        }),
        case("granularity_host_numa", ONE_GRANULARITY, |gpu| {
            same_granularity(gpu, &pinned(host_numa(0), NONE))
        }),
        case("granularity_device_99", NOT_CHECKED, |gpu| {
            same_granularity(gpu, &pinned(device(99), NONE))
        }),
        case("granularity_device_minus_one", NOT_CHECKED, |gpu| {
            same_granularity(gpu, &pinned(device(-1), NONE))
        }),
        case("granularity_type_zero", NOT_CHECKED, |gpu| {
            let mut properties = pinned(device(0), NONE);
            properties.type_ = CUmemAllocationType(0);
            same_granularity(gpu, &properties);
        }),
        case("granularity_option_7", "an option that does not exist is refused", |gpu| {
            let mut granularity = 0;
            let option = CUmemAllocationGranularity_flags(7);
            let properties = pinned(device(0), NONE);
            call!(gpu, cuMemGetAllocationGranularity(&mut granularity, &properties, option) => INVALID_VALUE);
        }),
        case("of_a_created_handle", "a handle's properties are those it was created with", |gpu| {
            let memory = gpu.create_exportable(1);
            let found = of(gpu, &memory);
            let asked = pinned(device(0), POSIX_FD);
            assert_eq!(found.type_, asked.type_);
            assert_eq!(found.location, asked.location);
            assert_eq!(found.requestedHandleTypes, asked.requestedHandleTypes);
        }),
        case("of_a_retained_handle", "a retained handle has the properties of the created one", |gpu| {
            let range = gpu.reserve(2);
            let memory = gpu.back(range.base, 2);
            let retained = gpu.retain(range.at(1), 2);
            assert_eq!(of(gpu, &retained), of(gpu, &memory));
        }),
        case(
            "of_an_import",
            "an import has no handle types, and the exporter's device as this process numbers devices",
            |gpu| {
                let memory = gpu.create_exportable(1);
                let import = gpu.import(&gpu.export(&memory), 1);
                let found = of(gpu, &import);
                assert_eq!(found.requestedHandleTypes, CUmemAllocationHandleType(NONE));
                assert_eq!(found.location, device(0));
                assert_eq!(found.type_, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED);
            },
        ),
    ],
};

const ONE_GRANULARITY: &str = "the granularity is the same for every kind of memory";
const NOT_CHECKED: &str = "the granularity query checks neither device nor type";

/// Minimum and recommended granularity of these properties are that of plain device memory.
fn same_granularity(gpu: &Gpu, properties: &CUmemAllocationProp) {
    assert_eq!(gpu.ask_granularity(properties), gpu.granularity, "minimum");
    let mut recommended = 0;
    call!(gpu, cuMemGetAllocationGranularity(&mut recommended, properties, RECOMMENDED) => SUCCESS);
    assert_eq!(recommended, gpu.granularity, "recommended");
}

fn of(gpu: &Gpu, handle: &Handle<'_>) -> CUmemAllocationProp {
    let mut properties = CUmemAllocationProp::default();
    call!(gpu, cuMemGetAllocationPropertiesFromHandle(&mut properties, handle.raw) => SUCCESS);
    properties
}
