//! L. Platform, accounting.

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::{CUdevice_attribute, CUmemAllocationHandleType, CUresult, Call};
use cuda_vmm::{AllocationProps, HandleTypes, Location, Reservation};

use crate::case::{Case, Machine};
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::sim("a device that manages no virtual memory says so", no_vmm),
    Case::both(
        "memory of a host node, and of one that is not there",
        host_nodes,
    ),
    Case::sim("the host's memory is told from a device's", host_or_device),
    Case::sim("a limit refuses memory although it is free", a_limit),
    Case::both("the books agree with the device", books_and_device),
    Case::both("what was given back is seen to be back", given_back),
];

/// Failure case 140.
fn no_vmm() {
    let vmm = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    let fd = CUmemAllocationHandleType(HandleTypes::POSIX_FD.bits());
    let device = SimDevice::new()
        .attribute(vmm, 0)
        .refuse_create(fd, CUresult::CUDA_ERROR_INVALID_DEVICE);
    let rig = Rig::with(Simulation::builder().device(device));
    assert_eq!(rig.device().capabilities().unwrap().vmm, Some(false));
    let props = rig.props().shareable_as(HandleTypes::POSIX_FD);
    let error = props.create(G).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cuMemCreate (2097152 bytes (2 MiB) on device 0, shareable as POSIX fd) failed with CUDA_ERROR_INVALID_DEVICE (101)"
    );
    drop(props);
    rig.leaves_nothing();
}

/// Failure case 141.
fn host_nodes(on: &Machine) {
    let node = AllocationProps::on_host_numa(&on.driver, 0);
    let size = node.granularity().unwrap().minimum();
    let page = node.create(size).unwrap();
    assert_eq!(page.location(), Location::HostNuma(0));
    page.release().unwrap();
    // Whatever it is that the driver says to a node that is not there, it is an error that names the node.
    let absent = AllocationProps::on_host_numa(&on.driver, 1000);
    let error = absent.create(size).unwrap_err();
    assert!(error.to_string().contains("1000"), "{error}");
}

/// Failure case 142.
fn host_or_device() {
    let kinds = [
        (Location::Device(3), (false, Some(3))),
        (Location::Host, (true, None)),
        (Location::HostNuma(3), (true, None)),
        (Location::Other { kind: 77, id: 3 }, (false, None)),
    ];
    for (location, expected) in kinds {
        assert_eq!(
            (location.is_host(), location.device()),
            expected,
            "{location}"
        );
    }
}

/// Failure case 145: a shim that limits a process.
fn a_limit() {
    let rig = Rig::new();
    let mut kv = rig.reserve(8);
    let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    rig.sim
        .inject(Fault::on(Call::cuMemCreate).code(code).forever())
        .unwrap();
    let error = kv.map(0, 8 * G, &rig.props()).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!(
        error.to_string(),
        "not enough free memory on device 0 for 16777216 bytes (16 MiB)"
    );
    // The other number is to be had from the device.
    assert_eq!(rig.device().free_memory().unwrap(), 139 << 30);
    rig.sim.clear_faults();
    kv.close().unwrap();
    rig.leaves_nothing();
}

/// Failure case 146.
fn books_and_device(on: &Machine) {
    let free = on.free();
    let mut kv = on.reserve(256);
    let mut pages = Vec::new();
    let mut taken = 0;
    for (at, granules) in [(0, 1), (1, 3), (8, 8), (32, 32), (64, 128)] {
        kv.map(at * on.g, granules * on.g, &on.props).unwrap();
        pages.push(on.props.create(granules * on.g).unwrap());
        taken += 2 * granules * on.g;
        on.returned(free - taken);
    }
    let created: usize = pages.iter().map(|page| page.size()).sum();
    assert_eq!(kv.mapped_bytes() + created, taken);
    // A mirror takes no memory, and reserving takes none.
    kv.map_existing(192 * on.g, &pages[2]).unwrap();
    let large = Reservation::builder(1 << 40).reserve(&on.driver).unwrap();
    on.returned(free - taken);
    assert_eq!(kv.mapped_bytes() + created, taken + pages[2].size());
    large.close().unwrap();
    kv.close().unwrap();
    on.returned(free - created);
}

/// Failure case 147, as far as there is no sleep yet: an unmap that says Ok has given back what it was to give back.
fn given_back(on: &Machine) {
    let size = 64 * on.g;
    let mut kv = on.reserve(128);
    let page = on.props.create(size).unwrap();
    kv.map(0, size, &on.props).unwrap();
    kv.map_existing(size, &page).unwrap();
    let free = on.free();
    kv.unmap_range(0, size).unwrap();
    on.returned(free + size);
    // The caller still holds this one: nothing comes back, and the books do not say so.
    kv.unmap_range(size, size).unwrap();
    on.returned(free + size);
    assert_eq!((kv.mapped_bytes(), page.size()), (0, size));
    page.release().unwrap();
    on.returned(free + 2 * size);
    kv.close().unwrap();
}
