//! Memory of different properties, side by side and in one allocation; and properties at the edge of what there is.

use cuda_vmm::sys::{
    CUmemAllocationGranularity_flags, CUmemAllocationProp, CUmemLocation, CUmemLocationType,
    CUresult,
};

use crate::case::{case, Section};
use crate::codes::{call, demand, INVALID_DEVICE, INVALID_VALUE};
use crate::gpu::Gpu;
use crate::owned::Handle;
use crate::props::{device, host, host_numa, pinned, rights, NONE, POSIX_FD, READ, READ_WRITE};

pub const SECTION: Section = Section {
    name: "mixed",
    cases: &[
        case("posix_beside_plain", BESIDE, |gpu| {
            beside_plain(gpu, &pinned(device(0), POSIX_FD))
        }),
        case("rdma_beside_plain", BESIDE, |gpu| {
            beside_plain(gpu, &with(NONE, 1, 0))
        }),
        case("compressible_beside_plain", BESIDE, |gpu| {
            beside_plain(gpu, &with(NONE, 0, 1))
        }),
        case("node_beside_device", BESIDE, |gpu| {
            beside_plain(gpu, &pinned(host_numa(0), NONE))
        }),
        case("host_beside_device", BESIDE, |gpu| {
            beside_plain(gpu, &pinned(host(), NONE))
        }),
        case(
            "host_rights_over_both",
            "rights of the host over host and device memory are NOT_SUPPORTED, but the host memory has them",
            |gpu| {
                let range = gpu.reserve(2);
                let memory = [
                    gpu.create_with(1, &pinned(host_numa(0), NONE)),
                    gpu.create(1),
                ];
                gpu.map(range.base, &memory[0]);
                gpu.map(range.at(1), &memory[1]);
                gpu.grant(range.base, range.size, READ);
                let by_host = rights(host_numa(0), READ_WRITE);
                call!(gpu, cuMemSetAccess(range.base, range.size, &by_host, 1) => NOT_SUPPORTED);
                assert_eq!(gpu.rights(range.base), Ok(READ));
                let by_now = gpu.rights_of(host_numa(0), range.base);
                assert_eq!(by_now, Ok(READ_WRITE), "granted before the refusal");
            },
        ),
        case("rdma_reads_back", GRANTED, |gpu| {
            let found = properties_of(gpu, &gpu.create_with(1, &with(NONE, 1, 0)));
            assert_eq!(found.allocFlags.gpuDirectRDMACapable, 1);
            assert_eq!(found.allocFlags.compressionType, 0);
        }),
        case("compression_reads_back", GRANTED, |gpu| {
            let found = properties_of(gpu, &gpu.create_with(1, &with(NONE, 0, 1)));
            assert_eq!(found.allocFlags.compressionType, 1);
            assert_eq!(found.allocFlags.gpuDirectRDMACapable, 0);
        }),
        case("plain_reads_back", GRANTED, |gpu| {
            let found = properties_of(gpu, &gpu.create(1));
            assert_eq!(found.allocFlags.compressionType, 0);
            assert_eq!(found.allocFlags.gpuDirectRDMACapable, 0);
            assert_eq!(found.allocFlags.usage, 0);
        }),
        case("posix_and_rdma_read_back", GRANTED, |gpu| {
            let memory = gpu.create_with(1, &with(POSIX_FD, 1, 0));
            let found = properties_of(gpu, &memory);
            assert_eq!(found.requestedHandleTypes.0, POSIX_FD);
            assert_eq!(found.allocFlags.gpuDirectRDMACapable, 1);
            drop(gpu.export(&memory));
        }),
        case("posix_and_compressible", GRANTED, |gpu| {
            let memory = gpu.create_with(1, &with(POSIX_FD, 0, 1));
            let found = properties_of(gpu, &memory);
            assert_eq!(found.requestedHandleTypes.0, POSIX_FD);
            assert_eq!(found.allocFlags.compressionType, 1);
            drop(gpu.export(&memory));
        }),
        case("everything_at_once", "memory that RDMA can reach is not compressed, though both were asked for", |gpu| {
            let memory = gpu.create_with(1, &with(POSIX_FD, 1, 1));
            let found = properties_of(gpu, &memory);
            assert_eq!(found.allocFlags.gpuDirectRDMACapable, 1);
            assert_eq!(found.allocFlags.compressionType, 0);
        }),
        case("compression_of_an_unknown_kind", "a compression that does not exist is refused", |gpu| { properties_refused(gpu, &with(NONE, 0, 2)); }),
case("rdma_on_a_node", "host memory for RDMA is refused", |gpu| { let mut properties = with(NONE, 1, 0);
 properties.location = host_numa(0);
 properties_refused(gpu, &properties); }),
case("compressible_on_a_node", "compressible host memory is refused", |gpu| { let mut properties = with(NONE, 0, 1);
 properties.location = host_numa(0);
 properties_refused(gpu, &properties); }),
case(
            "location_of_a_node_reads_back",
            "the properties name the node",
            |gpu| {
                let memory = gpu.create_with(1, &pinned(host_numa(0), NONE));
                assert_eq!(properties_of(gpu, &memory).location, host_numa(0));
            },
        ),
        case(
            "host_by_number",
            "the number of a location that has none is not looked at",
            |gpu| {
                let mut location = host();
                location.id = 5;
                drop(gpu.create_with(1, &pinned(location, NONE)));
            },
        ),
        case("node_99", NODES, |gpu| {
            create_refused(gpu, host_numa(99), INVALID_VALUE)
        }),
        case("node_minus_one", NODES, |gpu| {
            create_refused(gpu, host_numa(-1), INVALID_VALUE)
        }),
        case(
            "device_largest_number",
            "an ordinal that no device has is INVALID_DEVICE",
            |gpu| {
                create_refused(gpu, device(i32::MAX), INVALID_DEVICE);
            },
        ),
        case(
            "location_of_an_unknown_kind",
            "a location of an unknown kind is refused",
            |gpu| {
                create_refused(
                    gpu,
                    CUmemLocation {
                        type_: CUmemLocationType(99),
                        id: 0,
                    },
                    INVALID_VALUE,
                );
            },
        ),
        case(
            "granularity_of_an_unknown_location",
            "the granularity query looks at no location",
            |gpu| {
                let location = CUmemLocation {
                    type_: CUmemLocationType(99),
                    id: 0,
                };
                assert_eq!(
                    gpu.ask_granularity(&pinned(location, NONE)),
                    gpu.granularity
                );
            },
        ),
        case(
            "granularity_of_no_location",
            "the granularity query looks at no location",
            |gpu| {
                let location = CUmemLocation {
                    type_: CUmemLocationType(0),
                    id: 0,
                };
                assert_eq!(
                    gpu.ask_granularity(&pinned(location, NONE)),
                    gpu.granularity
                );
            },
        ),
        case(
            "granularity_option_2",
            "an option that does not exist is refused",
            |gpu| {
                let mut size = 7;
                let option = CUmemAllocationGranularity_flags(2);
                let properties = pinned(device(0), NONE);
                call!(gpu, cuMemGetAllocationGranularity(&mut size, &properties, option) => INVALID_VALUE);
                assert_eq!(size, 7);
            },
        ),
        case("size_granule_and_one", SIZES, |gpu| {
            size_refused(gpu, gpu.granularity + 1)
        }),
        case("size_granule_but_one", SIZES, |gpu| {
            size_refused(gpu, gpu.granularity - 1)
        }),
        case("size_three_granules", SIZES, |gpu| drop(gpu.create(3))),
        case("size_1_gib", SIZES, |gpu| {
            drop(gpu.create((1 << 30) / gpu.granularity))
        }),
        case(
            "size_2_to_the_63",
            "more than there is of anything is OUT_OF_MEMORY",
            |gpu| {
                let mut handle = 0;
                let properties = pinned(device(0), NONE);
                gpu.nothing_changes(|| {
                    call!(gpu, cuMemCreate(&mut handle, 1 << 63, &properties, 0) => OUT_OF_MEMORY);
                });
            },
        ),
        case("usage_unknown", "a usage that does not exist is accepted", |gpu| {
            let mut properties = pinned(device(0), NONE);
            properties.allocFlags.usage = 0x80;
            drop(gpu.create_with(1, &properties));
        }),
    ],
};

const BESIDE: &str =
    "memory of other properties is mapped, granted and copied beside plain device memory";
const GRANTED: &str = "what was asked for is read back as it was granted";
const NODES: &str = "a node that the host does not have is refused";
const SIZES: &str = "any multiple of the granularity can be had, and nothing else";

fn with(handle_types: u32, rdma: u8, compression: u8) -> CUmemAllocationProp {
    let mut properties = pinned(device(0), handle_types);
    properties.allocFlags.gpuDirectRDMACapable = rdma;
    properties.allocFlags.compressionType = compression;
    properties
}

/// One granule of such memory beside one of plain memory: one grant, and copies over the seam both ways.
fn beside_plain(gpu: &Gpu, properties: &CUmemAllocationProp) {
    let range = gpu.reserve(2);
    let memory = [gpu.create_with(1, properties), gpu.create(1)];
    gpu.map(range.base, &memory[0]);
    gpu.map(range.at(1), &memory[1]);
    gpu.grant(range.base, range.size, READ_WRITE);
    gpu.fill(range.base, 0x3e, range.size);
    assert_eq!(gpu.bytes(range.at(1) - 3, 6), [0x3e; 6]);
    call!(gpu, cuMemsetD8_v2(range.at(1), 0x4f, gpu.granularity) => SUCCESS);
    call!(gpu, cuMemcpyDtoD_v2(range.base, range.at(1), gpu.granularity) => SUCCESS);
    call!(gpu, cuCtxSynchronize() => SUCCESS);
    assert_eq!(gpu.bytes(range.at(1) - 3, 6), [0x4f; 6]);
}

fn properties_of(gpu: &Gpu, memory: &Handle<'_>) -> CUmemAllocationProp {
    let mut properties = CUmemAllocationProp::default();
    call!(gpu, cuMemGetAllocationPropertiesFromHandle(&mut properties, memory.raw) => SUCCESS);
    properties
}

fn properties_refused(gpu: &Gpu, properties: &CUmemAllocationProp) {
    let mut handle = 0;
    gpu.nothing_changes(|| {
        call!(gpu, cuMemCreate(&mut handle, gpu.granularity, properties, 0) => INVALID_VALUE);
    });
}

fn create_refused(gpu: &Gpu, location: CUmemLocation, wanted: CUresult) {
    gpu.nothing_changes(|| {
        let mut handle = 0;
        let properties = pinned(location, NONE);
        let code = unsafe {
            gpu.calls()
                .cuMemCreate(&mut handle, gpu.granularity, &properties, 0)
        };
        demand("cuMemCreate", code, wanted);
    });
}

fn size_refused(gpu: &Gpu, size: usize) {
    gpu.nothing_changes(|| {
        let mut handle = 0;
        call!(gpu, cuMemCreate(&mut handle, size, &pinned(device(0), NONE), 0) => INVALID_VALUE);
    });
}
