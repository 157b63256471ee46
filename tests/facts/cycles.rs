//! The same thing again and again, in this order and in that.

use crate::case::{alone, case, Section};
use crate::codes::{call, INVALID_VALUE, NOT_FOUND};
use crate::gpu::Gpu;
use crate::props::{device, rights, NO_ACCESS, READ_WRITE};

const TIMES: usize = 64;

pub const SECTION: Section = Section {
    name: "cycles",
    cases: &[
        case("unmap_and_map_at_the_same_address", KEEPS, |gpu| {
            let range = gpu.reserve(1);
            let memory = gpu.back(range.base, 1);
            gpu.fill(range.base, 0x6c, range.size);
            for _ in 0..TIMES {
                call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
                gpu.map(range.base, &memory);
                assert_eq!(gpu.rights(range.base), Ok(NO_ACCESS));
                gpu.grant(range.base, range.size, READ_WRITE);
            }
            assert_eq!(gpu.bytes(range.base, range.size), vec![0x6c; range.size]);
        }),
        case("unmap_and_map_elsewhere", KEEPS, |gpu| {
            let range = gpu.reserve(TIMES);
            let memory = gpu.back(range.base, 1);
            for place in 1..TIMES {
                gpu.fill(range.at(place - 1), place as u8, gpu.granularity);
                call!(gpu, cuMemUnmap(range.at(place - 1), gpu.granularity) => SUCCESS);
                gpu.map(range.at(place), &memory);
                gpu.grant(range.at(place), gpu.granularity, READ_WRITE);
                assert_eq!(gpu.byte(range.at(place)), place as u8);
            }
        }),
        case("two_handles_change_places", KEEPS, |gpu| {
            let range = gpu.reserve(2);
            let memory = [gpu.back(range.base, 1), gpu.back(range.at(1), 1)];
            gpu.fill(range.base, 0x0a, gpu.granularity);
            gpu.fill(range.at(1), 0x0b, gpu.granularity);
            call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
            gpu.map(range.base, &memory[1]);
            gpu.map(range.at(1), &memory[0]);
            gpu.grant(range.base, range.size, READ_WRITE);
            assert_eq!(gpu.bytes(range.at(1) - 1, 2), [0x0b, 0x0a]);
        }),
        case("small_where_a_large_one_was", PLACES, |gpu| {
            let range = gpu.reserve(4);
            let large = gpu.back(range.base, 4);
            call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
            large.release();
            let _small = [
                gpu.back(range.base, 2),
                gpu.back(range.at(2), 1),
                gpu.back(range.at(3), 1),
            ];
            assert_eq!(gpu.extent(range.at(1)), Ok((range.base, gpu.granules(2))));
            assert_eq!(gpu.extent(range.at(3)), Ok((range.at(3), gpu.granularity)));
        }),
        case("large_where_small_ones_were", PLACES, |gpu| {
            let range = gpu.reserve(4);
            let _small: Vec<_> = (0..4).map(|at| gpu.back(range.at(at), 1)).collect();
            call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
            let _large = gpu.back(range.base, 4);
            assert_eq!(gpu.extent(range.at(3)), Ok((range.base, range.size)));
        }),
        case("into_the_hole_between_two", PLACES, |gpu| {
            let range = gpu.reserve(4);
            let _sides = [gpu.back(range.base, 1), gpu.back(range.at(3), 1)];
            let _between = gpu.back(range.at(1), 2);
            gpu.fill(range.base, 0x1e, range.size);
            assert_eq!(gpu.byte(range.end() - 1), 0x1e);
        }),
        case(
            "too_large_for_the_hole",
            "a mapping one granule larger than the hole is refused",
            |gpu| {
                let range = gpu.reserve(4);
                let _sides = [gpu.back(range.base, 1), gpu.back(range.at(3), 1)];
                let memory = gpu.create(3);
                gpu.nothing_changes_in(&range, || {
                call!(gpu, cuMemMap(range.at(1), memory.size, 0, memory.raw, 0) => INVALID_VALUE);
            });
            },
        ),
        case("the_last_granule", PLACES, |gpu| {
            let range = gpu.reserve(4);
            let _memory = gpu.back(range.at(3), 1);
            gpu.fill(range.at(3), 0x2f, gpu.granularity);
            assert_eq!(
                gpu.extent(range.end() - 1),
                Ok((range.at(3), gpu.granularity))
            );
        }),
        case("unmapped_from_the_middle", ORDERS, |gpu| {
            unmapped_in_order(gpu, [1, 0, 2])
        }),
        case("unmapped_from_the_end", ORDERS, |gpu| {
            unmapped_in_order(gpu, [2, 1, 0])
        }),
        case("unmapped_from_the_start", ORDERS, |gpu| {
            unmapped_in_order(gpu, [0, 1, 2])
        }),
        case(
            "map_after_the_reservation_is_freed",
            "addresses that were freed cannot be mapped",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create(1);
                range.free();
                gpu.nothing_changes(|| {
                call!(gpu, cuMemMap(range.base, memory.size, 0, memory.raw, 0) => INVALID_VALUE);
            });
            },
        ),
        case(
            "unmap_after_the_reservation_is_freed",
            "addresses that were freed cannot be unmapped",
            |gpu| {
                let range = gpu.reserve(1);
                range.free();
                gpu.nothing_changes(
                    || call!(gpu, cuMemUnmap(range.base, range.size) => INVALID_VALUE),
                );
            },
        ),
        case(
            "grant_before_map",
            "rights cannot be granted before anything is mapped",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create(1);
                let all = rights(device(0), READ_WRITE);
                gpu.nothing_changes(|| {
                    call!(gpu, cuMemSetAccess(range.base, range.size, &all, 1) => INVALID_VALUE);
                });
                gpu.map(range.base, &memory);
                assert_eq!(gpu.rights(range.base), Ok(NO_ACCESS));
            },
        ),
        case(
            "release_before_grant",
            "memory that is released once mapped can be granted and used",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create(1);
                gpu.map(range.base, &memory);
                memory.release();
                gpu.grant(range.base, range.size, READ_WRITE);
                gpu.fill(range.base, 0x3a, range.size);
                assert_eq!(gpu.byte(range.end() - 1), 0x3a);
            },
        ),
        case(
            "create_and_release",
            "creating and releasing again and again takes nothing",
            |gpu| {
                let before = gpu.free_bytes();
                for _ in 0..TIMES {
                    let memory = gpu.create(4);
                    assert_eq!(gpu.free_bytes(), before - memory.size);
                    memory.release();
                }
                assert_eq!(gpu.free_bytes(), before);
            },
        ),
        case(
            "reserve_and_free",
            "addresses can be reserved and freed again and again",
            |gpu| {
                for _ in 0..4 * TIMES {
                    gpu.reserve(4).free();
                }
            },
        ),
        case(
            "many_reservations",
            "many reservations share no byte, and are freed in any order",
            |gpu| {
                let mut all: Vec<_> = (0..TIMES).map(|size| gpu.reserve(1 + size % 5)).collect();
                all.sort_by_key(|range| range.base);
                for pair in all.windows(2) {
                    assert!(pair[0].end() <= pair[1].base, "two reservations overlap");
                }
                all.iter().step_by(2).for_each(|range| range.free());
                all.iter().skip(1).step_by(2).for_each(|range| range.free());
            },
        ),
        alone(
            "three_retains",
            "each retain is a count of its own to release",
            |gpu| {
                let before = gpu.free_bytes();
                let range = gpu.reserve(1);
                let memory = gpu.back(range.base, 1);
                let more = [(); 3].map(|()| gpu.retain(range.base, 1));
                call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
                memory.release();
                for retained in &more {
                    assert_eq!(gpu.free_bytes(), before - range.size);
                    retained.release();
                }
                assert_eq!(gpu.free_bytes(), before);
                call!(gpu, cuMemRelease(memory.raw) => INVALID_VALUE);
            },
        ),
        case(
            "retain_after_unmap",
            "what is unmapped cannot be retained, though its handle lives",
            |gpu| {
                let range = gpu.reserve(1);
                let _memory = gpu.back(range.base, 1);
                call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
                let mut handle = 0;
                gpu.nothing_changes(|| {
                call!(gpu, cuMemRetainAllocationHandle(&mut handle, range.base as *mut _) => INVALID_VALUE);
            });
            },
        ),
        case(
            "map_by_a_retained_count",
            "with its first count released, a retained handle still maps",
            |gpu| {
                let range = gpu.reserve(2);
                let memory = gpu.back(range.base, 1);
                gpu.fill(range.base, 0x2d, gpu.granularity);
                let retained = gpu.retain(range.base, 1);
                memory.release();
                gpu.map(range.at(1), &retained);
                gpu.grant(range.at(1), gpu.granularity, READ_WRITE);
                assert_eq!(gpu.byte(range.at(1)), 0x2d);
            },
        ),
        case(
            "retain_an_import",
            "retaining where an import is mapped gives the import's handle",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create_exportable(1);
                let import = gpu.import(&gpu.export(&memory), 1);
                gpu.map(range.base, &import);
                let retained = gpu.retain(range.base, 1);
                assert_eq!(retained.raw, import.raw);
                assert_ne!(retained.raw, memory.raw);
            },
        ),
        case(
            "handles_are_distinct",
            "live handles have distinct values",
            |gpu| {
                let memory: Vec<_> = (0..TIMES).map(|_| gpu.create(1)).collect();
                let mut values: Vec<_> = memory.iter().map(|handle| handle.raw).collect();
                values.sort_unstable();
                values.dedup();
                assert_eq!(values.len(), TIMES);
            },
        ),
    ],
};

const KEEPS: &str = "memory that is unmapped and mapped again keeps its bytes";
const PLACES: &str = "a mapping fits wherever nothing else is mapped";
const ORDERS: &str = "mappings are unmapped in any order, the others staying as they are";

/// Three mappings side by side, unmapped one by one.
fn unmapped_in_order(gpu: &Gpu, order: [usize; 3]) {
    let range = gpu.reserve(3);
    let _memory: Vec<_> = (0..3)
        .map(|granule| gpu.back(range.at(granule), 1))
        .collect();
    let mut left = vec![0, 1, 2];
    for gone in order {
        call!(gpu, cuMemUnmap(range.at(gone), gpu.granularity) => SUCCESS);
        left.retain(|&granule| granule != gone);
        for granule in 0..3 {
            let at = range.at(granule);
            if left.contains(&granule) {
                assert_eq!(gpu.extent(at), Ok((at, gpu.granularity)));
                assert_eq!(gpu.rights(at), Ok(READ_WRITE));
            } else {
                assert_eq!(gpu.extent(at), Err(NOT_FOUND));
                assert_eq!(gpu.rights(at), Err(INVALID_VALUE));
            }
        }
    }
    range.free();
}
