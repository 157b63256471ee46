//! What can be configured, and what is refused.

use cuda_vmm::sim::{ConfigError, SimDevice, Simulation, SimulationBuilder};
use cuda_vmm::sys::*;

use crate::rig::*;

fn refused(builder: SimulationBuilder) -> ConfigError {
    builder.build().expect_err("nonsense was built")
}

fn refused_device(device: SimDevice) -> ConfigError {
    refused(Simulation::builder().device(device))
}

#[test]
fn nonsense_is_refused_with_its_numbers() {
    let device = SimDevice::new;
    assert_eq!(
        refused_device(device().granularity(3 << 20, 3 << 20)),
        ConfigError::Granularity {
            ordinal: 0,
            bytes: 3 << 20
        }
    );
    assert_eq!(
        refused_device(device().granularity(2048, G)),
        ConfigError::Granularity {
            ordinal: 0,
            bytes: 2048
        }
    );
    assert_eq!(
        refused_device(device().granularity(2 * G, G)),
        ConfigError::Recommended {
            ordinal: 0,
            minimum: 2 * G,
            recommended: G
        }
    );
    assert_eq!(
        refused_device(device().memory(G as u64)),
        ConfigError::Memory {
            ordinal: 0,
            bytes: G as u64,
            granule: G
        }
    );
    assert_eq!(
        refused_device(device().name("a\0b")),
        ConfigError::Name { ordinal: 0 }
    );
    let types = CUmemAllocationHandleType(1);
    assert_eq!(
        refused_device(device().refuse_create(types, CUresult::CUDA_SUCCESS)),
        ConfigError::Refusal { ordinal: 0 }
    );
    assert_eq!(
        refused(Simulation::builder().address_space(4096)),
        ConfigError::AddressSpace {
            bytes: 4096,
            granule: G
        }
    );
    assert_eq!(
        refused(Simulation::builder().driver_version(0)),
        ConfigError::DriverVersion(0)
    );
    assert_eq!(
        refused(Simulation::builder().no_peer(1, 0)),
        ConfigError::NoSuchPeer {
            a: 0,
            b: 1,
            devices: 1
        }
    );
    assert_eq!(
        refused(Simulation::builder().no_peer(0, 0)),
        ConfigError::PeerOfItself(0)
    );
    let twins = Simulation::builder()
        .device(device().uuid([7; 16]))
        .device(device())
        .device(device().uuid([7; 16]));
    assert_eq!(
        refused(twins),
        ConfigError::DuplicateUuid {
            first: 0,
            second: 2
        }
    );
}

#[test]
fn a_refusal_says_what_to_change() {
    let text = refused(Simulation::builder().no_peer(0, 3)).to_string();
    assert_eq!(
        text,
        "no_peer(0, 3): there is no device 3, ordinals run from 0 to 0"
    );
}

/// Each refusal, word for word.
#[test]
fn every_refusal_says_why() {
    let device = SimDevice::new;
    let types = CUmemAllocationHandleType(1);
    let none = CUmemAllocationHandleType(0);
    let failed = CUresult::CUDA_ERROR_UNKNOWN;
    let of_device = [
        (
            device().granularity(0, G),
            "device 0: a granularity of 0 bytes is not a power of two from 4096 bytes (4 KiB) to 1099511627776 bytes (1 TiB)",
        ),
        (
            device().granularity(G, 3 * G),
            "device 0: a granularity of 6291456 bytes (6 MiB) is not a power of two from 4096 bytes (4 KiB) to 1099511627776 bytes (1 TiB)",
        ),
        (
            device().granularity(2 * G, G),
            "device 0: the recommended granularity, 2097152 bytes (2 MiB), is below the minimum, 4194304 bytes (4 MiB): give them in the order (minimum, recommended)",
        ),
        (
            device().memory(0),
            "device 0: of 0 bytes of memory nothing could be created: give it more than one granule, which is 2097152 bytes (2 MiB)",
        ),
        (
            device().name("\0"),
            "device 0: the name contains a zero byte, at which every C string ends",
        ),
        (
            device().refuse_create(types, CUresult::CUDA_SUCCESS),
            "device 0: a refusal must name at least one handle type and a code other than CUDA_SUCCESS",
        ),
        (
            device().refuse_export(none, failed),
            "device 0: a refusal must name at least one handle type and a code other than CUDA_SUCCESS",
        ),
    ];
    for (device, text) in of_device {
        assert_eq!(refused_device(device).to_string(), text);
    }
    let builder = Simulation::builder;
    let of_driver = [
        (
            builder().devices([]),
            "a driver without devices has nothing to simulate: add one with device()",
        ),
        (
            builder().device(device()).devices([]),
            "a driver without devices has nothing to simulate: add one with device()",
        ),
        (
            builder().devices([device().uuid([7; 16]), device().uuid([7; 16])]),
            "devices 0 and 1 have the same UUID: an imported allocation could not be placed",
        ),
        (
            builder().address_space(G as u64 - 1),
            "an address space of 2097151 bytes is below one granule, which is 2097152 bytes (2 MiB): nothing could be reserved",
        ),
        (
            builder().devices(vec![device(); 65]),
            "65 devices: a driver has at most 64",
        ),
        (
            builder().host_numa_nodes(u32::MAX),
            "4294967295 NUMA nodes: a host has at most 1024",
        ),
        (
            builder().host_numa_nodes(1025),
            "1025 NUMA nodes: a host has at most 1024",
        ),
        (
            builder().without(Call::cuInit),
            "without(cuInit): no driver lacks it, and nothing could be called",
        ),
        (
            builder().driver_version(u32::MAX),
            "driver version 4294967295: give 1000 x major + 10 x minor, as in 13000",
        ),
        (
            builder().driver_version(13),
            "driver version 13: give 1000 x major + 10 x minor, as in 13000",
        ),
        (
            builder().driver_version(12_004),
            "driver version 12004: give 1000 x major + 10 x minor, as in 13000",
        ),
        (
            builder().no_peer(0, 0),
            "no_peer(0, 0): a device always reaches its own memory",
        ),
        (
            builder().no_peer(7, 0),
            "no_peer(0, 7): there is no device 7, ordinals run from 0 to 0",
        ),
    ];
    for (builder, text) in of_driver {
        assert_eq!(refused(builder).to_string(), text);
    }
}

#[test]
fn enormous_numbers() {
    let device = SimDevice::new;
    assert_eq!(
        refused_device(device().granularity(1 << 63, 1 << 63)),
        ConfigError::Granularity {
            ordinal: 0,
            bytes: 1 << 63
        }
    );
    let builder = Simulation::builder;
    let too_much = [
        (
            builder().device(device().memory(u64::MAX)),
            "device memory of 18446744073709551615 bytes: nothing has more than 144115188075855872 bytes (131072 TiB)",
        ),
        (
            builder().host_memory(u64::MAX),
            "host memory of 18446744073709551615 bytes: nothing has more than 144115188075855872 bytes (131072 TiB)",
        ),
        (
            builder().address_space(1 << 58),
            "an address space of 288230376151711744 bytes (262144 TiB): nothing has more than 144115188075855872 bytes (131072 TiB)",
        ),
    ];
    for (builder, text) in too_much {
        assert_eq!(refused(builder).to_string(), text);
    }

    // The most that is taken is more than can be had.
    let granule = 1 << 40;
    let device = device().memory(1 << 57).granularity(granule, granule);
    let builder = builder()
        .device(device)
        .address_space(1 << 57)
        .host_memory(1 << 57)
        .host_numa_nodes(1024);
    for builder in [builder.clone(), builder.ledger_only()] {
        let rig = Rig::with(builder);
        let before = rig.snapshot();
        for size in [G, 1 << 63, usize::MAX] {
            assert!(matches!(rig.reserve(size), Err(INVALID | OOM)), "{size}");
            assert!(matches!(rig.create(size), Err(INVALID | OOM)), "{size}");
        }
        assert_eq!(rig.create((1 << 57) + granule), Err(OOM));
        assert_eq!(rig.reserve((1 << 57) + granule), Err(OOM));
        assert_eq!(rig.snapshot(), before);
    }
}

/// The least that is taken is enough for one allocation, and no more.
#[test]
fn the_least_memory_is_enough_for_one() {
    let least = SimDevice::new().memory(G as u64 + 1);
    let rig = Rig::with(Simulation::builder().device(least));
    let handle = rig.create(G).unwrap();
    assert_eq!(rig.create(G), Err(OOM));
    rig.release(handle).unwrap();
}

#[test]
fn as_many_devices_as_there_can_be() {
    let rig = Rig::with(Simulation::builder().devices(vec![SimDevice::new(); 64]));
    let mut number = 0;
    check(unsafe { rig.0.cuDeviceGetCount(&mut number) }).unwrap();
    assert_eq!(number, 64);
}

#[test]
fn devices_are_as_configured() {
    let builder = Simulation::builder()
        .device(SimDevice::new().name("first"))
        .device(
            SimDevice::new()
                .name("second")
                .memory(8 * G as u64)
                .granularity(4096, G)
                .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0),
        )
        .driver_version(12_020)
        .no_peer(0, 1);
    let sim = Rig::with(builder).0;
    let (mut number, mut bytes) = (0, 0);
    check(unsafe { sim.cuDriverGetVersion(&mut number) }).unwrap();
    assert_eq!(number, 12_020);
    check(unsafe { sim.cuDeviceGetCount(&mut number) }).unwrap();
    assert_eq!(number, 2);
    check(unsafe { sim.cuDeviceTotalMem_v2(&mut bytes, 1) }).unwrap();
    assert_eq!(bytes, 8 * G);
    check(unsafe { sim.cuDeviceCanAccessPeer(&mut number, 1, 0) }).unwrap();
    assert_eq!(number, 0);
    let dma_buf = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED;
    for (device, supported) in [(0, 1), (1, 0)] {
        check(unsafe { sim.cuDeviceGetAttribute(&mut number, dma_buf, device) }).unwrap();
        assert_eq!(number, supported);
    }
    let mut name = [0x55; 4];
    check(unsafe { sim.cuDeviceGetName(name.as_mut_ptr(), 4, 1) }).unwrap();
    assert_eq!(name.map(|byte| byte as u8), *b"sec\0");
}

#[test]
fn a_call_left_out_is_not_found() {
    let rig = Rig::with(Simulation::builder().without(Call::cuMemRetainAllocationHandle));
    assert!(!rig.0.provides(Call::cuMemRetainAllocationHandle));
    assert!(rig.0.provides(Call::cuMemMap));
    let mut handle = 0;
    let address = std::ptr::null_mut();
    let code = unsafe { rig.0.cuMemRetainAllocationHandle(&mut handle, address) };
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND);
}

#[test]
fn little_address_space_is_out_of_memory_at_the_reserve() {
    let rig = Rig::with(Simulation::builder().address_space(4 * G as u64));
    let first = rig.reserve(3 * G).unwrap();
    assert_eq!(rig.reserve(2 * G), Err(OOM));
    rig.address_free(first, 3 * G).unwrap();
    rig.reserve(4 * G).unwrap();
}

#[test]
fn refused_handle_types() {
    let (posix, fabric) = (CUmemAllocationHandleType(1), CUmemAllocationHandleType(8));
    let not_ready = CUresult::CUDA_ERROR_SYSTEM_NOT_READY;
    let device = SimDevice::new()
        .refuse_create(fabric, not_ready)
        .refuse_export(posix, INVALID);
    let rig = Rig::with(Simulation::builder().device(device).imex_channel(true));
    assert_eq!(rig.create_with(G, &props(9)), Err(not_ready));
    let handle = rig.create(G).unwrap();
    assert_eq!(rig.export(handle).err(), Some(INVALID));
}

#[test]
fn devices_that_are_no_peers_get_no_access() {
    let builder = Simulation::builder()
        .device(SimDevice::new())
        .device(SimDevice::new())
        .no_peer(0, 1);
    let rig = Rig::with(builder);
    let (address, _) = rig.block(1);
    let before = rig.snapshot();
    let refused = rig.access_of(address, G, &[grant(0, 1), grant(1, 3)]);
    assert_eq!(refused, Err(CUresult::CUDA_ERROR_INVALID_DEVICE));
    assert_eq!(rig.snapshot(), before);
}

#[test]
fn a_granularity_is_the_devices_own() {
    let coarse = SimDevice::new();
    let fine = SimDevice::new().granularity(64 << 10, G);
    let rig = Rig::with(Simulation::builder().device(coarse).device(fine));
    let size = 64 << 10;
    let mut on_fine = props(0);
    on_fine.location.id = 1;
    assert_eq!(rig.create_with(size, &props(0)), Err(INVALID));
    let handle = rig.create_with(size, &on_fine).unwrap();
    let address = rig.reserve(3 * size).unwrap();
    rig.map(address + size as u64, size, handle).unwrap();
    rig.access(address + size as u64, size, 3).unwrap();
    assert_eq!(rig.map(address + 4096, size, handle), Err(INVALID));
    for (device, option, answer) in [(0, 0, G), (1, 0, size), (1, 1, G)] {
        let mut granularity = 0;
        on_fine.location.id = device;
        let option = CUmemAllocationGranularity_flags(option);
        check(unsafe {
            rig.0
                .cuMemGetAllocationGranularity(&mut granularity, &on_fine, option)
        })
        .unwrap();
        assert_eq!(granularity, answer);
    }
}
