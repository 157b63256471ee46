//! Allocations and properties: created, retained, taken over, given away, released.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::{CUresult, Call, DriverCalls};
use cuda_vmm::{
    Access, Allocation, AllocationProps, Code, Error, HandleTypes, Location, Origin, What,
};

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "support/rig.rs"]
mod rig;

use rig::{same, says, Rig, G};

/// Runs what must be refused without a driver call.
fn refused<T>(rig: &Rig, run: impl FnOnce() -> Result<T, Error>) -> Error {
    let before = (rig.sim.calls(), rig.sim.snapshot());
    let Err(error) = run() else {
        panic!("it was not refused");
    };
    assert_eq!((rig.sim.calls(), rig.sim.snapshot()), before, "{error}");
    error
}

#[test]
fn a_created_one_says_what_it_is() {
    let rig = Rig::new();
    let page = rig.props().create(3 * G).unwrap();
    assert_eq!(page.size(), 3 * G);
    assert_eq!(page.location(), Location::Device(0));
    assert_eq!(page.origin(), Origin::Created);
    assert_eq!(page.to_string(), "6291456 bytes (6 MiB) on device 0");
    let snapshot = rig.sim.snapshot();
    assert_eq!(snapshot.handles[0].handle, page.raw());
    assert_eq!(snapshot.handles[0].count, 1);
    page.release().unwrap();
    rig.leaves_nothing();
}

#[test]
fn dropping_releases_once() {
    let rig = Rig::new();
    drop(rig.props().create(G).unwrap());
    assert_eq!(rig.sim.calls_of(Call::cuMemRelease), 1);
    rig.leaves_nothing();
}

#[test]
fn sizes_that_cannot_be_had() {
    let rig = Rig::new();
    let props = rig.props();
    props.granularity().unwrap();
    says(
        &refused(&rig, || props.create(0)),
        &Error::ZeroSize {
            what: What::AllocationSize,
        },
        "allocation size is zero: give a size in bytes",
    );
    says(
        &refused(&rig, || props.create(6912)),
        &Error::Misaligned {
            what: What::AllocationSize,
            value: 6912,
            granularity: G,
        },
        "allocation size 6912 is not a multiple of the granularity 2097152 bytes (2 MiB): \
         the next multiple is 2097152, the one before 0",
    );
    let error = props.create(1 << 40).unwrap_err();
    says(
        &error,
        &Error::OutOfMemory {
            size: 1 << 40,
            location: Location::Device(0),
        },
        "not enough free memory on device 0 for 1099511627776 bytes (1 TiB)",
    );
    assert!(rig.sim.snapshot().is_empty());
}

#[test]
fn a_granularity_is_asked_once_for_each_set_of_properties() {
    let rig = Rig::with(Simulation::builder().device(SimDevice::new().granularity(G, 16 * G)));
    let asked = || rig.sim.calls_of(Call::cuMemGetAllocationGranularity);
    let granularity = rig.props().granularity().unwrap();
    assert_eq!(
        (granularity.minimum(), granularity.recommended()),
        (G, 16 * G)
    );
    assert_eq!(asked(), 2, "the minimum and the recommended");
    rig.props().create(G).unwrap();
    rig.props().granularity().unwrap();
    assert_eq!(asked(), 2);
    rig.props().rdma(true).granularity().unwrap();
    assert_eq!(asked(), 4);

    assert_eq!(granularity.round_up(0), Some(0));
    assert_eq!(granularity.round_up(1), Some(16 * G));
    assert_eq!(granularity.round_up(16 * G), Some(16 * G));
    assert_eq!(granularity.round_up(usize::MAX), None);
}

#[test]
fn what_was_asked_for_and_what_was_granted() {
    let rig = Rig::new();
    let props = rig
        .props()
        .shareable_as(HandleTypes::POSIX_FD)
        .rdma(true)
        .compression(true);
    assert_eq!(props.handle_types(), HandleTypes::POSIX_FD);
    assert!(props.is_rdma() && props.is_compressible());
    let granted = props.create(G).unwrap().granted().unwrap();
    assert_eq!(granted.location(), Location::Device(0));
    assert_eq!(granted.handle_types(), HandleTypes::POSIX_FD);
    assert!(granted.is_rdma());
}

#[test]
fn memory_of_the_host() {
    let rig = Rig::new();
    let anywhere = AllocationProps::on_host(&rig.driver).create(G).unwrap();
    assert_eq!(anywhere.location(), Location::Host);
    let node = AllocationProps::on_host_numa(&rig.driver, 0);
    assert_eq!(node.create(G).unwrap().location(), Location::HostNuma(0));
    let nowhere = AllocationProps::on_host_numa(&rig.driver, 9).create(G);
    let error = nowhere.unwrap_err();
    assert!(
        matches!(error, Error::Driver(ref failure) if failure.call == Call::cuMemCreate),
        "{error:?}"
    );
}

#[test]
fn retained_from_any_address_of_a_mapping() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    kv.map_releasing(G, 2 * G, &rig.props()).unwrap();
    kv.write(G, b"found").unwrap();
    let address = kv.base() + 2 * G as u64 + 123;
    let page = Allocation::retain(&rig.driver, address).unwrap();
    assert_eq!((page.size(), page.location()), (2 * G, Location::Device(0)));
    assert_eq!(page.origin(), Origin::Retained);
    // It outlives the mapping, and the reservation.
    kv.close().unwrap();
    let mut again = rig.reserve(2);
    again.map_existing(0, &page).unwrap();
    let mut bytes = [0; 5];
    again.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"found");
    again.close().unwrap();
    page.release().unwrap();
    rig.leaves_nothing();
}

#[test]
fn retained_where_its_device_has_no_access() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props()).unwrap();
    kv.set_access(0, G, Location::Device(0), Access::None)
        .unwrap();
    let before = rig.sim.snapshot();
    // The driver tells no size of such a mapping. The count that was taken is given back.
    let error = Allocation::retain(&rig.driver, kv.base()).unwrap_err();
    assert_eq!(error.code(), Some(Code::ERROR_NOT_FOUND));
    let mut after = rig.sim.snapshot();
    after.retained_contexts = before.retained_contexts.clone();
    assert_eq!(after, before);
}

#[test]
fn nothing_to_retain() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    kv.map(0, G, &rig.props()).unwrap();
    let before = rig.sim.snapshot();
    let hole = kv.base() + G as u64;
    for address in [hole, 0, 0x1234] {
        let error = Allocation::retain(&rig.driver, address).unwrap_err();
        assert_eq!(error.code(), Some(Code::ERROR_INVALID_VALUE));
        assert_eq!(
            error.to_string(),
            format!("cuMemRetainAllocationHandle (0 bytes at {address:#x}) failed with CUDA_ERROR_INVALID_VALUE (1)")
        );
        assert!(!rig.driver.is_vmm(address).unwrap());
        assert_eq!(rig.sim.snapshot(), before);
    }
    assert!(rig.driver.is_vmm(kv.base() + 5).unwrap());
    assert_eq!(rig.sim.snapshot(), before);
}

#[test]
fn ordinary_memory_is_no_vmm() {
    let rig = Rig::new();
    let guard = rig.device().make_current().unwrap();
    let mut address = 0;
    let made = unsafe { rig.sim.cuMemAlloc_v2(&mut address, G) };
    assert_eq!(made, CUresult::CUDA_SUCCESS);
    assert!(!rig.driver.is_vmm(address).unwrap());
    let freed = unsafe { rig.sim.cuMemFree_v2(address) };
    assert_eq!(freed, CUresult::CUDA_SUCCESS);
    drop(guard);
    rig.leaves_nothing();
}

#[test]
fn a_driver_without_retain() {
    let retain = Call::cuMemRetainAllocationHandle;
    let rig = Rig::with(Simulation::builder().without(retain));
    let expected = Error::MissingCall { call: retain };
    let text = "this driver has no cuMemRetainAllocationHandle: update it, or do without what needs the call";
    says(
        &Allocation::retain(&rig.driver, 0x1000).unwrap_err(),
        &expected,
        text,
    );
    says(&rig.driver.is_vmm(0x1000).unwrap_err(), &expected, text);
}

#[test]
fn a_raw_handle_and_back() {
    let rig = Rig::new();
    let raw = rig.props().create(2 * G).unwrap().into_raw().unwrap();
    assert_eq!(rig.sim.calls_of(Call::cuMemRelease), 0);
    let page = unsafe { Allocation::from_raw(&rig.driver, raw, 2 * G) }.unwrap();
    assert_eq!((page.raw(), page.size()), (raw, 2 * G));
    assert_eq!(
        (page.origin(), page.location()),
        (Origin::Raw, Location::Device(0))
    );
    page.release().unwrap();
    rig.leaves_nothing();
}

#[test]
fn a_size_that_no_handle_has() {
    let rig = Rig::new();
    let raw = rig.props().create(G).unwrap().into_raw().unwrap();
    let before = rig.sim.snapshot();
    let adopt = |size| unsafe { Allocation::from_raw(&rig.driver, raw, size) }.unwrap_err();
    same(
        &refused(&rig, || unsafe {
            Allocation::from_raw(&rig.driver, raw, 0)
        }),
        &Error::ZeroSize {
            what: What::AllocationSize,
        },
    );
    same(
        &adopt(G + 1),
        &Error::Misaligned {
            what: What::AllocationSize,
            value: G + 1,
            granularity: G,
        },
    );
    // The handle is still the caller's.
    assert_eq!(rig.sim.snapshot(), before);
    drop(unsafe { Allocation::from_raw(&rig.driver, raw, G) }.unwrap());
    rig.leaves_nothing();
}

#[test]
fn a_mapped_one_cannot_be_given_away() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    let page = rig.props().create(G).unwrap();
    let id = kv.map_existing(0, &page).unwrap();
    let page = page.into_raw().expect_err("the mapping shares its count");
    kv.unmap(id).unwrap();
    let raw = page.into_raw().expect("nobody shares it now");
    drop(unsafe { Allocation::from_raw(&rig.driver, raw, G) }.unwrap());
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn releasing_what_is_still_mapped_cannot_fail() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    let page = rig.props().create(G).unwrap();
    kv.map_existing(0, &page).unwrap();
    rig.sim.inject(Fault::on(Call::cuMemRelease)).unwrap();
    page.release().unwrap();
    assert_eq!(rig.sim.calls_of(Call::cuMemRelease), 0);
    rig.sim.clear_faults();
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn a_release_that_fails_gives_it_back() {
    let rig = Rig::new();
    let page = rig.props().create(G).unwrap();
    let before = rig.sim.snapshot();
    let fault = Fault::on(Call::cuMemRelease).code(CUresult::CUDA_ERROR_NOT_PERMITTED);
    rig.sim.inject(fault).unwrap();
    let failed = page.release().unwrap_err();
    assert_eq!(
        failed.to_string(),
        "cuMemRelease (a handle of 2097152 bytes (2 MiB)) failed with CUDA_ERROR_NOT_PERMITTED (800)"
    );
    assert_eq!(rig.sim.snapshot(), before);
    failed.allocation.release().unwrap();
    rig.leaves_nothing();
}
