//! One handle at several addresses: what the addresses share, and what each has for itself.

use crate::case::{case, Section};
use crate::codes::{call, INVALID_VALUE, NOT_FOUND};
use crate::gpu::Gpu;
use crate::owned::{Handle, Range};
use crate::props::{NO_ACCESS, READ, READ_WRITE};

pub const SECTION: Section = Section {
    name: "aliases",
    cases: &[
        case(
            "in_two_reservations",
            "one handle can be mapped in two reservations; both show the same bytes",
            |gpu| {
                let (one, two) = (gpu.reserve(2), gpu.reserve(2));
                let memory = gpu.back(one.base, 1);
                also(gpu, &memory, &two, 1, READ_WRITE);
                gpu.fill(one.base, 0x19, gpu.granularity);
                assert_eq!(
                    gpu.bytes(two.at(1), gpu.granularity),
                    vec![0x19; gpu.granularity]
                );
            },
        ),
        case("rights_read_beside_read_write", RIGHTS, |gpu| {
            let (range, memory) = first(gpu);
            also(gpu, &memory, &range, 2, READ);
            assert_eq!(gpu.rights(range.base), Ok(READ_WRITE));
            assert_eq!(gpu.rights(range.at(2)), Ok(READ));
            call!(gpu, cuMemsetD8_v2(range.at(2), 1, 16) => INVALID_VALUE);
            gpu.fill(range.base, 0x2a, 16);
            assert_eq!(gpu.bytes(range.at(2), 16), [0x2a; 16]);
        }),
        case("rights_none_beside_read_write", RIGHTS, |gpu| {
            let (range, memory) = first(gpu);
            gpu.map(range.at(2), &memory);
            assert_eq!(gpu.rights(range.at(2)), Ok(NO_ACCESS));
            let mut byte = 0xa5_u8;
            call!(gpu, cuMemcpyDtoH_v2((&raw mut byte).cast(), range.at(2), 1) => INVALID_VALUE);
            assert_eq!(byte, 0xa5);
            assert_eq!(gpu.byte(range.base), 0x51);
        }),
        case("rights_taken_from_one", RIGHTS, |gpu| {
            let (range, memory) = first(gpu);
            also(gpu, &memory, &range, 2, READ_WRITE);
            gpu.grant(range.base, gpu.granularity, NO_ACCESS);
            assert_eq!(gpu.rights(range.base), Ok(NO_ACCESS));
            assert_eq!(gpu.rights(range.at(2)), Ok(READ_WRITE));
            assert_eq!(gpu.byte(range.at(2)), 0x51);
        }),
        case("unmap_one", KEPT, |gpu| {
            let (range, memory) = first(gpu);
            also(gpu, &memory, &range, 2, READ);
            call!(gpu, cuMemUnmap(range.base, gpu.granularity) => SUCCESS);
            assert_eq!(gpu.extent(range.base), Err(NOT_FOUND));
            assert_eq!(gpu.rights(range.at(2)), Ok(READ));
            assert_eq!(gpu.byte(range.at(2)), 0x51);
        }),
        case("release_then_unmap_one", KEPT, |gpu| {
            let before = gpu.free_bytes();
            let (range, memory) = first(gpu);
            also(gpu, &memory, &range, 2, READ_WRITE);
            memory.release();
            call!(gpu, cuMemUnmap(range.base, gpu.granularity) => SUCCESS);
            assert_eq!(
                gpu.free_bytes(),
                before - memory.size,
                "the other mapping keeps it"
            );
            assert_eq!(gpu.byte(range.at(2)), 0x51);
            call!(gpu, cuMemUnmap(range.at(2), gpu.granularity) => SUCCESS);
            assert_eq!(gpu.free_bytes(), before, "the last mapping is gone");
        }),
        case("reservation_of_one_freed", KEPT, |gpu| {
            let (one, memory) = first(gpu);
            let two = gpu.reserve(1);
            also(gpu, &memory, &two, 0, READ_WRITE);
            call!(gpu, cuMemUnmap(one.base, gpu.granularity) => SUCCESS);
            one.free();
            assert_eq!(gpu.rights(two.base), Ok(READ_WRITE));
            assert_eq!(gpu.byte(two.base), 0x51);
        }),
        case(
            "side_by_side",
            "mapped twice side by side, a copy over the seam goes round the memory",
            |gpu| {
                let (range, memory) = first(gpu);
                also(gpu, &memory, &range, 1, READ_WRITE);
                gpu.fill(range.base, 0x71, 8);
                gpu.fill(range.at(1) - 8, 0x72, 8);
                let seam = gpu.bytes(range.at(1) - 8, 16);
                assert_eq!(seam, [[0x72; 8], [0x71; 8]].concat());
                // Written over the seam, the first bytes are those behind it.
                gpu.fill(range.at(1) - 4, 0x73, 8);
                assert_eq!(gpu.bytes(range.base, 8), [[0x73; 4], [0x71; 4]].concat());
            },
        ),
        case(
            "side_by_side_unmapped_at_once",
            "mappings of one handle side by side are unmapped by one call",
            |gpu| {
                let (range, memory) = first(gpu);
                also(gpu, &memory, &range, 1, READ_WRITE);
                call!(gpu, cuMemUnmap(range.base, gpu.granules(2)) => SUCCESS);
                assert_eq!(gpu.extent(range.base), Err(NOT_FOUND));
                assert_eq!(gpu.extent(range.at(1)), Err(NOT_FOUND));
            },
        ),
        case(
            "granted_at_once",
            "one grant covers several mappings of one handle",
            |gpu| {
                let range = gpu.reserve(3);
                let memory = gpu.create(1);
                (0..3).for_each(|granule| gpu.map(range.at(granule), &memory));
                gpu.grant(range.base, range.size, READ_WRITE);
                (0..3).for_each(|granule| {
                    assert_eq!(gpu.rights(range.at(granule)), Ok(READ_WRITE));
                });
            },
        ),
        case(
            "extents",
            "each mapping of a handle is an extent of its own",
            |gpu| {
                let (range, memory) = first(gpu);
                also(gpu, &memory, &range, 1, READ_WRITE);
                let g = gpu.granularity;
                assert_eq!(gpu.extent(range.at(1) - 1), Ok((range.base, g)));
                assert_eq!(gpu.extent(range.at(1)), Ok((range.at(1), g)));
            },
        ),
        case(
            "retained_from_either",
            "retaining at any of its addresses gives the same handle",
            |gpu| {
                let (range, memory) = first(gpu);
                also(gpu, &memory, &range, 2, READ_WRITE);
                assert_eq!(gpu.retain(range.base, 1).raw, memory.raw);
                assert_eq!(gpu.retain(range.at(2), 1).raw, memory.raw);
            },
        ),
        case(
            "copy_from_one_to_the_other",
            "bytes are copied within the memory, through two addresses of it",
            |gpu| {
                let (range, memory) = first(gpu);
                also(gpu, &memory, &range, 2, READ_WRITE);
                let half = gpu.granularity / 2;
                gpu.fill(range.base, 0x44, half);
                let upper = range.at(2) + half as u64;
                call!(gpu, cuMemcpyDtoD_v2(upper, range.base, half) => SUCCESS);
                call!(gpu, cuCtxSynchronize() => SUCCESS);
                assert_eq!(
                    gpu.bytes(range.base, gpu.granularity),
                    vec![0x44; gpu.granularity]
                );
            },
        ),
        case(
            "over_itself",
            "a handle cannot be mapped over a mapping of itself",
            |gpu| {
                let (range, memory) = first(gpu);
                gpu.nothing_changes_in(&range, || {
                    call!(gpu, cuMemMap(range.base, memory.size, 0, memory.raw, 0) => INVALID_VALUE);
                });
            },
        ),
        case(
            "import_beside_the_original",
            "unmapping and releasing an import leaves the original mapped",
            |gpu| {
                let range = gpu.reserve(2);
                let memory = gpu.create_exportable(1);
                let import = gpu.import(&gpu.export(&memory), 1);
                gpu.map(range.base, &memory);
                gpu.map(range.at(1), &import);
                gpu.grant(range.base, range.size, READ_WRITE);
                gpu.fill(range.at(1), 0x29, gpu.granularity);
                call!(gpu, cuMemUnmap(range.at(1), gpu.granularity) => SUCCESS);
                import.release();
                assert_eq!(gpu.rights(range.at(1)), Err(INVALID_VALUE));
                assert_eq!(gpu.rights(range.base), Ok(READ_WRITE));
                assert_eq!(gpu.byte(range.base), 0x29);
            },
        ),
    ],
};

const RIGHTS: &str = "each mapping of a handle has rights of its own";
const KEPT: &str = "what is mapped elsewhere too keeps its bytes, rights and memory";

/// A reservation of four granules; at the first a handle for device 0 to read and write, filled with 0x51.
fn first(gpu: &Gpu) -> (Range<'_>, Handle<'_>) {
    let range = gpu.reserve(4);
    let memory = gpu.back(range.base, 1);
    gpu.fill(range.base, 0x51, gpu.granularity);
    (range, memory)
}

/// Maps the handle at one more place, with rights for device 0.
fn also(gpu: &Gpu, memory: &Handle<'_>, range: &Range<'_>, granule: usize, what: u64) {
    gpu.map(range.at(granule), memory);
    gpu.grant(range.at(granule), memory.size, what);
}
