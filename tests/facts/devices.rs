//! What is asked of devices, and of devices that do not exist.

use std::ffi::c_char;

use cuda_vmm::sys::{CUdevice_attribute, CUuuid};

use crate::case::{apart, case, Need, Section};
use crate::codes::call;
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::support::which::Which;

pub const SECTION: Section = Section {
    name: "devices",
    cases: &[
        apart(
            "before_init",
            "devices cannot be asked for before cuInit",
            before_init,
        ),
        apart(
            "init_twice",
            "cuInit can be called again; flags are refused",
            |which| {
                let driver = Driver::open(which, 1);
                call!(driver, cuInit(1) => INVALID_VALUE);
                call!(driver, cuInit(0) => SUCCESS);
                call!(driver, cuInit(0) => SUCCESS);
                call!(driver, cuInit(1) => INVALID_VALUE);
            },
        ),
        case("get_absent", ABSENT, |gpu| {
            let mut device = 7;
            call!(gpu, cuDeviceGet(&mut device, gpu.absent_device()) => INVALID_DEVICE);
            call!(gpu, cuDeviceGet(&mut device, 99) => INVALID_DEVICE);
            assert_eq!(device, 7, "something was written");
        }),
        case("get_minus_one", ABSENT, |gpu| {
            let mut device = 7;
            call!(gpu, cuDeviceGet(&mut device, -1) => INVALID_DEVICE);
            assert_eq!(device, 7, "something was written");
        }),
        case("get", "a device's number is its ordinal", |gpu| {
            let mut device = 7;
            call!(gpu, cuDeviceGet(&mut device, 0) => SUCCESS);
            assert_eq!(device, 0);
        }),
        case("name_of_an_absent_device", ABSENT, |gpu| {
            let mut name = [0x2a as c_char; 8];
            call!(gpu, cuDeviceGetName(name.as_mut_ptr(), 8, gpu.absent_device()) => INVALID_DEVICE);
            call!(gpu, cuDeviceGetName(name.as_mut_ptr(), 8, -1) => INVALID_DEVICE);
            assert_eq!(name, [0x2a; 8]);
        }),
        case("name_in_five_bytes", NAME, |gpu| {
            named(gpu, 5, b"NVID\0***")
        }),
        case("name_in_one_byte", NAME, |gpu| named(gpu, 1, b"\0*******")),
        case("name_in_no_bytes", NO_ROOM, |gpu| unnamed(gpu, 0)).needs(Need::Simulated(OVERFLOWS)),
        case("name_in_less_than_no_bytes", NO_ROOM, |gpu| {
            unnamed(gpu, -1)
        })
        .needs(Need::Simulated(OVERFLOWS)),
        case(
            "uuid",
            "a device's UUID is always the same, and not zero",
            |gpu| {
                let uuid = || {
                    let mut uuid = CUuuid { bytes: [0; 16] };
                    call!(gpu, cuDeviceGetUuid_v2(&mut uuid, 0) => SUCCESS);
                    uuid.bytes
                };
                assert_ne!(uuid(), [0; 16]);
                assert_eq!(uuid(), uuid());
            },
        ),
        case("uuid_of_an_absent_device", ABSENT, |gpu| {
            let mut uuid = CUuuid { bytes: [0; 16] };
            call!(gpu, cuDeviceGetUuid_v2(&mut uuid, gpu.absent_device()) => INVALID_DEVICE);
            assert_eq!(uuid.bytes, [0; 16]);
        }),
        case(
            "total_memory",
            "a device's memory is the total of the free bytes' call",
            |gpu| {
                let (mut whole, mut free, mut total) = (0, 0, 0);
                call!(gpu, cuDeviceTotalMem_v2(&mut whole, 0) => SUCCESS);
                call!(gpu, cuMemGetInfo_v2(&mut free, &mut total) => SUCCESS);
                assert_eq!(whole, total);
                assert!(0 < free && free <= total, "{free} of {total} bytes");
            },
        ),
        case("total_memory_of_an_absent_device", NO_MEMORY, |gpu| {
            let mut bytes = 7;
            call!(gpu, cuDeviceTotalMem_v2(&mut bytes, gpu.absent_device()) => INVALID_DEVICE);
            call!(gpu, cuDeviceTotalMem_v2(&mut bytes, -1) => INVALID_DEVICE);
            assert_eq!(bytes, 0);
        }),
        case("attribute_zero", ATTRIBUTES, |gpu| {
            unknown_attribute(gpu, 0)
        }),
        case("attribute_100_000", ATTRIBUTES, |gpu| {
            unknown_attribute(gpu, 100_000)
        }),
        case("attribute_of_device_minus_one", ABSENT, |gpu| {
            let known = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
            let mut value = 7;
            call!(gpu, cuDeviceGetAttribute(&mut value, known, -1) => INVALID_DEVICE);
            call!(gpu, cuDeviceGetAttribute(&mut value, known, gpu.absent_device()) => INVALID_DEVICE);
            assert_eq!(value, 7);
        }),
        case(
            "attributes_of_memory_management",
            "the device manages virtual memory, shares it and has host memory",
            |gpu| {
                type A = CUdevice_attribute;
                for attribute in [
                    A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                    A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                    A::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
                    A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                    A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                    A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                ] {
                    let mut value = 7;
                    call!(gpu, cuDeviceGetAttribute(&mut value, attribute, 0) => SUCCESS);
                    assert_eq!(value, 1, "{attribute:?}");
                }
            },
        ),
        case("peer_of_itself", "a device is no peer of its own", |gpu| {
            let mut can = 7;
            call!(gpu, cuDeviceCanAccessPeer(&mut can, 0, 0) => SUCCESS);
            assert_eq!(can, 0);
        }),
        case("peer_absent", ABSENT, |gpu| {
            let mut can = 7;
            call!(gpu, cuDeviceCanAccessPeer(&mut can, 0, gpu.absent_device()) => INVALID_DEVICE);
            call!(gpu, cuDeviceCanAccessPeer(&mut can, -1, 0) => INVALID_DEVICE);
        }),
        case(
            "peers",
            "two devices of one machine can reach each other's memory",
            |gpu| {
                let mut can = 7;
                call!(gpu, cuDeviceCanAccessPeer(&mut can, 0, 1) => SUCCESS);
                assert_eq!(can, 1);
            },
        )
        .needs(Need::TwoDevices),
    ],
};

const ABSENT: &str = "a device that does not exist is INVALID_DEVICE, and nothing is written";
const NAME: &str = "a name is cut to the room there is, its ending zero included";
const NO_MEMORY: &str = "a device that does not exist is INVALID_DEVICE, and 0 bytes are written";
const NO_ROOM: &str =
    "the driver takes a room of 0 bytes or less for a boundless one: the simulated one refuses it";
const OVERFLOWS: &str = "writes outside the room, which may end the process";
const ATTRIBUTES: &str = "an attribute that does not exist is refused";

fn before_init(which: Which) {
    let driver = Driver::open(which, 1);
    let (mut version, mut number, mut bytes) = (0, 0, 0);
    call!(driver, cuDriverGetVersion(&mut version) => SUCCESS);
    assert!(version >= 11_000, "version {version}");
    call!(driver, cuDeviceGetCount(&mut number) => NOT_INITIALIZED);
    call!(driver, cuDeviceGet(&mut number, 0) => NOT_INITIALIZED);
    call!(driver, cuDeviceTotalMem_v2(&mut bytes, 0) => NOT_INITIALIZED);
    call!(driver, cuMemGetInfo_v2(&mut bytes, std::ptr::null_mut()) => NOT_INITIALIZED);
    let mut context = std::ptr::null_mut();
    call!(driver, cuDevicePrimaryCtxRetain(&mut context, 0) => NOT_INITIALIZED);
    call!(driver, cuCtxGetCurrent(&mut context) => NOT_INITIALIZED);
    call!(driver, cuCtxSynchronize() => NOT_INITIALIZED);
}

/// The name is written into so many bytes, and what lies behind them is left alone.
fn named(gpu: &Gpu, room: i32, wanted: &[u8; 8]) {
    let mut name = [b'*' as c_char; 8];
    call!(gpu, cuDeviceGetName(name.as_mut_ptr(), room, 0) => SUCCESS);
    assert_eq!(name.map(|byte| byte as u8), *wanted);
}

/// No name is written into such a room.
fn unnamed(gpu: &Gpu, room: i32) {
    let mut name = [b'*' as c_char; 8];
    call!(gpu, cuDeviceGetName(name.as_mut_ptr(), room, 0) => INVALID_VALUE);
    assert_eq!(name, [b'*' as c_char; 8]);
}

fn unknown_attribute(gpu: &Gpu, number: u32) {
    let mut value = 7;
    call!(gpu, cuDeviceGetAttribute(&mut value, CUdevice_attribute(number), 0) => INVALID_VALUE);
    assert_eq!(value, 7, "something was written");
}
