//! Creating physical memory.

use cuda_vmm::sys::{
    CUdevice_attribute, CUmemAllocationProp, CUmemAllocationType, CUmemLocationType,
};

use crate::case::{case, Need, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::props::{
    device, host, host_numa, pinned, FABRIC, NONE, POSIX_FD, READ_WRITE, WIN32, WIN32_KMT,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const TIB: usize = 1 << 40;

pub const SECTION: Section = Section {
    name: "create",
    cases: &[
        case("size_zero", SIZES, |gpu| size_refused(gpu, 0)),
        case("size_one", SIZES, |gpu| size_refused(gpu, 1)),
        case("size_host_page", SIZES, |gpu| size_refused(gpu, 4096)),
        case("size_64_kib", SIZES, |gpu| size_refused(gpu, 64 * KIB)),
        case("size_3_mib", SIZES, |gpu| size_refused(gpu, 3 * MIB)),
        case("flag_1", "flags are refused", |gpu| {
            gpu.nothing_changes(|| {
                let mut handle = 0;
                let properties = pinned(device(0), NONE);
                call!(gpu, cuMemCreate(&mut handle, gpu.granularity, &properties, 1) => INVALID_VALUE);
            });
        }),
        case("type_zero", "an allocation type of 0 is refused", |gpu| {
            kind_refused(gpu, CUmemAllocationType(0))
        }),
        case("type_managed", "managed memory is refused", |gpu| {
            kind_refused(gpu, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED)
        }),
        case("location_none", "a location of no type is refused", |gpu| {
            location_refused(gpu, CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID)
        }),
        case(
            "location_numa_current",
            "the caller's NUMA node is refused",
            |gpu| {
                location_refused(
                    gpu,
                    CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT,
                )
            },
        ),
        case("device_absent", DEVICES, |gpu| {
            device_refused(gpu, gpu.absent_device())
        }),
        case("device_minus_one", DEVICES, |gpu| device_refused(gpu, -1)),
        case("size_1_tib", TOO_MUCH, |gpu| too_much(gpu, TIB)),
        case("size_largest", TOO_MUCH, |gpu| {
            too_much(gpu, 0_usize.wrapping_sub(gpu.granularity))
        }),
        case("size_all_that_is_free", TOO_MUCH, |gpu| {
            let free = gpu.free_bytes();
            too_much(gpu, free / gpu.granularity * gpu.granularity)
        }),
        case(
            "host",
            "host memory of no particular node can be created",
            |gpu| granted(gpu, &pinned(host(), NONE)),
        ),
        case(
            "host_exportable",
            "host memory of no particular node cannot be exportable",
            |gpu| refused(gpu, &pinned(host(), POSIX_FD)),
        ),
        case(
            "host_numa",
            "host memory of a NUMA node can be created",
            |gpu| granted(gpu, &pinned(host_numa(0), NONE)),
        ),
        case(
            "host_numa_exportable",
            "host memory of a NUMA node can be exportable",
            |gpu| {
                let memory = gpu.create_with(1, &pinned(host_numa(0), POSIX_FD));
                drop(gpu.export(&memory));
            },
        ),
        case("handle_type_win32", WINDOWS, |gpu| {
            refused(gpu, &pinned(device(0), WIN32))
        }),
        case("handle_type_win32_kmt", WINDOWS, |gpu| {
            refused(gpu, &pinned(device(0), WIN32_KMT))
        }),
        case("handle_type_posix_and_win32", WINDOWS, |gpu| {
            refused(gpu, &pinned(device(0), POSIX_FD | WIN32))
        }),
        case("handle_type_posix_and_win32_kmt", WINDOWS, |gpu| {
            refused(gpu, &pinned(device(0), POSIX_FD | WIN32_KMT))
        }),
        case("handle_types_win32_both", WINDOWS, |gpu| {
            refused(gpu, &pinned(device(0), WIN32 | WIN32_KMT))
        }),
        case("handle_type_fabric", NO_CHANNEL, |gpu| {
            not_permitted(gpu, FABRIC)
        })
        .needs(Need::NoImexChannel),
        case("handle_type_fabric_and_posix", NO_CHANNEL, |gpu| {
            not_permitted(gpu, FABRIC | POSIX_FD)
        })
        .needs(Need::NoImexChannel),
        case("compressible", GRANTED_PERHAPS, |gpu| {
            let mut properties = pinned(device(0), NONE);
            properties.allocFlags.compressionType = 1;
            granted(gpu, &properties);
        }),
        case("rdma_capable", GRANTED_PERHAPS, |gpu| {
            let mut properties = pinned(device(0), NONE);
            properties.allocFlags.gpuDirectRDMACapable = 1;
            granted(gpu, &properties);
        }),
        case(
            "uses_no_descriptor",
            "exportable memory uses no file descriptor of the process",
            |gpu| {
                let before = open_descriptors();
                let _memory: Vec<_> = (0..512).map(|_| gpu.create_exportable(1)).collect();
                assert_eq!(open_descriptors(), before);
            },
        )
        .needs(Need::Real(MEMFD)),
        case(
            "export_uses_one_descriptor",
            "each export uses one file descriptor",
            |gpu| {
                let memory = gpu.create_exportable(1);
                let before = open_descriptors();
                let _exports: Vec<_> = (0..16).map(|_| gpu.export(&memory)).collect();
                assert_eq!(open_descriptors(), before + 16);
            },
        ),
        case(
            "import_uses_no_descriptor",
            "an import uses no file descriptor",
            |gpu| {
                let memory = gpu.create_exportable(1);
                let fd = gpu.export(&memory);
                let before = open_descriptors();
                let _import = gpu.import(&fd, 1);
                assert_eq!(open_descriptors(), before);
            },
        ),
        case(
            "new_memory_is_zero",
            "new memory is zero, whatever its last owner left in it",
            new_memory_is_zero,
        ),
        case(
            "takes_free_bytes",
            "an allocation takes its size from the free bytes until it is released",
            takes_free_bytes,
        ),
    ],
};

const SIZES: &str = "the size must be a multiple of the granularity, and not zero";
const DEVICES: &str = "an ordinal that no device has is INVALID_DEVICE";
const TOO_MUCH: &str = "more than can be had is OUT_OF_MEMORY";
const WINDOWS: &str = "handle types of Windows are refused";
const NO_CHANNEL: &str =
    "fabric handles are NOT_PERMITTED without an IMEX channel, though the device says it supports them";
const MEMFD: &str =
    "exportable memory of the simulated driver is a memfd, a descriptor of the process";
const GRANTED_PERHAPS: &str =
    "a request for compression or RDMA is accepted, if not always granted";

fn refused(gpu: &Gpu, properties: &CUmemAllocationProp) {
    gpu.nothing_changes(|| {
        let mut handle = 0;
        call!(gpu, cuMemCreate(&mut handle, gpu.granularity, properties, 0) => INVALID_VALUE);
    });
}

fn size_refused(gpu: &Gpu, size: usize) {
    gpu.nothing_changes(|| {
        let mut handle = 0;
        call!(gpu, cuMemCreate(&mut handle, size, &pinned(device(0), NONE), 0) => INVALID_VALUE);
    });
}

fn kind_refused(gpu: &Gpu, kind: CUmemAllocationType) {
    let mut properties = pinned(device(0), NONE);
    properties.type_ = kind;
    refused(gpu, &properties);
}

fn location_refused(gpu: &Gpu, kind: CUmemLocationType) {
    let mut properties = pinned(device(0), NONE);
    properties.location.type_ = kind;
    refused(gpu, &properties);
}

fn device_refused(gpu: &Gpu, ordinal: i32) {
    gpu.nothing_changes(|| {
        let mut handle = 0;
        let properties = pinned(device(ordinal), NONE);
        call!(gpu, cuMemCreate(&mut handle, gpu.granularity, &properties, 0) => INVALID_DEVICE);
    });
}

fn too_much(gpu: &Gpu, size: usize) {
    gpu.nothing_changes(|| {
        let mut handle = 0;
        call!(gpu, cuMemCreate(&mut handle, size, &pinned(device(0), NONE), 0) => OUT_OF_MEMORY);
    });
}

fn not_permitted(gpu: &Gpu, handle_types: u32) {
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED;
    let mut supported = 0;
    call!(gpu, cuDeviceGetAttribute(&mut supported, attribute, 0) => SUCCESS);
    assert_eq!(
        supported, 1,
        "the device says that it supports fabric handles"
    );
    gpu.nothing_changes(|| {
        let mut handle = 0;
        let properties = pinned(device(0), handle_types);
        call!(gpu, cuMemCreate(&mut handle, gpu.granularity, &properties, 0) => NOT_PERMITTED);
    });
}

/// The allocation is made, can be mapped and used by device 0, and is given back.
fn granted(gpu: &Gpu, properties: &CUmemAllocationProp) {
    let range = gpu.reserve(1);
    let memory = gpu.create_with(1, properties);
    gpu.map(range.base, &memory);
    gpu.grant(range.base, range.size, READ_WRITE);
    gpu.fill(range.base, 0x2e, range.size);
    assert_eq!(gpu.byte(range.end() - 1), 0x2e);
}

fn open_descriptors() -> usize {
    let listing = std::fs::read_dir("/proc/self/fd").expect("the process's open files");
    listing.count()
}

fn new_memory_is_zero(gpu: &Gpu) {
    const GRANULES: usize = 8;
    let range = gpu.reserve(GRANULES);
    let zeros = vec![0; range.size];
    for trial in 0..20 {
        let memory = gpu.back(range.base, GRANULES);
        let bytes = gpu.bytes(range.base, range.size);
        assert!(
            bytes == zeros,
            "trial {trial}: bytes of an earlier owner in new memory"
        );
        gpu.fill(range.base, 0xee, range.size);
        call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
        memory.release();
    }
}

fn takes_free_bytes(gpu: &Gpu) {
    let before = gpu.free_bytes();
    let memory = gpu.create(512);
    assert_eq!(gpu.free_bytes(), before - memory.size);
    memory.release();
    assert_eq!(gpu.free_bytes(), before);
}
