//! Requests that cannot be met: sizes, alignments, addresses, devices, handles.

use cuda_vmm::sim::{Fault, Simulation};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{
    Access, Allocation, AllocationProps, Code, Driver, Error, Location, Reservation,
    ReservationBuilder, What,
};

use crate::rig::{free_address, same, says, Rig, G};

/// Reserves what must be refused before the driver is called, once it has told its granularity.
fn refused(rig: &Rig, builder: ReservationBuilder) -> Error {
    rig.reserve(1).close().unwrap();
    let before = (rig.sim.calls(), rig.sim.snapshot());
    let error = builder
        .reserve(&rig.driver)
        .expect_err("it was not refused");
    assert_eq!((rig.sim.calls(), rig.sim.snapshot()), before, "{error}");
    error
}

#[test]
fn a_size_of_zero() {
    says(
        &refused(&Rig::new(), Reservation::builder(0)),
        &Error::ZeroSize {
            what: What::ReservationSize,
        },
        "reservation size is zero: give a size in bytes",
    );
}

#[test]
fn a_size_between_granules() {
    says(
        &refused(&Rig::new(), Reservation::builder(3 * G + 4096)),
        &Error::Misaligned {
            what: What::ReservationSize,
            value: 3 * G + 4096,
            granularity: G,
        },
        "reservation size 6295552 is not a multiple of the granularity 2097152 bytes (2 MiB): \
         the next multiple is 8388608, the one before 6291456",
    );
    // Near the end of all numbers there is no next multiple.
    says(
        &refused(&Rig::new(), Reservation::builder(usize::MAX)),
        &Error::Misaligned {
            what: What::ReservationSize,
            value: usize::MAX,
            granularity: G,
        },
        "reservation size 18446744073709551615 is not a multiple of the granularity 2097152 bytes (2 MiB)",
    );
}

#[test]
fn an_alignment_that_is_no_power_of_two() {
    says(
        &refused(&Rig::new(), Reservation::builder(G).alignment(3 * G)),
        &Error::BadAlignment { alignment: 3 * G },
        "alignment 6291456 is not a power of two: use 0 for the driver's choice, or 8388608",
    );
    says(
        &refused(&Rig::new(), Reservation::builder(G).alignment(usize::MAX)),
        &Error::BadAlignment {
            alignment: usize::MAX,
        },
        "alignment 18446744073709551615 is not a power of two: use 0 for the driver's choice",
    );
}

#[test]
fn an_alignment_is_honoured() {
    let rig = Rig::new();
    for alignment in [0, 4096, G, 1 << 30, 64 << 30] {
        let kv = Reservation::builder(G).alignment(alignment);
        let kv = kv.reserve(&rig.driver).unwrap();
        assert_eq!(kv.base() % alignment.max(G) as u64, 0);
        kv.close().unwrap();
    }
}

#[test]
fn an_address_between_granules() {
    let expected = Error::Misaligned {
        what: What::Address,
        value: 0x4000_0000_1000,
        granularity: G,
    };
    let builder = || Reservation::builder(G);
    let rig = Rig::new();
    same(&refused(&rig, builder().hint(0x4000_0000_1000)), &expected);
    says(
        &refused(&rig, builder().exact_address(0x4000_0000_1000)),
        &expected,
        "address 70368744181760 is not a multiple of the granularity 2097152 bytes (2 MiB): \
         the next multiple is 70368746274816, the one before 70368744177664",
    );
}

#[test]
fn an_address_whose_end_overflows() {
    let last = usize::MAX - G + 1;
    let expected = Error::Overflow {
        offset: last,
        size: 2 * G,
    };
    let builder = Reservation::builder(2 * G).exact_address(last as u64);
    same(&refused(&Rig::new(), builder), &expected);
}

#[test]
fn an_exact_address_that_is_taken() {
    let rig = Rig::new();
    let kv = rig.reserve(4);
    let before = rig.sim.snapshot();
    let wanted = kv.base();
    let builder = Reservation::builder(4 * G).exact_address(wanted);
    let error = builder.reserve(&rig.driver).unwrap_err();
    let Error::HintNotHonoured { got, .. } = error else {
        panic!("{error:?}");
    };
    assert_ne!(got, wanted);
    says(
        &error,
        &Error::HintNotHonoured { wanted, got },
        &format!(
            "the address {wanted:#x} was not to be had: the driver offered {got:#x}, which was given back; \
             ask with `hint` if another address will do"
        ),
    );
    assert_eq!(rig.sim.snapshot(), before);

    let elsewhere = Reservation::builder(4 * G).hint(wanted);
    let elsewhere = elsewhere.reserve(&rig.driver).unwrap();
    assert_ne!(elsewhere.base(), wanted);
}

#[test]
fn an_exact_address_that_is_free() {
    let rig = Rig::new();
    let wanted = free_address();
    let builder = Reservation::builder(4 * G).exact_address(wanted);
    let kv = builder.reserve(&rig.driver).unwrap();
    assert_eq!((kv.base(), kv.size()), (wanted, 4 * G));
}

#[test]
fn more_addresses_than_there_are() {
    let rig = Rig::with(Simulation::builder().address_space(1 << 30));
    let error = Reservation::builder(2 << 30)
        .reserve(&rig.driver)
        .unwrap_err();
    says(
        &error,
        &Error::OutOfAddressSpace { size: 2 << 30 },
        "no free address range of 2147483648 bytes (2 GiB): reserve less, or free other reservations \
         (this is address space, not device memory)",
    );
    assert!(!error.is_out_of_memory());
    assert!(rig.sim.snapshot().is_empty());
}

#[test]
fn more_memory_than_there_is() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1 << 20);
    let before = (rig.sim.snapshot(), kv.to_string());
    let error = kv.map(0, 1 << 41, &rig.props()).unwrap_err();
    says(
        &error,
        &Error::OutOfMemory {
            size: 1 << 41,
            location: Location::Device(0),
        },
        "not enough free memory on device 0 for 2199023255552 bytes (2 TiB)",
    );
    assert!(error.is_out_of_memory());
    assert_eq!((rig.sim.snapshot(), kv.to_string()), before);
}

#[test]
fn a_device_that_does_not_exist() {
    let rig = Rig::of(2);
    let text = "there is no device 7: the driver has 2, numbers 0 to 1";
    let expected = Error::NoSuchDevice {
        ordinal: 7,
        count: 2,
    };
    let nobody = Location::Device(7);
    let builder = Reservation::builder(G).access(nobody, Access::Read);
    says(&refused(&rig, builder), &expected, text);

    let mut kv = rig.reserve(2);
    kv.map(0, G, &rig.props()).unwrap();
    let set = rig.refused(&mut kv, |kv| kv.set_access(0, G, nobody, Access::Read));
    let policy = rig.refused(&mut kv, |kv| kv.set_policy(nobody, Access::Read));
    let asked = rig.refused(&mut kv, |kv| kv.access_of(0, nobody));
    for error in [set, policy, asked] {
        says(&error, &expected, text);
    }
}

#[test]
fn rights_for_a_device_twice() {
    let rig = Rig::new();
    let builder = Reservation::builder(G)
        .access(Location::Device(0), Access::Read)
        .access(Location::Host, Access::Read)
        .access(rig.device(), Access::ReadWrite);
    says(
        &refused(&rig, builder),
        &Error::DuplicateAccess {
            location: Location::Device(0),
        },
        "device 0 is given rights twice: name each location once",
    );
}

#[test]
fn a_place_under_another_name() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    kv.map(0, G, &rig.props()).unwrap();
    let device = |id| Location::Other { kind: 1, id };
    for location in [
        device(0),
        device(7),
        Location::Other { kind: 2, id: 0 },
        Location::Other { kind: 3, id: 0 },
        Location::HostNuma(u32::MAX),
        Location::HostNuma(1 << 31),
    ] {
        let expected = Error::NoSuchPlace { location };
        let builder = Reservation::builder(G)
            .access(rig.device(), Access::ReadWrite)
            .access(location, Access::Read);
        same(&refused(&rig, builder), &expected);
        let set = |kv: &mut Reservation| kv.set_access(0, G, location, Access::Read);
        same(&rig.refused(&mut kv, set), &expected);
        let set = |kv: &mut Reservation| kv.set_policy(location, Access::Read);
        same(&rig.refused(&mut kv, set), &expected);
        let ask = |kv: &mut Reservation| kv.access_of(0, location);
        same(&rig.refused(&mut kv, ask), &expected);
    }
    let nowhere = AllocationProps::on_host_numa(&rig.driver, u32::MAX);
    says(
        &rig.refused(&mut kv, |_| nowhere.create(G)),
        &Error::NoSuchPlace {
            location: Location::HostNuma(u32::MAX),
        },
        "host NUMA node 4294967295 names no place: use Location::Device, Location::Host, or Location::HostNuma with \
         a node below 2147483648",
    );
}

#[test]
fn memory_of_another_driver() {
    let (rig, other) = (Rig::new(), Rig::new());
    let mut kv = rig.reserve(4);
    kv.map(0, G, &rig.props()).unwrap();
    let page = other.props().create(G).unwrap();
    let mut theirs = other.reserve(1);
    theirs.map(0, G, &other.props()).unwrap();
    let before = other.sim.calls();
    let text = "this was made through another driver than what it is to be used with: make both with the same one";
    let existing = rig.refused(&mut kv, |kv| kv.map_existing(G, &page));
    let mapped = rig.refused(&mut kv, |kv| kv.map(G, G, &other.props()));
    let copied = rig.refused(&mut kv, |kv| kv.copy_from(0, &theirs, 0, 16));
    for error in [existing, mapped, copied] {
        says(&error, &Error::ForeignDriver, text);
    }
    // The same simulation through a second `Driver` is another driver too: its handles are counted elsewhere.
    let second = Driver::simulated(&rig.sim).unwrap();
    let props = AllocationProps::on(&second.device(0).unwrap());
    let error = rig.refused(&mut kv, |kv| kv.map(G, G, &props));
    same(&error, &Error::ForeignDriver);
    assert_eq!(other.sim.calls(), before);
}

#[test]
fn a_raw_handle_of_another_size() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let raw = rig.props().create(G).unwrap().into_raw().unwrap();
    let page = unsafe { Allocation::from_raw(&rig.driver, raw, 2 * G) }.unwrap();
    let before = (rig.sim.snapshot(), kv.to_string());
    says(
        &kv.map_existing(0, &page).unwrap_err(),
        &Error::WrongSize { claimed: 2 * G },
        "the driver will not map 4194304 bytes (4 MiB) of this allocation: a handle is mapped whole, \
         so its size is not what was claimed for it",
    );
    assert_eq!((rig.sim.snapshot(), kv.to_string()), before);
    page.release().unwrap();
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn a_raw_handle_of_another_size_that_could_not_be_unmapped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let raw = rig.props().create(G).unwrap().into_raw().unwrap();
    let page = unsafe { Allocation::from_raw(&rig.driver, raw, G) }.unwrap();
    let unsupported = |call| Fault::on(call).code(CUresult::CUDA_ERROR_NOT_SUPPORTED);

    // Its size is right; what is not supported is the grant.
    rig.sim.inject(unsupported(Call::cuMemSetAccess)).unwrap();
    let error = kv.map_existing(0, &page).unwrap_err();
    let Error::Driver(failure) = &error else {
        panic!("{error}");
    };
    let said = (failure.call, failure.code);
    assert_eq!(said, (Call::cuMemSetAccess, Code::ERROR_NOT_SUPPORTED));

    // What could not be undone is never lost from the error.
    rig.sim.inject(unsupported(Call::cuMemSetAccess)).unwrap();
    rig.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let error = kv.map_existing(0, &page).unwrap_err();
    assert_eq!(error.undo_failures().len(), 1, "{error}");
    assert_eq!(kv.quarantined(), 1);
    kv.close().unwrap();
    page.release().unwrap();
    rig.leaves_nothing();
}

#[test]
fn an_allocation_where_there_is_no_room() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let page = rig.props().create(3 * G).unwrap();
    kv.map_existing(0, &page).unwrap();
    let error = rig.refused(&mut kv, |kv| kv.map_existing(2 * G, &page));
    same(
        &error,
        &Error::OutOfRange {
            offset: 2 * G,
            size: 3 * G,
            len: 4 * G,
        },
    );
    let error = rig.refused(&mut kv, |kv| kv.map_existing(G, &page));
    same(
        &error,
        &Error::Overlap {
            asked: G..4 * G,
            existing: 0..3 * G,
        },
    );
    let error = rig.refused(&mut kv, |kv| kv.map_existing(4096, &page));
    same(
        &error,
        &Error::Misaligned {
            what: What::Offset,
            value: 4096,
            granularity: G,
        },
    );
}

#[test]
fn a_driver_older_than_a_call() {
    let rig = Rig::with(Simulation::builder().without(Call::cuMemGetAccess));
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props()).unwrap();
    let before = rig.sim.snapshot();
    let error = kv.access_of(0, Location::Device(0)).unwrap_err();
    says(
        &error,
        &Error::MissingCall {
            call: Call::cuMemGetAccess,
        },
        "this driver has no cuMemGetAccess: update it, or do without what needs the call",
    );
    assert!(error.is_not_supported());
    assert_eq!(rig.sim.snapshot(), before);
}
