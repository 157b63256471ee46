//! What the driver says of an address: its extent, and the attributes of a pointer to it.

use std::ptr;

use cuda_vmm::sys::{CUdeviceptr, CUpointer_attribute};

use crate::case::{case, Section};
use crate::codes::{call, NOT_FOUND};
use crate::gpu::{Gpu, UNRESERVED};
use crate::owned::{Handle, Range};
use crate::props::{device, host_numa, pinned, NONE, NO_ACCESS, POSIX_FD, READ};

type Attribute = CUpointer_attribute;
const ACCESS_FLAGS: Attribute = Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
const ALLOWED_HANDLE_TYPES: Attribute = Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES;
const BUFFER_ID: Attribute = Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID;
const DEVICE_ORDINAL: Attribute = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
const DEVICE_POINTER: Attribute = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
const HOST_POINTER: Attribute = Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER;
const IS_MANAGED: Attribute = Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED;
const MAPPED: Attribute = Attribute::CU_POINTER_ATTRIBUTE_MAPPED;
const MAPPING_BASE: Attribute = Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR;
const MAPPING_SIZE: Attribute = Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE;
const MEMORY_TYPE: Attribute = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
const RANGE_SIZE: Attribute = Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE;
const RANGE_START: Attribute = Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
const RDMA_CAPABLE: Attribute = Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE;

pub const SECTION: Section = Section {
    name: "pointers",
    cases: &[
        case(
            "range_start",
            "RANGE_START_ADDR is the base of the reservation",
            |gpu| {
                let two = Two::new(gpu);
                assert_eq!(two.ask(RANGE_START), two.range.base);
            },
        ),
        case(
            "range_size",
            "RANGE_SIZE is the size of the reservation",
            |gpu| {
                let two = Two::new(gpu);
                assert_eq!(two.ask(RANGE_SIZE), two.range.size as u64);
            },
        ),
        case(
            "mapping_base",
            "MAPPING_BASE_ADDR is the base of the mapping",
            |gpu| {
                let two = Two::new(gpu);
                assert_eq!(two.ask(MAPPING_BASE), two.range.at(1));
            },
        ),
        case(
            "mapping_size",
            "MAPPING_SIZE is the size of the mapping",
            |gpu| {
                let two = Two::new(gpu);
                assert_eq!(two.ask(MAPPING_SIZE), two.memory.size as u64);
            },
        ),
        case(
            "device_pointer",
            "DEVICE_POINTER is the address itself",
            |gpu| {
                let two = Two::new(gpu);
                assert_eq!(two.ask(DEVICE_POINTER), two.inside());
            },
        ),
        case(
            "device_ordinal",
            "DEVICE_ORDINAL is the memory's device",
            |gpu| {
                assert_eq!(Two::new(gpu).ask(DEVICE_ORDINAL), 0);
            },
        ),
        case("is_managed", "IS_MANAGED is 0", |gpu| {
            assert_eq!(Two::new(gpu).ask(IS_MANAGED), 0);
        }),
        case(
            "host_pointer",
            "device memory has no HOST_POINTER: refused, and a null one is written",
            |gpu| {
                let two = Two::new(gpu);
                let mut value = 0xa5a5_u64;
                let (to, at) = ((&raw mut value).cast(), two.inside());
                call!(gpu, cuPointerGetAttribute(to, HOST_POINTER, at) => INVALID_VALUE);
                assert_eq!(value, 0);
            },
        ),
        case("handle_types_none", HANDLE_TYPES, |gpu| {
            assert_eq!(
                Two::of(gpu, NONE).ask(ALLOWED_HANDLE_TYPES),
                u64::from(NONE)
            );
        }),
        case("handle_types_posix", HANDLE_TYPES, |gpu| {
            assert_eq!(
                Two::of(gpu, POSIX_FD).ask(ALLOWED_HANDLE_TYPES),
                u64::from(POSIX_FD)
            );
        }),
        case("rdma_not_requested", RDMA, |gpu| {
            assert_eq!(Two::new(gpu).ask(RDMA_CAPABLE), 0);
        }),
        case("rdma_requested", RDMA, |gpu| {
            let mut properties = pinned(device(0), NONE);
            properties.allocFlags.gpuDirectRDMACapable = 1;
            let range = gpu.reserve(1);
            let memory = gpu.create_with(1, &properties);
            gpu.map(range.base, &memory);
            gpu.grant(range.base, range.size, READ);
            assert_eq!(ask(gpu, RDMA_CAPABLE, range.base), 1);
        }),
        case("access_read_write", ACCESS, |gpu| {
            assert_eq!(Two::new(gpu).ask(ACCESS_FLAGS), 3);
        }),
        case("access_read", ACCESS, |gpu| {
            let two = Two::new(gpu);
            gpu.grant(two.range.at(1), two.memory.size, READ);
            assert_eq!(two.ask(ACCESS_FLAGS), 1);
        }),
        case("access_none", ACCESS, |gpu| {
            let two = Two::new(gpu);
            gpu.grant(two.range.at(1), two.memory.size, NO_ACCESS);
            assert_eq!(two.ask(ACCESS_FLAGS), 0);
        }),
        case(
            "mapped_without_access",
            "a mapping without access is MAPPED",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create(1);
                gpu.map(range.base, &memory);
                assert_eq!(ask(gpu, MAPPED, range.base), 1);
            },
        ),
        case(
            "memory_type_of_a_node",
            "memory of a node of the host is host memory",
            |gpu| {
                const HOST: u64 = 1;
                let range = gpu.reserve(1);
                let memory = gpu.create_with(1, &pinned(host_numa(0), NONE));
                gpu.map(range.base, &memory);
                gpu.grant(range.base, range.size, READ);
                assert_eq!(ask(gpu, MEMORY_TYPE, range.base), HOST);
            },
        ),
        case(
            "buffer_id_of_another_mapping",
            "memory has a BUFFER_ID of its own, the same at each of its bytes",
            |gpu| {
                let (one, two) = (Two::new(gpu), Two::new(gpu));
                let id = one.ask(BUFFER_ID);
                assert_eq!(ask(gpu, BUFFER_ID, one.range.at(1)), id);
                assert_ne!(two.ask(BUFFER_ID), id);
            },
        ),
        case("range_size_unmapped", UNMAPPED, |gpu| {
            unmapped(gpu, RANGE_SIZE)
        }),
        case("range_start_unmapped", UNMAPPED, |gpu| {
            unmapped(gpu, RANGE_START)
        }),
        case("mapped_unmapped", UNMAPPED, |gpu| unmapped(gpu, MAPPED)),
        case("memory_type_unmapped", UNMAPPED, |gpu| {
            unmapped(gpu, MEMORY_TYPE)
        }),
        case("mapping_size_unmapped", UNMAPPED, |gpu| {
            unmapped(gpu, MAPPING_SIZE)
        }),
        case("access_unmapped", UNMAPPED, |gpu| {
            unmapped(gpu, ACCESS_FLAGS)
        }),
        case("unreserved", UNMAPPED, |gpu| {
            refused(gpu, RANGE_SIZE, UNRESERVED)
        }),
        case("zero", UNMAPPED, |gpu| refused(gpu, MEMORY_TYPE, 0)),
        case(
            "of_the_host",
            "ordinary memory of the process is not known to the driver",
            |gpu| {
                let byte = Box::new(0_u8);
                refused(gpu, MEMORY_TYPE, &raw const *byte as CUdeviceptr);
            },
        ),
        case(
            "attribute_zero",
            "an attribute that does not exist is refused",
            |gpu| {
                let two = Two::new(gpu);
                refused(gpu, CUpointer_attribute(0), two.inside());
            },
        ),
        case(
            "attribute_9999",
            "an attribute that does not exist is refused",
            |gpu| {
                let two = Two::new(gpu);
                refused(gpu, CUpointer_attribute(9999), two.inside());
            },
        ),
        case("after_the_unmap", UNMAPPED, |gpu| {
            let two = Two::new(gpu);
            call!(gpu, cuMemUnmap(two.range.at(1), two.memory.size) => SUCCESS);
            refused(gpu, RANGE_SIZE, two.inside());
        }),
        case("extent_before_and_behind", EXTENT, |gpu| {
            let two = Two::new(gpu);
            assert_eq!(gpu.extent(two.range.at(1) - 1), Err(NOT_FOUND), "before");
            assert_eq!(gpu.extent(two.range.at(3)), Err(NOT_FOUND), "behind");
        }),
        case("extent_without_access", EXTENT, |gpu| {
            let range = gpu.reserve(1);
            let memory = gpu.create(1);
            gpu.map(range.base, &memory);
            assert_eq!(gpu.extent(range.base), Err(NOT_FOUND));
        }),
        case("extent_of_an_ordinary_allocation", EXTENT, |gpu| {
            let mut at = 0;
            call!(gpu, cuMemAlloc_v2(&mut at, gpu.granules(2)) => SUCCESS);
            assert_eq!(gpu.extent(at + 12_345), Ok((at, gpu.granules(2))));
            call!(gpu, cuMemFree_v2(at) => SUCCESS);
            assert_eq!(gpu.extent(at), Err(NOT_FOUND));
        }),
        case("extent_of_nothing", EXTENT, |gpu| {
            assert_eq!(gpu.extent(UNRESERVED), Err(NOT_FOUND));
        }),
        case(
            "extent_by_halves",
            "base and size of an extent can each be left out",
            |gpu| {
                let two = Two::new(gpu);
                let (mut base, mut size) = (0, 0);
                call!(gpu, cuMemGetAddressRange_v2(&mut base, ptr::null_mut(), two.inside()) => SUCCESS);
                call!(gpu, cuMemGetAddressRange_v2(ptr::null_mut(), &mut size, two.inside()) => SUCCESS);
                assert_eq!((base, size), (two.range.at(1), two.memory.size));
            },
        ),
    ],
};

const HANDLE_TYPES: &str = "ALLOWED_HANDLE_TYPES are those the memory was created with";
const RDMA: &str = "IS_GPU_DIRECT_RDMA_CAPABLE is what was asked for at create";
const ACCESS: &str = "ACCESS_FLAGS are the rights of the current context's device";
const UNMAPPED: &str = "of an address at which nothing is mapped no attribute is told";
const EXTENT: &str =
    "an extent is told from a mapping's first byte to its last, of what the current device may touch";

/// A reservation of four granules; at its second, two of them mapped for device 0 to read and write.
struct Two<'g> {
    gpu: &'g Gpu,
    range: Range<'g>,
    memory: Handle<'g>,
}

impl<'g> Two<'g> {
    fn new(gpu: &'g Gpu) -> Self {
        Self::of(gpu, NONE)
    }

    fn of(gpu: &'g Gpu, handle_types: u32) -> Self {
        let range = gpu.reserve(4);
        let memory = gpu.create_with(2, &pinned(device(0), handle_types));
        gpu.map(range.at(1), &memory);
        gpu.grant(range.at(1), memory.size, crate::props::READ_WRITE);
        Two { gpu, range, memory }
    }

    /// An address that is no granule's first.
    fn inside(&self) -> CUdeviceptr {
        self.range.at(2) + 12_345
    }

    #[track_caller]
    fn ask(&self, attribute: CUpointer_attribute) -> u64 {
        ask(self.gpu, attribute, self.inside())
    }
}

/// The driver writes as many bytes as the attribute is wide, none of them wider than this.
#[track_caller]
fn ask(gpu: &Gpu, attribute: CUpointer_attribute, at: CUdeviceptr) -> u64 {
    let mut value = 0_u64;
    call!(gpu, cuPointerGetAttribute((&raw mut value).cast(), attribute, at) => SUCCESS);
    value
}

#[track_caller]
fn refused(gpu: &Gpu, attribute: CUpointer_attribute, at: CUdeviceptr) {
    let mut value = 0xa5a5_u64;
    call!(gpu, cuPointerGetAttribute((&raw mut value).cast(), attribute, at) => INVALID_VALUE);
    assert_eq!(value, 0xa5a5, "something was written");
}

fn unmapped(gpu: &Gpu, attribute: CUpointer_attribute) {
    let two = Two::new(gpu);
    refused(gpu, attribute, two.range.base);
    refused(gpu, attribute, two.range.at(3));
}
