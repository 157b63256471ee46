//! Drivers and devices: found, told apart, asked; and drivers that are none.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use std::sync::Arc;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::{CUdevice_attribute, CUresult, Call, LoadError};
use cuda_vmm::{Code, Driver, Error};

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "support/rig.rs"]
mod rig;

use rig::{same, says, Rig};

#[test]
fn what_a_driver_says_of_itself() {
    let rig = Rig::with(
        Simulation::builder()
            .device(SimDevice::new())
            .device(SimDevice::new())
            .driver_version(12_040),
    );
    assert_eq!(rig.driver.version(), 12_040);
    assert_eq!(rig.driver.device_count(), 2);
    assert_eq!(rig.driver.path(), None);
    assert_eq!(rig.driver.quarantined(), 0);
    assert_eq!(rig.driver.reclaim().unwrap(), 0);
    assert_eq!(
        format!("{:?}", rig.driver),
        "Driver { path: None, version: 12040, device_count: 2, .. }"
    );
}

#[test]
fn calls_through_an_implementation_of_ones_own() {
    let sim = Simulation::new();
    let driver = Driver::from_calls(Arc::new(sim.clone())).unwrap();
    assert_eq!(driver.device_count(), 1);
    let mut count = 0;
    let asked = unsafe { driver.calls_raw().cuDeviceGetCount(&mut count) };
    assert_eq!((asked, count), (CUresult::CUDA_SUCCESS, 1));
}

#[test]
fn devices_in_order() {
    let rig = Rig::of(3);
    let ordinals: Vec<_> = rig
        .driver
        .devices()
        .map(|device| device.unwrap().ordinal())
        .collect();
    assert_eq!(ordinals, [0, 1, 2]);
}

#[test]
fn a_device_that_does_not_exist() {
    let rig = Rig::new();
    let before = rig.sim.calls();
    says(
        &rig.driver.device(1).unwrap_err(),
        &Error::NoSuchDevice {
            ordinal: 1,
            count: 1,
        },
        "there is no device 1: the driver has 1, number 0",
    );
    let negative = -1_i32 as u32;
    says(
        &rig.driver.device(negative).unwrap_err(),
        &Error::NoSuchDevice {
            ordinal: negative,
            count: 1,
        },
        "there is no device 4294967295: the driver has 1, number 0",
    );
    assert_eq!(rig.sim.calls(), before);
}

#[test]
fn by_uuid_however_they_are_numbered() {
    let (a, b) = ([0xaa; 16], [0xbb; 16]);
    let rig = Rig::with(
        Simulation::builder()
            .device(SimDevice::new().uuid(b))
            .device(SimDevice::new().uuid(a)),
    );
    assert_eq!(rig.driver.device_by_uuid(a).unwrap().ordinal(), 1);
    assert_eq!(rig.driver.device_by_uuid(b).unwrap().ordinal(), 0);
    assert_eq!(rig.devices[1].uuid().unwrap(), a);
    let uuid = *b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef";
    says(
        &rig.driver.device_by_uuid(uuid).unwrap_err(),
        &Error::NoSuchUuid { uuid },
        "no device has the UUID GPU-01234567-89ab-cdef-0123-456789abcdef",
    );
}

#[test]
fn what_a_device_says_of_itself() {
    let rig = Rig::with(
        Simulation::builder().device(SimDevice::new().name("a small one").memory(1 << 30)),
    );
    let device = rig.device();
    assert_eq!(device.name().unwrap(), "a small one");
    assert_eq!(device.total_memory().unwrap(), 1 << 30);
    assert_eq!(device.free_memory().unwrap(), 1 << 30);
    let page = rig.props().create(rig::G).unwrap();
    assert_eq!(device.free_memory().unwrap(), (1 << 30) - rig::G);
    drop(page);
    assert_eq!(device.free_memory().unwrap(), 1 << 30);
    rig.leaves_nothing();
}

#[test]
fn capabilities_are_what_the_attributes_say() {
    use CUdevice_attribute as A;
    let rig = Rig::with(
        Simulation::builder().device(
            SimDevice::new()
                .attribute(
                    A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                    0,
                )
                .attribute(A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1),
        ),
    );
    let can = rig.device().capabilities().unwrap();
    assert_eq!((can.vmm, can.posix_fd), (Some(true), Some(true)));
    assert_eq!(can.rdma, Some(false));
    assert_eq!(can.host_numa_node, None, "-1 is no node");
}

#[test]
fn an_attribute_that_an_older_driver_does_not_know() {
    let rig = Rig::new();
    let unknown = Fault::on(Call::cuDeviceGetAttribute)
        .nth(3)
        .code(CUresult::CUDA_ERROR_INVALID_VALUE);
    rig.sim.inject(unknown).unwrap();
    let can = rig.device().capabilities().unwrap();
    assert_eq!(can.fabric, None);
    assert_eq!((can.posix_fd, can.rdma), (Some(true), Some(true)));
    let error = rig
        .device()
        .attribute(CUdevice_attribute(9999))
        .unwrap_err();
    assert_eq!(error.code(), Some(Code::ERROR_INVALID_VALUE));
}

#[test]
fn a_current_context_and_what_was_before() {
    let rig = Rig::of(2);
    let depth = || rig.sim.snapshot().context_depth;
    {
        let outer = rig.devices[0].make_current().unwrap();
        let inner = rig.devices[1].make_current().unwrap();
        assert_ne!(outer.raw(), inner.raw());
        assert_eq!(depth(), 2);
    }
    assert_eq!(depth(), 0);
    // Retained once, however often it is used, and given back with the driver.
    drop(rig.devices[0].make_current().unwrap());
    assert_eq!(rig.sim.snapshot().retained_contexts, [1, 1]);
    rig.leaves_nothing();
}

#[test]
fn no_library_at_the_path() {
    let error = Driver::load_from("/nonexistent/libcuda.so.1").unwrap_err();
    let Error::DriverNotFound { tried } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(tried.len(), 1);
    assert_eq!(tried[0].file, "/nonexistent/libcuda.so.1");
    let expected = LoadError::NotFound {
        tried: tried.clone(),
    };
    assert_eq!(error.to_string(), expected.to_string());
}

#[test]
fn a_driver_that_does_not_start() {
    for (at, call) in [
        Call::cuInit,
        Call::cuDriverGetVersion,
        Call::cuDeviceGetCount,
    ]
    .into_iter()
    .enumerate()
    {
        let sim = Simulation::new();
        let fault = Fault::any_nth(at as u64 + 1).code(CUresult::CUDA_ERROR_NO_DEVICE);
        sim.inject(fault).unwrap();
        let error = Driver::simulated(&sim).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{call} failed with CUDA_ERROR_NO_DEVICE (100)")
        );
        assert_eq!(sim.calls(), at as u64 + 1);
    }
}

#[test]
fn a_call_that_an_older_driver_lacks() {
    let call = Call::cuDeviceGetUuid_v2;
    let rig = Rig::with(Simulation::builder().without(call));
    same(
        &rig.device().uuid().unwrap_err(),
        &Error::MissingCall { call },
    );
    let by_uuid = rig.driver.device_by_uuid([0; 16]).unwrap_err();
    same(&by_uuid, &Error::MissingCall { call });
}
