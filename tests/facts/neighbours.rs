//! Several reservations side by side, and what reaches from one into the next.

use crate::case::{case, Section};
use crate::codes::{call, NOT_FOUND};
use crate::gpu::Gpu;
use crate::owned::{Handle, Range};
use crate::props::{device, rights, NO_ACCESS, READ, READ_WRITE};

pub const SECTION: Section = Section {
    name: "neighbours",
    cases: &[
        case("copy_over_the_border", BYTES, |gpu| {
            let sides = Sides::new(gpu);
            let bytes: Vec<u8> = (1..=100).collect();
            let at = sides.border() - 37;
            call!(gpu, cuMemcpyHtoD_v2(at, bytes.as_ptr().cast(), bytes.len()) => SUCCESS);
            assert_eq!(gpu.bytes(at, bytes.len()), bytes);
        }),
        case("copy_between_the_sides", BYTES, |gpu| {
            let sides = Sides::new(gpu);
            call!(gpu, cuMemcpyDtoD_v2(sides.second.base, sides.first.at(3), gpu.granularity) => SUCCESS);
            call!(gpu, cuCtxSynchronize() => SUCCESS);
            assert_eq!(gpu.byte(sides.second.at(1) - 1), 0xa1);
        }),
        case(
            "unmap_one_side",
            "an unmap up to the border leaves the other side",
            |gpu| {
                let sides = Sides::new(gpu);
                call!(gpu, cuMemUnmap(sides.first.base, sides.first.size) => SUCCESS);
                assert_eq!(gpu.extent(sides.border() - 1), Err(NOT_FOUND));
                assert_eq!(gpu.byte(sides.border()), 0xb2);
                sides.first.free();
                assert_eq!(gpu.byte(sides.border()), 0xb2);
            },
        ),
        case(
            "read_into_the_unmapped_side",
            "a copy over the border needs memory on both sides",
            |gpu| {
                let sides = Sides::new(gpu);
                call!(gpu, cuMemUnmap(sides.second.base, gpu.granularity) => SUCCESS);
                let mut bytes = [0xa5_u8; 8];
                let from = sides.border() - 4;
                call!(gpu, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, 8) => INVALID_VALUE);
                assert_eq!(bytes, [0xa5; 8]);
            },
        ),
        case(
            "narrow_over_the_border",
            "one grant narrows the mappings on both sides",
            |gpu| {
                let sides = Sides::new(gpu);
                gpu.grant(sides.first.at(3), gpu.granules(2), READ);
                sides.demand_rights(READ, READ);
                call!(gpu, cuMemsetD8_v2(sides.border() - 1, 1, 2) => INVALID_VALUE);
                assert_eq!(gpu.bytes(sides.border() - 1, 2), [0xa1, 0xb2]);
            },
        ),
        case(
            "grant_into_the_unmapped_side",
            "a grant that ends unmapped behind the border is refused",
            |gpu| {
                let sides = Sides::new(gpu);
                let (at, size) = (sides.first.at(3), gpu.granules(3));
                let read = rights(device(0), READ);
                gpu.nothing_changes(|| {
                    call!(gpu, cuMemSetAccess(at, size, &read, 1) => INVALID_VALUE);
                });
                sides.demand_rights(READ_WRITE, READ_WRITE);
            },
        ),
        case("different_rights", BYTES, |gpu| {
            let sides = Sides::new(gpu);
            gpu.grant(sides.second.base, gpu.granularity, READ);
            sides.demand_rights(READ_WRITE, READ);
            assert_eq!(gpu.bytes(sides.border() - 1, 2), [0xa1, 0xb2]);
            call!(gpu, cuMemsetD8_v2(sides.border() - 1, 1, 2) => INVALID_VALUE);
        }),
        case(
            "extents",
            "the extents of both sides end at the border",
            |gpu| {
                let sides = Sides::new(gpu);
                let g = gpu.granularity;
                let before = Ok((sides.border() - g as u64, g));
                assert_eq!(gpu.extent(sides.border() - 1), before);
                assert_eq!(gpu.extent(sides.border()), Ok((sides.border(), g)));
            },
        ),
        case("straddling_and_unmapped_in_half", STRADDLES, |gpu| {
            let across = Straddling::new(gpu);
            gpu.nothing_changes(|| {
                call!(gpu, cuMemUnmap(across.first.at(3), gpu.granularity) => INVALID_VALUE);
                call!(gpu, cuMemUnmap(across.second.base, gpu.granularity) => INVALID_VALUE);
            });
            let whole = Ok((across.first.at(3), across.memory.size));
            assert_eq!(gpu.extent(across.second.base), whole);
        }),
        case("straddling_and_granted_in_half", STRADDLES, |gpu| {
            let across = Straddling::new(gpu);
            let read = rights(device(0), READ);
            gpu.nothing_changes(|| {
                call!(gpu, cuMemSetAccess(across.second.base, gpu.granularity, &read, 1) => INVALID_VALUE);
            });
            assert_eq!(gpu.rights(across.first.at(3)), Ok(READ_WRITE));
            assert_eq!(gpu.rights(across.second.base), Ok(READ_WRITE));
        }),
        case("straddling_and_mapped_over", STRADDLES, |gpu| {
            let across = Straddling::new(gpu);
            let another = gpu.create(1);
            gpu.nothing_changes(|| {
                call!(gpu, cuMemMap(across.second.base, another.size, 0, another.raw, 0) => INVALID_VALUE);
            });
        }),
        case("straddling_and_first_freed", STRADDLES, |gpu| {
            let Straddling { first, .. } = &Straddling::new(gpu);
            gpu.nothing_changes(|| {
                call!(gpu, cuMemAddressFree(first.base, first.size) => INVALID_VALUE);
            });
        }),
        case("straddling_and_second_freed", STRADDLES, |gpu| {
            let across = Straddling::new(gpu);
            let second = &across.second;
            gpu.nothing_changes(|| {
                call!(gpu, cuMemAddressFree(second.base, second.size) => INVALID_VALUE);
            });
            call!(gpu, cuMemUnmap(across.first.at(3), across.memory.size) => SUCCESS);
            second.free();
        }),
        case("three_in_a_row_unmapped_at_once", ROW, |gpu| {
            let row = row(gpu);
            let _memory = [gpu.back(row[0].base, 1), gpu.back(row[2].at(1), 1)];
            call!(gpu, cuMemUnmap(row[0].base, gpu.granules(6)) => SUCCESS);
            assert_eq!(gpu.extent(row[0].base), Err(NOT_FOUND));
            assert_eq!(gpu.extent(row[2].at(1)), Err(NOT_FOUND));
        }),
        case("unmap_over_a_freed_one", ROW, |gpu| {
            let row = row(gpu);
            let _memory = [gpu.back(row[0].at(1), 1), gpu.back(row[2].base, 1)];
            row[1].free();
            call!(gpu, cuMemUnmap(row[0].at(1), gpu.granules(4)) => SUCCESS);
            assert_eq!(gpu.extent(row[0].at(1)), Err(NOT_FOUND), "before the gap");
            assert_eq!(gpu.extent(row[2].base), Err(NOT_FOUND), "behind the gap");
        }),
        case(
            "grant_over_a_freed_one",
            "a gap between reservations is as a hole within one: what lies behind keeps its rights",
            |gpu| {
                let row = row(gpu);
                let memory = [gpu.create(1), gpu.create(1)];
                gpu.map(row[0].at(1), &memory[0]);
                gpu.map(row[2].base, &memory[1]);
                row[1].free();
                gpu.grant(row[0].at(1), gpu.granules(4), READ_WRITE);
                assert_eq!(gpu.rights(row[0].at(1)), Ok(READ_WRITE));
                assert_eq!(gpu.rights(row[2].base), Ok(NO_ACCESS));
            },
        ),
        case(
            "freed_in_the_middle",
            "a reservation between two others is freed alone, and its place asked for again",
            |gpu| {
                let row = row(gpu);
                let _memory = [gpu.back(row[0].at(1), 1), gpu.back(row[2].base, 1)];
                row[1].free();
                let again = gpu.reserve_at(2, row[1].base);
                let _there = gpu.back(again.base, 2);
                assert_eq!(gpu.rights(row[0].at(1)), Ok(READ_WRITE));
                assert_eq!(gpu.rights(row[2].base), Ok(READ_WRITE));
            },
        ),
        case(
            "map_into_a_freed_one",
            "addresses of a freed reservation between two others cannot be mapped",
            |gpu| {
                let row = row(gpu);
                let memory = gpu.create(1);
                row[1].free();
                gpu.nothing_changes(|| {
                    call!(gpu, cuMemMap(row[1].base, memory.size, 0, memory.raw, 0) => INVALID_VALUE);
                });
            },
        ),
        case(
            "map_from_one_over_a_freed_one",
            "only where a mapping starts must be reserved, though what is behind was freed",
            |gpu| {
                let row = row(gpu);
                let memory = gpu.create(2);
                row[1].free();
                gpu.map(row[0].at(1), &memory);
                gpu.grant(row[0].at(1), memory.size, READ_WRITE);
                gpu.fill(row[0].at(1), 0x1d, memory.size);
                assert_eq!(gpu.byte(row[1].at(1) - 1), 0x1d);
                call!(gpu, cuMemUnmap(row[0].at(1), memory.size) => SUCCESS);
            },
        ),
    ],
};

const BYTES: &str = "copies run over the border of two reservations as over any seam";
const STRADDLES: &str = "a mapping across two reservations is one mapping, and holds both";
const ROW: &str =
    "an unmap runs over whole reservations, and over what is not reserved between them";

/// Two adjacent reservations of four granules, the granules on either side of the border mapped: filled with 0xa1
/// before it and 0xb2 behind it.
struct Sides<'g> {
    gpu: &'g Gpu,
    first: Range<'g>,
    second: Range<'g>,
    _memory: [Handle<'g>; 2],
}

impl<'g> Sides<'g> {
    fn new(gpu: &'g Gpu) -> Self {
        let (first, second) = gpu.reserve_adjacent(4, 4);
        let memory = [gpu.back(first.at(3), 1), gpu.back(second.base, 1)];
        gpu.fill(first.at(3), 0xa1, gpu.granularity);
        gpu.fill(second.base, 0xb2, gpu.granularity);
        Sides {
            gpu,
            first,
            second,
            _memory: memory,
        }
    }

    fn border(&self) -> u64 {
        self.second.base
    }

    #[track_caller]
    fn demand_rights(&self, before: u64, behind: u64) {
        assert_eq!(self.gpu.rights(self.border() - 1), Ok(before), "before");
        assert_eq!(self.gpu.rights(self.border()), Ok(behind), "behind");
    }
}

/// Two adjacent reservations of four granules, and a mapping of two granules across the border, which is unmapped first
/// when dropped: neither reservation's own end would do it.
struct Straddling<'g> {
    gpu: &'g Gpu,
    first: Range<'g>,
    second: Range<'g>,
    memory: Handle<'g>,
}

impl<'g> Straddling<'g> {
    fn new(gpu: &'g Gpu) -> Self {
        let (first, second) = gpu.reserve_adjacent(4, 4);
        let memory = gpu.back(first.at(3), 2);
        Straddling {
            gpu,
            first,
            second,
            memory,
        }
    }
}

impl Drop for Straddling<'_> {
    fn drop(&mut self) {
        let at = self.first.at(3);
        let _ = unsafe { self.gpu.calls().cuMemUnmap(at, self.memory.size) };
    }
}

/// Three reservations of two granules in a row.
fn row(gpu: &Gpu) -> [Range<'_>; 3] {
    let (first, rest) = gpu.reserve_adjacent(2, 4);
    let base = rest.base;
    rest.free();
    let second = gpu.reserve_at(2, base);
    let third = gpu.reserve_at(2, second.end());
    assert_eq!(
        (second.base, third.base),
        (first.end(), second.end()),
        "the driver did not follow the hints: no reservations in a row to test with"
    );
    [first, second, third]
}
