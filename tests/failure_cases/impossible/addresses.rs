//! Addresses, granularities and rights.

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Allocation, AllocationProps, Code, Error, Location, Reservation, What};

use crate::case::{Case, Told};
use crate::contradictions::disagrees;
use crate::liar::{furnished, Liar, G};
use crate::rig::says;

use super::ends_well;

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
    Case::sim(
        "addresses whose reservation could not be freed",
        addresses_not_freed,
    ),
    Case::sim("a granularity that is none", impossible_granularities),
    Case::sim(
        "a granularity of half of all addresses",
        an_enormous_granularity,
    ),
    Case::sim(
        "a range that does not contain its own address",
        impossible_address_ranges,
    ),
];

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
            "device 0 was granted read-write at offset 0x0",
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
            Some(Code::ERROR_INVALID_VALUE)
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
        let ours = format!(
            "[{base:#x}, {:#x}) (8 MiB) is reserved already",
            base + size
        );
        let theirs = format!(
            "reserved [{at:#x}, {:#x}) ({} MiB)",
            at + (granules * G) as u64,
            2 * granules
        );
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

/// A reservation that the driver did not free is reserved still, whatever it says later.
fn addresses_not_freed() {
    let liar = Liar::new();
    let driver = liar.driver();
    let kv = Reservation::builder(2 * G).reserve(&driver).unwrap();
    let (base, end) = (kv.base(), kv.base() + 2 * G as u64);
    liar.sim.inject(Fault::on(Call::cuMemAddressFree)).unwrap();
    let unclosed = kv.close().unwrap_err();
    liar.answers(Call::cuMemAddressReserve, base.into());
    let error = Reservation::builder(2 * G).reserve(&driver).unwrap_err();
    disagrees(
        &error,
        &format!("[{base:#x}, {end:#x}) (4 MiB) is reserved already"),
        &format!("reserved [{base:#x}, {end:#x}) (4 MiB)"),
    );
    assert_eq!(driver.quarantined(), 1);
    unclosed.reservation.into_inner().close().unwrap();
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
            what: What::AllocationSize,
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
    // No bytes at all, of memory of which only the size is told.
    liar.answers_in(Call::cuMemGetAddressRange_v2, 0, 0);
    liar.answers_in(Call::cuMemGetAddressRange_v2, 1, 0);
    disagrees(
        &Allocation::retain(&driver, at).unwrap_err(),
        &format!("the range at {at:#x} contains that address"),
        "says that it is 0 bytes at 0x0",
    );
    // That is memory of the host.
    liar.answers_in(Call::cuMemGetAddressRange_v2, 1, G as i128);
    disagrees(
        &Allocation::retain(&driver, at).unwrap_err(),
        &format!("device memory at {at:#x} is mapped from an address on"),
        "gives none",
    );
    assert_eq!(liar.sim.snapshot().handles, before.handles);
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
