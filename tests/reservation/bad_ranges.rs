//! Ranges that cannot be meant: each is refused before the driver is called, with the numbers.

use cuda_vmm::{Access, Error, Location, Reservation, What};

use crate::rig::{same, says, Rig, G};

/// `[##.#....]`: a mapping of two granules, a hole, a mapping of one, a hole.
fn furnished(rig: &Rig) -> Reservation {
    let mut kv = rig.reserve(8);
    kv.map(0, 2 * G, &rig.props()).unwrap();
    kv.map(3 * G, G, &rig.props()).unwrap();
    kv
}

/// Everything that takes an offset and a size, by name.
type Ranged = (
    &'static str,
    fn(&Rig, &mut Reservation, usize, usize) -> Result<(), Error>,
);

const MAP: Ranged = ("map", |rig, kv, offset, size| {
    kv.map(offset, size, &rig.props()).map(drop)
});
const MAP_RELEASING: Ranged = ("map_releasing", |rig, kv, offset, size| {
    kv.map_releasing(offset, size, &rig.props()).map(drop)
});
const UNMAP_RANGE: Ranged = ("unmap_range", |_, kv, offset, size| {
    kv.unmap_range(offset, size)
});
const SET_ACCESS: Ranged = ("set_access", |_, kv, offset, size| {
    kv.set_access(offset, size, Location::Device(0), Access::Read)
});
const FILL: Ranged = ("fill", |_, kv, offset, size| kv.fill(offset, size, 1));
const COPY_WITHIN: Ranged = ("copy_within", |_, kv, offset, size| {
    kv.copy_within(offset, 0, size)
});
const VIEW: Ranged = ("view", |_, kv, offset, size| {
    kv.view(offset, size).map(drop)
});

const ALL: [Ranged; 7] = [
    MAP,
    MAP_RELEASING,
    UNMAP_RANGE,
    SET_ACCESS,
    FILL,
    COPY_WITHIN,
    VIEW,
];

/// Copies to and from the host, whose size is a slice's.
const WRITE: Ranged = ("write", |_, kv, offset, size| {
    kv.write(offset, &vec![1; size])
});
const READ: Ranged = ("read", |_, kv, offset, size| {
    kv.read(offset, &mut vec![0; size])
});

/// Those that need what they name to be mapped.
const MAPPED: [Ranged; 5] = [UNMAP_RANGE, SET_ACCESS, FILL, COPY_WITHIN, VIEW];

fn each(operations: &[Ranged], offset: usize, size: usize, expected: &Error, text: &str) {
    for (name, run) in operations {
        let rig = Rig::new();
        let mut kv = furnished(&rig);
        let error = rig.refused(&mut kv, |kv| run(&rig, kv, offset, size));
        println!("{name}: {error}");
        says(&error, expected, text);
        kv.close().unwrap();
        rig.leaves_nothing();
    }
}

#[test]
fn nothing_at_all() {
    let expected = Error::ZeroSize { what: What::Size };
    each(&ALL, G, 0, &expected, "size is zero: give a size in bytes");

    let rig = Rig::new();
    let mut kv = furnished(&rig);
    same(&rig.refused(&mut kv, |kv| kv.write(0, &[])), &expected);
    same(&rig.refused(&mut kv, |kv| kv.read(0, &mut [])), &expected);
}

#[test]
fn past_the_end() {
    each(
        &ALL,
        7 * G,
        2 * G,
        &Error::OutOfRange {
            offset: 7 * G,
            size: 2 * G,
            len: 8 * G,
        },
        "[0xe00000, 0x1200000) (4 MiB) is outside [0x0, 0x1000000) (16 MiB): \
         offset 14680064, size 4194304 and the reservation's 16777216 are bytes, not elements",
    );
}

#[test]
fn behind_the_end() {
    each(
        &ALL,
        8 * G,
        G,
        &Error::OutOfRange {
            offset: 8 * G,
            size: G,
            len: 8 * G,
        },
        "[0x1000000, 0x1200000) (2 MiB) is outside [0x0, 0x1000000) (16 MiB): \
         offset 16777216, size 2097152 and the reservation's 16777216 are bytes, not elements",
    );
}

#[test]
fn an_end_beyond_all_addresses() {
    each(
        &ALL,
        G,
        usize::MAX - G + 1,
        &Error::Overflow {
            offset: G,
            size: usize::MAX - G + 1,
        },
        "offset 2097152 + size 18446744073707454464 overflows: was a negative number converted to an unsigned one?",
    );
}

#[test]
fn a_negative_offset_as_a_huge_one() {
    let offset = (-2 * G as isize) as usize;
    each(
        &ALL,
        offset,
        G,
        &Error::OutOfRange {
            offset,
            size: G,
            len: 8 * G,
        },
        "[0xffffffffffc00000, 0xffffffffffe00000) (2 MiB) is outside [0x0, 0x1000000) (16 MiB): \
         offset 18446744073705357312, size 2097152 and the reservation's 16777216 are bytes, not elements",
    );
    each(
        &ALL,
        offset,
        2 * G,
        &Error::Overflow {
            offset,
            size: 2 * G,
        },
        "offset 18446744073705357312 + size 4194304 overflows: was a negative number converted to an unsigned one?",
    );
}

#[test]
fn host_copies_at_offsets_that_no_address_has() {
    for offset in [8 * G, usize::MAX / 2, usize::MAX - 8] {
        let error = Error::OutOfRange {
            offset,
            size: 8,
            len: 8 * G,
        };
        let text = format!(
            "[{offset:#x}, {:#x}) (8 B) is outside [0x0, 0x1000000) (16 MiB): \
             offset {offset}, size 8 and the reservation's 16777216 are bytes, not elements",
            offset + 8
        );
        each(&[WRITE, READ], offset, 8, &error, &text);
    }
    let error = Error::Overflow {
        offset: usize::MAX,
        size: 8,
    };
    let text = "offset 18446744073709551615 + size 8 overflows: was a negative number converted to an unsigned one?";
    each(&[WRITE, READ], usize::MAX, 8, &error, text);
}

#[test]
fn an_offset_between_granules() {
    each(
        &[MAP, MAP_RELEASING],
        4096,
        G,
        &Error::Misaligned {
            what: What::Offset,
            value: 4096,
            granularity: G,
        },
        "offset 4096 is not a multiple of the granularity 2097152 bytes (2 MiB): the next multiple is 2097152, the one before 0",
    );
}

#[test]
fn a_size_between_granules() {
    each(
        &[MAP, MAP_RELEASING],
        4 * G,
        6912,
        &Error::Misaligned {
            what: What::Size,
            value: 6912,
            granularity: G,
        },
        "size 6912 is not a multiple of the granularity 2097152 bytes (2 MiB): the next multiple is 2097152, the one before 0",
    );
}

#[test]
fn over_a_live_mapping() {
    each(
        &[MAP, MAP_RELEASING],
        2 * G,
        2 * G,
        &Error::Overlap {
            asked: 2 * G..4 * G,
            existing: 3 * G..4 * G,
        },
        "[0x400000, 0x800000) (4 MiB) overlaps the mapping at [0x600000, 0x800000) (2 MiB): unmap that first, or map beside it",
    );
    each(
        &[MAP, MAP_RELEASING],
        G,
        4 * G,
        &Error::Overlap {
            asked: G..5 * G,
            existing: 0..2 * G,
        },
        "[0x200000, 0xa00000) (8 MiB) overlaps the mapping at [0x0, 0x400000) (4 MiB): unmap that first, or map beside it",
    );
}

#[test]
fn over_a_hole() {
    each(
        &MAPPED,
        0,
        4 * G,
        &Error::Hole {
            asked: 0..4 * G,
            hole: 2 * G..3 * G,
        },
        "[0x0, 0x800000) (8 MiB) contains the unmapped bytes [0x400000, 0x600000) (2 MiB): name a range that is mapped throughout",
    );
    each(
        &MAPPED,
        5 * G,
        2 * G,
        &Error::Hole {
            asked: 5 * G..7 * G,
            hole: 5 * G..7 * G,
        },
        "nothing is mapped in [0xa00000, 0xe00000) (4 MiB)",
    );
    each(
        &MAPPED,
        3 * G,
        5 * G,
        &Error::Hole {
            asked: 3 * G..8 * G,
            hole: 4 * G..8 * G,
        },
        "[0x600000, 0x1000000) (10 MiB) contains the unmapped bytes [0x800000, 0x1000000) (8 MiB): name a range that is mapped throughout",
    );
}

#[test]
fn through_a_mapping() {
    let text = "cuts the mapping at [0x0, 0x400000) (4 MiB): name whole mappings";
    for (offset, size, shown) in [(0, G, "2 MiB"), (G, G, "2 MiB"), (G - 1, 2, "2 B")] {
        each(
            &[UNMAP_RANGE, SET_ACCESS],
            offset,
            size,
            &Error::PartialMapping {
                asked: offset..offset + size,
                mapping: 0..2 * G,
            },
            &format!("[{offset:#x}, {:#x}) ({shown}) {text}", offset + size),
        );
    }
}

#[test]
fn through_the_last_of_several_mappings() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    kv.map(0, G, &rig.props()).unwrap();
    kv.map(G, 2 * G, &rig.props()).unwrap();
    let error = rig.refused(&mut kv, |kv| kv.unmap_range(0, 2 * G));
    let expected = Error::PartialMapping {
        asked: 0..2 * G,
        mapping: G..3 * G,
    };
    same(&error, &expected);
}

#[test]
fn rights_at_one_byte() {
    let rig = Rig::new();
    let mut kv = furnished(&rig);
    let ask = |kv: &mut Reservation, offset| kv.access_of(offset, Location::Device(0));
    same(
        &rig.refused(&mut kv, |kv| ask(kv, 2 * G + 5)),
        &Error::Hole {
            asked: 2 * G + 5..2 * G + 6,
            hole: 2 * G + 5..2 * G + 6,
        },
    );
    same(
        &rig.refused(&mut kv, |kv| ask(kv, 8 * G)),
        &Error::OutOfRange {
            offset: 8 * G,
            size: 1,
            len: 8 * G,
        },
    );
    same(
        &rig.refused(&mut kv, |kv| ask(kv, usize::MAX)),
        &Error::Overflow {
            offset: usize::MAX,
            size: 1,
        },
    );
}

#[test]
fn copies_of_both_ranges() {
    let rig = Rig::new();
    let mut kv = furnished(&rig);
    let hole = Error::Hole {
        asked: 2 * G..2 * G + 16,
        hole: 2 * G..2 * G + 16,
    };
    same(
        &rig.refused(&mut kv, |kv| kv.copy_within(0, 2 * G, 16)),
        &hole,
    );
    same(
        &rig.refused(&mut kv, |kv| kv.copy_within(2 * G, 0, 16)),
        &hole,
    );
    says(
        &rig.refused(&mut kv, |kv| kv.copy_within(8, 0, 16)),
        &Error::OverlappingCopy {
            to: 8..24,
            from: 0..16,
        },
        "[0x0, 0x10) (16 B) cannot be copied to [0x8, 0x18) (16 B), which shares memory with it: copy by way of a third range",
    );
    let mut other = rig.reserve(1);
    other.map(0, G, &rig.props()).unwrap();
    let error = rig.refused(&mut kv, |kv| kv.copy_from(0, &other, G - 8, 16));
    same(
        &error,
        &Error::OutOfRange {
            offset: G - 8,
            size: 16,
            len: G,
        },
    );
    same(
        &rig.refused(&mut kv, |kv| kv.copy_from(2 * G, &other, 0, 16)),
        &hole,
    );
}
