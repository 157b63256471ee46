//! SUCCESS, with an answer that cannot be so: the error names both sides, what was made is given back, and nothing panics.

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::Call;
use cuda_vmm::{
    Access, Allocation, AllocationProps, Driver, Error, HandleTypes, Location, Reservation,
};

use crate::case::{Case, Told};
use crate::contradictions::disagrees;
use crate::liar::{furnished, Liar, G};
use crate::rig::says;

pub const CASES: &[Case] = &[
    Case::sim("access flags that nobody knows", unknown_access_flags),
    Case::sim(
        "addresses that can be no reservation are given back",
        impossible_addresses,
    ),
    Case::sim(
        "addresses that are reserved already are neither used nor freed",
        addresses_of_another,
    ),
    Case::sim("a granularity that is none", impossible_granularities),
    Case::sim(
        "a granularity of half of all addresses",
        an_enormous_granularity,
    ),
    Case::sim("a created handle that is none", create_gives_no_handle),
    Case::sim("a retained handle that is none", retain_gives_no_handle),
    Case::sim(
        "another handle at a mapping than was mapped",
        retain_gives_another_handle,
    ),
    Case::sim("memory on a device that is not there", memory_on_no_device),
    Case::sim(
        "memory in a place that only a newer driver knows",
        memory_in_an_unknown_place,
    ),
    Case::sim(
        "a range that does not contain its own address",
        impossible_address_ranges,
    ),
    Case::sim("a number below zero at the start", negative_numbers),
    Case::sim("fewer devices than there were", fewer_devices),
    Case::sim("a name without an end", a_name_without_end),
    Case::sim("a yes that is neither yes nor no", neither_yes_nor_no),
    Case::sim("more free memory than memory", more_free_than_there_is),
    Case::sim("a context that is none is released again", no_context),
    Case::sim("another context comes off than was put on", another_context),
    Case::sim(
        "another context comes off at the end of a guard",
        another_context_of_a_guard,
    ),
];

/// After the lies everything can be given back, and nothing is left.
fn ends_well(liar: &Liar, driver: Driver) {
    liar.tells_the_truth();
    driver.reclaim().unwrap();
    drop(driver);
    assert!(liar.sim.snapshot().is_empty(), "{}", liar.sim.snapshot());
    assert_eq!(liar.sim.misuses(), []);
}

fn unknown_access_flags() {
    let liar = Liar::new();
    let driver = liar.driver();
    let kv = furnished(&driver);
    for (flags, named) in [
        (2, "2"),
        (7, "7"),
        (1 << 40, "1099511627776"),
        (-1, "18446744073709551615"),
    ] {
        liar.answers(Call::cuMemGetAccess, flags);
        let error = kv.access_of(0, Location::Device(0)).unwrap_err();
        disagrees(
            &error,
            "device 0 was granted read-write at offset 0",
            &format!("reports access flags {named}"),
        );
    }
    kv.close().unwrap();
    ends_well(&liar, driver);
}

fn impossible_addresses() {
    let (huge, g) = (1_u64 << 40, G as u64);
    let begins =
        |alignment| format!("a reservation begins at a multiple of {alignment} other than 0");
    let cases = [
        (0, 0, begins(g)),
        (0, 4096, begins(g)),
        (0, 5 * g + 1, begins(g)),
        (huge as usize, 3 * g, begins(huge)),
        (
            0,
            u64::MAX - g + 1,
            "a reservation ends where addresses end, if not before".into(),
        ),
    ];
    let told = Told::listen();
    for (alignment, base, ours) in cases {
        let liar = Liar::new();
        let driver = liar.driver();
        liar.answers(Call::cuMemAddressReserve, base.into());
        let builder = Reservation::builder(2 * G).alignment(alignment);
        let error = builder.reserve(&driver).unwrap_err();
        disagrees(
            &error,
            &ours,
            &format!("reserved 4194304 bytes (4 MiB) at {base:#x}"),
        );
        // What it says it reserved is given back; this one knows of no such thing, so it is kept to be tried again.
        assert_eq!(error.undo_failures().len(), 1);
        assert_eq!(
            error.undo_failures()[0].code(),
            Some(cuda_vmm::Code::ERROR_INVALID_VALUE)
        );
        assert_eq!(driver.quarantined(), 1);
        assert_eq!(liar.sim.calls_of(Call::cuMemAddressFree), 1);
        liar.tells_the_truth();
        Reservation::builder(2 * G)
            .reserve(&driver)
            .unwrap()
            .close()
            .unwrap();
        drop(driver);
        let told = told.take();
        let leaked = format!("leaked the address range of 4194304 bytes (4 MiB) at {base:#x}: ");
        assert!(told.len() == 1 && told[0].starts_with(&leaked), "{told:?}");
    }
}

fn addresses_of_another() {
    let liar = Liar::new();
    let driver = liar.driver();
    let mut kv = Reservation::builder(4 * G)
        .access(Location::Device(0), Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    let props = AllocationProps::on(&driver.device(0).unwrap());
    kv.map(0, G, &props).unwrap();
    let (base, size) = (kv.base(), kv.size() as u64);
    let g = G as u64;
    // The same, its beginning, its inside, its end, all of it and more.
    for (at, granules) in [
        (base, 4),
        (base - g, 2),
        (base + g, 1),
        (base + size - g, 2),
        (base - g, 6),
    ] {
        let frees = liar.sim.calls_of(Call::cuMemAddressFree);
        let kept = driver.quarantined();
        liar.answers(Call::cuMemAddressReserve, at.into());
        let error = Reservation::builder(granules * G)
            .reserve(&driver)
            .unwrap_err();
        let ours = format!("[{base:#x}, {:#x}) is reserved already", base + size);
        let theirs = format!("reserved [{at:#x}, {:#x})", at + (granules * G) as u64);
        disagrees(&error, &ours, &theirs);
        let [undo] = error.undo_failures() else {
            panic!("{error:?}");
        };
        disagrees(undo, &ours, &theirs);
        assert_eq!(driver.quarantined(), kept + 1);
        assert_eq!(
            liar.sim.calls_of(Call::cuMemAddressFree),
            frees,
            "it would have freed what is ours"
        );
        // Nor does a later try.
        driver.reclaim().unwrap_err();
        assert_eq!(driver.quarantined(), kept + 1);
        assert_eq!(liar.sim.calls_of(Call::cuMemAddressFree), frees);
    }
    // Right before and right behind is beside.
    for (at, granules) in [(base - g, 1), (base + size, 1)] {
        liar.answers(Call::cuMemAddressReserve, at.into());
        let beside = Reservation::builder(granules * G).reserve(&driver).unwrap();
        assert_eq!(beside.base(), at);
        std::mem::forget(beside); // The driver reserved something else, which is not the crate's to free.
    }
    kv.write(0, b"whole").unwrap();
    kv.close().unwrap();
}

fn impossible_granularities() {
    for value in [0, 3 << 20, 4095] {
        let liar = Liar::new();
        let driver = liar.driver();
        liar.answers(Call::cuMemGetAllocationGranularity, value);
        let (ours, theirs) = (
            "a granularity is a power of two",
            format!("says {value} for memory on device 0"),
        );
        let props = AllocationProps::on(&driver.device(0).unwrap());
        disagrees(&props.granularity().unwrap_err(), ours, &theirs);
        disagrees(&props.create(G).unwrap_err(), ours, &theirs);
        disagrees(
            &Reservation::builder(G).reserve(&driver).unwrap_err(),
            ours,
            &theirs,
        );
        // Not kept: the next answer counts.
        liar.tells_the_truth();
        assert_eq!(props.granularity().unwrap().minimum(), G);
        drop(props);
        ends_well(&liar, driver);
    }
}

fn an_enormous_granularity() {
    let liar = Liar::new();
    let driver = liar.driver();
    let enormous = 1_usize << 63;
    liar.answers(Call::cuMemGetAllocationGranularity, enormous as i128);
    let device = driver.device(0).unwrap();
    let props = AllocationProps::on(&device);
    let granularity = props.granularity().unwrap();
    assert_eq!(
        (granularity.round_up(1), granularity.round_up(enormous + 1)),
        (Some(enormous), None)
    );
    says(
        &props.create(G).unwrap_err(),
        &Error::Misaligned {
            what: cuda_vmm::What::AllocationSize,
            value: G,
            granularity: enormous,
        },
        "allocation size 2097152 is not a multiple of the granularity 9223372036854775808 bytes (8388608 TiB): \
         the next multiple is 9223372036854775808, the one before 0",
    );
    let error = props.create(enormous).unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory { size, .. } if size == enormous),
        "{error:?}"
    );
    let error = Reservation::builder(enormous).reserve(&driver).unwrap_err();
    assert!(
        matches!(error, Error::OutOfAddressSpace { size } if size == enormous),
        "{error:?}"
    );
    let error = Reservation::builder(G).reserve(&driver).unwrap_err();
    assert!(
        matches!(error, Error::Misaligned { granularity, .. } if granularity == enormous),
        "{error:?}"
    );
    drop((props, device));
    ends_well(&liar, driver);
}

fn create_gives_no_handle() {
    let liar = Liar::new();
    let driver = liar.driver();
    let mut kv = furnished(&driver);
    let props = AllocationProps::on(&driver.device(0).unwrap());
    liar.answers(Call::cuMemCreate, 0);
    let (ours, theirs) = (
        "cuMemCreate gives a handle when it succeeds",
        "says SUCCESS and gives 0",
    );
    disagrees(&props.create(G).unwrap_err(), ours, theirs);
    disagrees(&kv.map(G, G, &props).unwrap_err(), ours, theirs);
    // There is nothing to release, and nothing was mapped.
    assert_eq!(
        (
            liar.sim.calls_of(Call::cuMemRelease),
            liar.sim.calls_of(Call::cuMemMap)
        ),
        (0, 1)
    );
    assert_eq!((kv.mapping_count(), driver.quarantined()), (1, 0));
    liar.tells_the_truth();
    kv.map(G, G, &props).unwrap();
    kv.close().unwrap();
}

fn retain_gives_no_handle() {
    let liar = Liar::new();
    let driver = liar.driver();
    let kv = furnished(&driver);
    liar.answers(Call::cuMemRetainAllocationHandle, 0);
    let (ours, theirs) = (
        "cuMemRetainAllocationHandle gives a handle when it succeeds",
        "says SUCCESS and gives 0",
    );
    disagrees(
        &Allocation::retain(&driver, kv.base()).unwrap_err(),
        ours,
        theirs,
    );
    disagrees(&driver.is_vmm(kv.base()).unwrap_err(), ours, theirs);
    assert_eq!(liar.sim.calls_of(Call::cuMemRelease), 0);
    kv.close().unwrap();
}

fn retain_gives_another_handle() {
    let liar = Liar::new();
    let driver = liar.driver();
    let mut kv = furnished(&driver);
    let props = AllocationProps::on(&driver.device(0).unwrap());
    let (mapped, other) = (
        liar.sim.snapshot().handles[0].handle,
        props.create(G).unwrap(),
    );
    let other = other.into_raw().unwrap();
    liar.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    liar.answers(Call::cuMemRetainAllocationHandle, other.into());
    let error = kv.unmap(kv.id_at(0).unwrap()).unwrap_err();
    assert_eq!(error.code(), Some(cuda_vmm::Code::ERROR_UNKNOWN));
    let [undo] = error.undo_failures() else {
        panic!("{error:?}");
    };
    disagrees(
        undo,
        &format!("handle {mapped:#x} is mapped at {:#x}", kv.base()),
        &format!("gives {other:#x} for that address"),
    );
    assert_eq!(kv.quarantined(), 1);
    // The count that was given is the mapping's own now, and goes with it.
    liar.sim.clear_log();
    kv.close().unwrap();
    let snapshot = liar.sim.snapshot();
    let counts: Vec<_> = snapshot
        .handles
        .iter()
        .map(|of| (of.handle, of.count))
        .collect();
    assert_eq!(
        counts,
        [(mapped, 1)],
        "the one that the driver took and did not tell of"
    );
}

fn memory_on_no_device() {
    for id in [1, 99, -1] {
        let liar = Liar::new();
        let driver = liar.driver();
        let kv = furnished(&driver);
        let before = liar.sim.snapshot();
        liar.answers_in(Call::cuMemGetAllocationPropertiesFromHandle, 1, id);
        let error = Allocation::retain(&driver, kv.base()).unwrap_err();
        disagrees(
            &error,
            "there are 1 devices",
            &format!("says that the memory lies on device {id}"),
        );
        assert_eq!((liar.sim.snapshot(), driver.quarantined()), (before, 0));
        let page = AllocationProps::on(&driver.device(0).unwrap())
            .create(G)
            .unwrap();
        let error = page.granted().unwrap_err();
        disagrees(
            &error,
            "there are 1 devices",
            &format!("says that the memory lies on device {id}"),
        );
        page.release().unwrap();
        kv.close().unwrap();
        ends_well(&liar, driver);
    }
}

fn memory_in_an_unknown_place() {
    let liar = Liar::new();
    let driver = liar.driver();
    let page = AllocationProps::on(&driver.device(0).unwrap())
        .create(G)
        .unwrap();
    liar.answers_in(Call::cuMemGetAllocationPropertiesFromHandle, 0, 77);
    let granted = page.granted().unwrap();
    assert_eq!(granted.location(), Location::Other { kind: 77, id: 0 });
    assert_eq!(granted.handle_types(), HandleTypes::NONE);
    page.release().unwrap();
    drop(granted);
    ends_well(&liar, driver);
}

fn impossible_address_ranges() {
    let liar = Liar::new();
    let driver = liar.driver();
    let kv = furnished(&driver);
    let at = kv.base() + G as u64 / 2;
    let before = liar.sim.snapshot();
    let cases = [
        // (base, size): behind the address, before it, nothing, past all addresses
        (at + 1, G as u64, "2097152 bytes (2 MiB)"),
        (kv.base(), G as u64 / 2, "1048576 bytes (1 MiB)"),
        (at, 0, "0 bytes"),
        (at, u64::MAX, "18446744073709551615 bytes"),
    ];
    for (base, size, bytes) in cases {
        liar.answers_in(Call::cuMemGetAddressRange_v2, 0, base.into());
        liar.answers_in(Call::cuMemGetAddressRange_v2, 1, size.into());
        let error = Allocation::retain(&driver, at).unwrap_err();
        disagrees(
            &error,
            &format!("the range at {at:#x} contains that address"),
            &format!("says that it is {bytes} at {base:#x}"),
        );
        assert_eq!(error.undo_failures().len(), 0);
        assert_eq!(
            (liar.sim.snapshot().handles, driver.quarantined()),
            (before.handles.clone(), 0)
        );
    }
    // Less than was mapped.
    liar.answers_in(Call::cuMemGetAddressRange_v2, 0, kv.base().into());
    liar.answers_in(Call::cuMemGetAddressRange_v2, 1, G as i128 - 4096);
    let error = Allocation::retain(&driver, at).unwrap_err();
    disagrees(
        &error,
        "an allocation's size is a multiple of its granularity, 2097152",
        &format!("says that {} bytes are mapped at {at:#x}", G - 4096),
    );
    assert_eq!(liar.sim.snapshot().handles, before.handles);
    kv.close().unwrap();
    ends_well(&liar, driver);
}

fn negative_numbers() {
    for call in [Call::cuDriverGetVersion, Call::cuDeviceGetCount] {
        let liar = Liar::new();
        liar.answers(call, -7);
        let error = Driver::from_calls(liar.clone()).unwrap_err();
        disagrees(
            &error,
            &format!("what {call} gives is not negative"),
            "says -7",
        );
    }
    let liar = Liar::new();
    let driver = liar.driver();
    liar.answers(Call::cuDeviceGet, i32::MIN.into());
    let error = driver.device(0).unwrap_err();
    disagrees(
        &error,
        "what cuDeviceGet gives is not negative",
        "says -2147483648",
    );
}

fn fewer_devices() {
    let two = Simulation::builder()
        .device(SimDevice::new())
        .device(SimDevice::new());
    let liar = Liar::on(two.build().unwrap());
    liar.answers(Call::cuDeviceGetCount, 3);
    let driver = liar.driver();
    let error = driver.device(2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cuDeviceGet (device 2) failed with CUDA_ERROR_INVALID_DEVICE (101)"
    );
    // The count is asked once.
    liar.answers(Call::cuDeviceGetCount, 0);
    assert_eq!(driver.device_count(), 3);
    driver.device(1).unwrap();
    assert_eq!(
        driver.device(3).unwrap_err().to_string(),
        "there is no device 3: the driver has 3, numbers 0 to 2"
    );
}

fn a_name_without_end() {
    let liar = Liar::new();
    let device = liar.driver().device(0).unwrap();
    liar.answers(Call::cuDeviceGetName, b'N'.into());
    assert_eq!(device.name().unwrap(), "N".repeat(255));
    liar.answers(Call::cuDeviceGetName, 0xff);
    assert_eq!(device.name().unwrap(), "\u{fffd}".repeat(255));
}

fn neither_yes_nor_no() {
    let liar = Liar::new();
    let device = liar.driver().device(0).unwrap();
    for (answer, said) in [(2, "says 2"), (-1, "says -1")] {
        liar.answers(Call::cuDeviceCanAccessPeer, answer);
        disagrees(
            &device.can_access_peer(&device).unwrap_err(),
            "cuDeviceCanAccessPeer answers 0 or 1",
            said,
        );
    }
}

fn more_free_than_there_is() {
    let liar = Liar::new();
    let driver = liar.driver();
    let device = driver.device(0).unwrap();
    liar.answers_in(Call::cuMemGetInfo_v2, 0, 11);
    liar.answers_in(Call::cuMemGetInfo_v2, 1, 10);
    let error = device.free_memory().unwrap_err();
    disagrees(
        &error,
        "no more memory can be free than there is",
        "says that 11 of 10 bytes are free",
    );
    assert_eq!(
        (
            liar.sim.snapshot().context_depth,
            liar.sim.snapshot().retained_contexts
        ),
        (0, vec![0])
    );
    drop(device);
    ends_well(&liar, driver);
}

fn no_context() {
    let (ours, theirs) = (
        "cuDevicePrimaryCtxRetain gives a context when it succeeds",
        "says SUCCESS and gives null",
    );
    let liar = Liar::new();
    let driver = liar.driver();
    let device = driver.device(0).unwrap();
    liar.answers(Call::cuDevicePrimaryCtxRetain, 0);
    let error = device.make_current().unwrap_err();
    disagrees(&error, ours, theirs);
    assert_eq!((error.undo_failures().len(), driver.quarantined()), (0, 0));
    assert_eq!(liar.sim.calls_of(Call::cuCtxPushCurrent_v2), 0);
    assert_eq!(liar.sim.snapshot().retained_contexts, [0]);
    // What could not be released is the driver's, and no context for the next.
    liar.sim
        .inject(Fault::on(Call::cuDevicePrimaryCtxRelease_v2))
        .unwrap();
    let error = device.free_memory().unwrap_err();
    disagrees(&error, ours, theirs);
    assert_eq!((error.undo_failures().len(), driver.quarantined()), (1, 1));
    liar.tells_the_truth();
    device.free_memory().unwrap();
    drop(device);
    ends_well(&liar, driver);
}

fn another_context() {
    let liar = Liar::new();
    let driver = liar.driver();
    let mut kv = furnished(&driver);
    kv.write(0, b"asked once").unwrap();
    let context = liar.sim.snapshot().retained_contexts;
    liar.answers(Call::cuCtxPopCurrent_v2, 0xbad);
    let error = kv.write(0, b"asked again").unwrap_err();
    let Error::Disagreement { ours, theirs, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(
        ours.starts_with("the context 0x") && ours.ends_with(" is current"),
        "{ours}"
    );
    assert_eq!(theirs, "took 0xbad off instead");
    // Taken off once, and not once more for good measure.
    assert_eq!(liar.sim.snapshot().context_depth, 0);
    assert_eq!(liar.sim.snapshot().retained_contexts, context);
    kv.close().unwrap();
    ends_well(&liar, driver);
}

fn another_context_of_a_guard() {
    let told = Told::listen();
    let liar = Liar::new();
    let driver = liar.driver();
    let device = driver.device(0).unwrap();
    liar.answers(Call::cuCtxPopCurrent_v2, 0xbad);
    drop(device.make_current().unwrap());
    let told = told.take();
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(
        told.starts_with("a context stays current on this thread: the driver and this crate disagree: the context 0x"),
        "{told}"
    );
    assert!(
        told.ends_with(" is current, but the driver took 0xbad off instead"),
        "{told}"
    );
    drop(device);
    ends_well(&liar, driver);
}
