//! Bad input: each its own error, in these words, before any driver call, and nothing changed.

use cuda_vmm::{ElasticRangeBuilder, Error, Fence, Location, What};

use crate::case::{says, Case, Machine};

pub const CASES: &[Case] = &[
    Case::simulated("ranges that cannot be", ranges),
    Case::simulated("lengths that cannot be", lengths),
    Case::simulated("blocks that cannot be", block_sizes),
    Case::simulated("a cache that is larger than the device", cache),
    Case::simulated("zeroes that nobody may write", unwritable),
    Case::simulated("splitting what cannot be split", unsplittable),
];

type Operation = fn(&mut cuda_vmm::ElasticRange, usize, usize) -> Result<(), Error>;
type Resize = fn(&mut cuda_vmm::ElasticRange, usize) -> Result<(), Error>;

fn ranges(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(8).reserve().unwrap();
    range.commit(0, 2 * g).unwrap();
    let operations: [Operation; 4] = [
        |range, offset, size| range.commit(offset, size).map(drop),
        |range, offset, size| range.decommit(offset, size).map(drop),
        |range, offset, size| range.decommit_after(offset, size, unwaited()).map(drop),
        |range, offset, size| range.decommit_splitting(offset, size, unwaited()).map(drop),
    ];
    for operation in operations {
        let mut refused =
            |offset, size| machine.refused(&mut range, |range| operation(range, offset, size));
        says(
            &refused(0, 0),
            &Error::ZeroSize { what: What::Size },
            "size is zero: give a size in bytes",
        );
        says(
            &refused(g, usize::MAX),
            &Error::Overflow {
                offset: g,
                size: usize::MAX,
            },
            "offset 2097152 + size 18446744073709551615 overflows: was a negative number converted to an unsigned one?",
        );
        says(
            &refused(7 * g, 2 * g),
            &Error::OutOfRange {
                offset: 7 * g,
                size: 2 * g,
                len: 8 * g,
            },
            "[0xe00000, 0x1200000) (4 MiB) is outside [0x0, 0x1000000) (16 MiB): offset 14680064, size 4194304 and \
             the reservation's 16777216 are bytes, not elements",
        );
        says(
            &refused(4096, g),
            &Error::Misaligned {
                what: What::Offset,
                value: 4096,
                granularity: g,
            },
            "offset 4096 is not a multiple of the granularity 2097152 bytes (2 MiB): the next multiple is 2097152, \
             the one before 0",
        );
        says(
            &refused(0, g + 1),
            &Error::Misaligned {
                what: What::Size,
                value: g + 1,
                granularity: g,
            },
            "size 2097153 is not a multiple of the granularity 2097152 bytes (2 MiB): the next multiple is 4194304, \
             the one before 2097152",
        );
    }
    range.close().unwrap();
}

fn unwaited() -> Fence<'static> {
    Fence::closure(|_| -> Result<(), String> { panic!("checks come before the wait") })
}

fn lengths(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(8).reserve().unwrap();
    range.resize(4 * g).unwrap();
    let error = machine.refused(&mut range, |range| range.resize(9 * g));
    let expected = Error::OutOfRange {
        offset: 4 * g,
        size: 5 * g,
        len: 8 * g,
    };
    assert_eq!(format!("{error:?}"), format!("{expected:?}"));
    for len in [g + 1, 5 * g - 1] {
        let error = machine.refused(&mut range, |range| range.resize_after(len, unwaited()));
        assert!(matches!(error, Error::Misaligned { .. }), "{error:?}");
        let error = machine.refused(&mut range, |range| range.resize(len));
        assert!(matches!(error, Error::Misaligned { .. }), "{error:?}");
    }
    // A hole ends where the range is to end: it would become shorter than was said.
    range.decommit(g, 2 * g).unwrap();
    for len in [2 * g, 3 * g] {
        let resizes: [Resize; 2] = [
            |range, len| range.resize(len).map(drop),
            |range, len| range.resize_after(len, unwaited()).map(drop),
        ];
        for resize in resizes {
            says(
                &machine.refused(&mut range, |range| resize(range, len)),
                &Error::NotCommitted {
                    asked: 0..len,
                    gap: g..len,
                },
                &format!(
                    "[0x0, {len:#x}) ({} MiB) contains the bytes [0x200000, {len:#x}) ({} MiB), which are not \
                     committed: commit them first",
                    len >> 20,
                    (len - g) >> 20
                ),
            );
        }
    }
    // Where the hole begins it can end.
    range.resize(g).unwrap();
    assert_eq!(range.len(), g);
    range.close().unwrap();
}

/// What a builder is refused with, before any driver call but questions about granularities, which are known by now.
#[track_caller]
fn refused(machine: &Machine, builder: ElasticRangeBuilder) -> Error {
    let before = (machine.sim().calls(), machine.sim().snapshot());
    let error = builder.reserve().map(drop).unwrap_err();
    assert_eq!((machine.sim().calls(), machine.sim().snapshot()), before);
    error
}

fn block_sizes(machine: &Machine) {
    let g = machine.g;
    let builder = || machine.builder(64);
    says(
        &refused(machine, machine.builder(0)),
        &Error::ZeroSize {
            what: What::ReservationSize,
        },
        "reservation size is zero: give a size in bytes",
    );
    says(
        &refused(machine, builder().blocks(0..=g)),
        &Error::ZeroSize {
            what: What::BlockSize,
        },
        "block size is zero: give a size in bytes",
    );
    says(
        &refused(machine, builder().blocks(g..=3 * g)),
        &Error::BlockNotPowerOfTwo { size: 3 * g },
        "block size 6291456 is not a power of two, or 8388608",
    );
    says(
        &refused(machine, builder().blocks(g / 2..=g)),
        &Error::BlockBelowGranularity {
            size: g / 2,
            granularity: g,
        },
        "block size 1048576 is below the granularity 2097152 bytes (2 MiB)",
    );
    #[allow(clippy::reversed_empty_ranges)] // The mistake in question.
    says(
        &refused(machine, builder().alignment(3 * g)),
        &Error::BadAlignment { alignment: 3 * g },
        "alignment 6291456 is not a power of two: use 0 for the driver's choice, or 8388608",
    );
    let upside_down = builder().blocks(8 * g..=4 * g);
    says(
        &refused(machine, upside_down),
        &Error::BlocksOutOfOrder {
            least: 8 * g,
            greatest: 4 * g,
        },
        "the least block, 16777216 bytes (16 MiB), is larger than the greatest, 8388608 bytes (8 MiB)",
    );
    says(
        &refused(machine, machine.builder(12).blocks(8 * g..=8 * g)),
        &Error::Misaligned {
            what: What::ReservationSize,
            value: 12 * g,
            granularity: 8 * g,
        },
        "reservation size 25165824 is not a multiple of the granularity 16777216 bytes (16 MiB): the next multiple is \
         33554432, the one before 16777216",
    );
}

fn cache(machine: &Machine) {
    let total = machine.devices[0].total_memory().unwrap();
    let before = machine.sim().snapshot();
    let error = machine
        .builder(64)
        .cache(total + 1)
        .reserve()
        .map(drop)
        .unwrap_err();
    says(
        &error,
        &Error::CacheBeyondMemory {
            cache: total + 1,
            total,
            location: Location::Device(0),
        },
        "a cache of 149250113537 bytes is more than device 0 has, 149250113536 bytes (139 GiB)",
    );
    assert_eq!(machine.sim().snapshot(), before);
    machine
        .builder(64)
        .cache(total)
        .reserve()
        .unwrap()
        .close()
        .unwrap();
}

fn unwritable(machine: &Machine) {
    use cuda_vmm::{Access, Contents, ElasticRange};
    let g = machine.g;
    let builder =
        ElasticRange::builder(8 * g, &machine.props()).access(&machine.devices[0], Access::Read);
    let mut range = builder.contents(Contents::Zeroed).reserve().unwrap();
    says(
        &machine.refused(&mut range, |range| range.commit(g, 2 * g)),
        &Error::NoAccess {
            range: g..3 * g,
            verb: "write",
        },
        "no device may write all of [0x200000, 0x600000) (4 MiB): grant one the access first",
    );
    range
        .set_policy(&machine.devices[1], Access::ReadWrite)
        .unwrap();
    range.commit(g, 2 * g).unwrap();
    range.close().unwrap();
}

fn unsplittable(machine: &Machine) {
    use cuda_vmm::{Access, ElasticRange, HandleType, HandleTypes};
    let g = machine.g;
    let builder = ElasticRange::builder(8 * g, &machine.props()).blocks(g..=8 * g);
    let mut range = builder.reserve().unwrap();
    range.commit(0, 8 * g).unwrap();
    says(
        &machine.refused(&mut range, |range| {
            range.decommit_splitting(g, g, unwaited())
        }),
        &Error::NoAccess {
            range: 0..8 * g,
            verb: "read",
        },
        "no device may read all of [0x0, 0x1000000) (16 MiB): grant one the access first",
    );
    range.close().unwrap();

    // What others know stays where they know it, and is not reused either.
    let props = machine.props().shareable_as(HandleTypes::FABRIC);
    let builder =
        ElasticRange::builder(8 * g, &props).access(&machine.devices[0], Access::ReadWrite);
    let mut range = builder.cache(8 * g).reserve().unwrap();
    range.commit(0, 8 * g).unwrap();
    let exported = range
        .reservation()
        .export_span(0, 8 * g, HandleType::Fabric, Access::Read)
        .unwrap();
    says(
        &machine.refused(&mut range, |range| range.decommit_splitting(g, g, unwaited())),
        &Error::BlockKnownOutside { block: 0..8 * g },
        "the block at [0x0, 0x1000000) (16 MiB) was exported or is held elsewhere, so it cannot be split: decommit without splitting",
    );
    let gone = range.decommit(0, 8 * g).unwrap();
    assert_eq!((gone.released, gone.cached), (8 * g, 0));
    drop(exported);
    range.close().unwrap();
}
