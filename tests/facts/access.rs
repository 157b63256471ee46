//! Granting rights, and asking for them.
//!
//! Most cases work on the same picture, [`Pair`]: two mappings of two granules side by side at the start of a
//! reservation of sixteen, both readable and writable.

use cuda_vmm::sys::{CUdeviceptr, CUmemAccessDesc, CUmemLocation};

use crate::case::{case, Need, Section};
use crate::codes::{call, INVALID_DEVICE, INVALID_VALUE, NOT_FOUND};
use crate::gpu::{Gpu, UNRESERVED};
use crate::owned::{Handle, Range};
use crate::props::{
    device, host, host_numa, pinned, rights, NONE, NO_ACCESS, POSIX_FD, READ, READ_WRITE,
};

pub const SECTION: Section = Section {
    name: "access",
    cases: &[
        case(
            "one_mapping",
            "a grant over one mapping leaves its neighbour alone",
            |gpu| {
                let pair = Pair::new(gpu);
                gpu.grant(pair.range.base, gpu.granules(2), READ);
                pair.demand_rights(READ, READ_WRITE);
            },
        ),
        case(
            "adjacent_mappings",
            "one grant covers several adjacent mappings",
            |gpu| {
                let pair = Pair::new(gpu);
                gpu.grant(pair.range.base, gpu.granules(4), READ);
                pair.demand_rights(READ, READ);
            },
        ),
        case(
            "across_adjacent_reservations",
            "one grant covers mappings of two adjacent reservations",
            across_adjacent_reservations,
        ),
        case("hole_in_the_middle", HOLE, |gpu| {
            let gap = Gap::granted(gpu);
            assert_eq!(
                gpu.rights(gap.range.base),
                Ok(READ_WRITE),
                "before the hole"
            );
            assert_eq!(
                gpu.rights(gap.range.at(1)),
                Err(INVALID_VALUE),
                "in the hole"
            );
            assert_eq!(gpu.extent(gap.range.at(1)), Err(NOT_FOUND), "in the hole");
        }),
        case("mapping_behind_a_hole", HOLE, |gpu| {
            let gap = Gap::granted(gpu);
            assert_eq!(
                gpu.rights(gap.range.at(2)),
                Ok(NO_ACCESS),
                "behind the hole"
            );
        }),
        case("hole_at_the_end", HOLE_AT_THE_END, |gpu| refused(gpu, 0, 5)),
        case(
            "hole_up_to_the_end_of_the_reservation",
            HOLE_AT_THE_END,
            |gpu| refused(gpu, 0, 16),
        ),
        case("past_the_end_of_the_reservation", HOLE_AT_THE_END, |gpu| {
            refused(gpu, 0, 32)
        }),
        case("one_mapping_and_half_of_the_next", CUT, |gpu| {
            refused(gpu, 0, 3)
        }),
        case("half_of_a_mapping_and_the_next", CUT, |gpu| {
            refused(gpu, 1, 3)
        }),
        case("first_half_of_a_mapping", CUT, |gpu| refused(gpu, 0, 1)),
        case("second_half_of_a_mapping", CUT, |gpu| refused(gpu, 1, 1)),
        case("across_the_middle_of_two_mappings", CUT, |gpu| {
            refused(gpu, 1, 2)
        }),
        case(
            "starting_unmapped",
            "a range that starts unmapped is refused",
            |gpu| refused(gpu, 8, 1),
        ),
        case("size_zero", "a size of 0 is refused", |gpu| {
            refused(gpu, 0, 0)
        }),
        case("address_off_granule", UNALIGNED, |gpu| {
            let pair = Pair::new(gpu);
            pair.demand_refused(pair.range.base + 4096, gpu.granules(2), &read(), 1);
        }),
        case("size_off_granule", UNALIGNED, |gpu| {
            let pair = Pair::new(gpu);
            pair.demand_refused(pair.range.base, gpu.granules(2) - 4096, &read(), 1);
        }),
        case("half_a_granule", UNALIGNED, |gpu| {
            let pair = Pair::new(gpu);
            pair.demand_refused(pair.range.base, gpu.granularity / 2, &read(), 1);
        }),
        case("no_descriptors", "a count of 0 is refused", |gpu| {
            let pair = Pair::new(gpu);
            pair.demand_refused(pair.range.base, gpu.granules(2), &read(), 0);
        }),
        case(
            "null_descriptors",
            "a null list of descriptors is refused",
            |gpu| {
                let pair = Pair::new(gpu);
                pair.demand_refused(pair.range.base, gpu.granules(2), std::ptr::null(), 1);
            },
        ),
        case("second_device_absent", ABSENT, |gpu| {
            let absent = rights(device(gpu.absent_device()), READ_WRITE);
            descriptors_refused(gpu, &[read(), absent]);
        }),
        case("device_absent", ABSENT, |gpu| {
            descriptors_refused(gpu, &[rights(device(gpu.absent_device()), READ_WRITE)]);
        }),
        case(
            "flags_2",
            "flags that are no access right are refused",
            |gpu| {
                descriptors_refused(gpu, &[rights(device(0), 2)]);
            },
        ),
        case(
            "flags_7",
            "flags that are no access right are refused",
            |gpu| {
                descriptors_refused(gpu, &[rights(device(0), 7)]);
            },
        ),
        case("flags_none", READ_BACK, |gpu| read_back(gpu, NO_ACCESS)),
        case("flags_read", READ_BACK, |gpu| read_back(gpu, READ)),
        case("flags_read_write", READ_BACK, |gpu| {
            read_back(gpu, READ_WRITE)
        }),
        case("host_on_device_memory", HOST_RIGHTS, |gpu| {
            not_supported(gpu, host())
        }),
        case("host_numa_on_device_memory", HOST_RIGHTS, |gpu| {
            not_supported(gpu, host_numa(0))
        }),
        case(
            "host_numa_memory",
            "the CPU reads and writes host memory at the device's address",
            host_numa_memory,
        ),
        case(
            "same_device_twice",
            "of two rights for one device the last one wins",
            |gpu| {
                let pair = Pair::new(gpu);
                let twice = [rights(device(0), READ_WRITE), rights(device(0), READ)];
                call!(gpu, cuMemSetAccess(pair.range.base, gpu.granules(2), twice.as_ptr(), 2) => SUCCESS);
                pair.demand_rights(READ, READ_WRITE);
            },
        ),
        case(
            "second_device_added",
            "rights given to device 1 alone leave those of device 0",
            second_device_added,
        )
        .needs(Need::TwoDevices),
        case(
            "ask_inside_a_mapping",
            "rights can be asked for at any byte of a mapping",
            |gpu| {
                let pair = Pair::new(gpu);
                assert_eq!(gpu.rights(pair.range.base + 12_345), Ok(READ_WRITE));
            },
        ),
        case(
            "ask_unmapped",
            "rights of unmapped addresses are refused",
            |gpu| {
                let pair = Pair::new(gpu);
                assert_eq!(gpu.rights(pair.range.at(4)), Err(INVALID_VALUE));
            },
        ),
        case(
            "ask_unreserved",
            "rights of unreserved addresses are refused",
            |gpu| {
                assert_eq!(gpu.rights(UNRESERVED), Err(INVALID_VALUE));
            },
        ),
        case(
            "ask_for_an_absent_device",
            "rights of an absent device are INVALID_DEVICE",
            |gpu| {
                let pair = Pair::new(gpu);
                let absent = device(gpu.absent_device());
                assert_eq!(gpu.rights_of(absent, pair.range.base), Err(INVALID_DEVICE));
            },
        ),
    ],
};

const HOLE: &str =
    "a hole between a mapped first and a mapped last granule is SUCCESS, and what lies behind it keeps the rights it had";
const HOLE_AT_THE_END: &str = "a mapped start and a hole at the range's end are refused";
const CUT: &str = "a range that cuts a mapping is refused, for all it covers";
const UNALIGNED: &str = "an address or size off the granularity is refused";
const ABSENT: &str = "a device that does not exist is refused, for all descriptors";
const READ_BACK: &str = "rights that were given are read back";
const HOST_RIGHTS: &str = "rights of the host on device memory are not supported";

fn read() -> CUmemAccessDesc {
    rights(device(0), READ)
}

/// Two mappings of two granules at the start of a reservation of sixteen.
struct Pair<'g> {
    gpu: &'g Gpu,
    range: Range<'g>,
    _memory: [Handle<'g>; 2],
}

impl<'g> Pair<'g> {
    fn new(gpu: &'g Gpu) -> Self {
        let range = gpu.reserve(16);
        let memory = [gpu.back(range.base, 2), gpu.back(range.at(2), 2)];
        let pair = Pair {
            gpu,
            range,
            _memory: memory,
        };
        pair.demand_rights(READ_WRITE, READ_WRITE);
        pair
    }

    /// Each granule of the first and of the second mapping has these rights, and nothing else is mapped.
    #[track_caller]
    fn demand_rights(&self, first: u64, second: u64) {
        let granules = 0..self.range.size / self.gpu.granularity;
        let found: Vec<_> = granules
            .map(|granule| self.gpu.rights(self.range.at(granule)))
            .collect();
        let mut wanted = vec![Ok(first), Ok(first), Ok(second), Ok(second)];
        wanted.resize(found.len(), Err(INVALID_VALUE));
        assert_eq!(found, wanted);
    }

    #[track_caller]
    fn demand_refused(
        &self,
        at: CUdeviceptr,
        size: usize,
        descriptors: *const CUmemAccessDesc,
        count: usize,
    ) {
        self.gpu.nothing_changes(|| {
            call!(self.gpu, cuMemSetAccess(at, size, descriptors, count) => INVALID_VALUE);
        });
        self.demand_rights(READ_WRITE, READ_WRITE);
    }
}

/// Two mappings of a granule each with a hole of one granule between them.
struct Gap<'g> {
    range: Range<'g>,
    _memory: [Handle<'g>; 2],
}

impl<'g> Gap<'g> {
    /// Grants device 0 reading and writing by one call over all three granules, which must succeed.
    fn granted(gpu: &'g Gpu) -> Self {
        let range = gpu.reserve(16);
        let memory = [gpu.create(1), gpu.create(1)];
        gpu.map(range.base, &memory[0]);
        gpu.map(range.at(2), &memory[1]);
        gpu.grant(range.base, gpu.granules(3), READ_WRITE);
        Gap {
            range,
            _memory: memory,
        }
    }
}

/// A grant over so many granules of the picture is refused and changes nothing.
fn refused(gpu: &Gpu, from: usize, granules: usize) {
    let pair = Pair::new(gpu);
    pair.demand_refused(pair.range.at(from), gpu.granules(granules), &read(), 1);
}

fn descriptors_refused(gpu: &Gpu, descriptors: &[CUmemAccessDesc]) {
    let pair = Pair::new(gpu);
    pair.demand_refused(
        pair.range.base,
        gpu.granules(4),
        descriptors.as_ptr(),
        descriptors.len(),
    );
}

fn not_supported(gpu: &Gpu, location: CUmemLocation) {
    let pair = Pair::new(gpu);
    let descriptor = rights(location, READ_WRITE);
    gpu.nothing_changes(|| {
        call!(gpu, cuMemSetAccess(pair.range.base, gpu.granules(2), &descriptor, 1) => NOT_SUPPORTED);
    });
    pair.demand_rights(READ_WRITE, READ_WRITE);
}

/// Rights that differ from those before are given, and read back.
fn read_back(gpu: &Gpu, what: u64) {
    let pair = Pair::new(gpu);
    let before = if what == READ { NO_ACCESS } else { READ };
    gpu.grant(pair.range.base, gpu.granules(2), before);
    pair.demand_rights(before, READ_WRITE);
    gpu.grant(pair.range.base, gpu.granules(2), what);
    pair.demand_rights(what, READ_WRITE);
}

fn across_adjacent_reservations(gpu: &Gpu) {
    let (first, second) = gpu.reserve_adjacent(4, 4);
    let (one, two) = (gpu.create(1), gpu.create(1));
    gpu.map(first.at(3), &one);
    gpu.map(second.base, &two);
    gpu.grant(first.at(3), gpu.granules(2), READ_WRITE);
    assert_eq!(gpu.rights(first.at(3)), Ok(READ_WRITE));
    assert_eq!(gpu.rights(second.base), Ok(READ_WRITE));
    gpu.fill(first.at(3), 0x58, gpu.granules(2));
    assert_eq!(gpu.byte(second.base), 0x58);
}

fn host_numa_memory(gpu: &Gpu) {
    let range = gpu.reserve(1);
    let memory = gpu.create_with(1, &pinned(host_numa(0), POSIX_FD));
    gpu.map(range.base, &memory);
    let both = [
        rights(device(0), READ_WRITE),
        rights(host_numa(0), READ_WRITE),
    ];
    call!(gpu, cuMemSetAccess(range.base, range.size, both.as_ptr(), 2) => SUCCESS);
    gpu.fill(range.base, 0x07, range.size);

    let byte = range.base as *mut u8;
    assert_eq!(unsafe { byte.read_volatile() }, 0x07);
    unsafe { byte.write_volatile(0x09) };
    assert_eq!(gpu.bytes(range.base, 2), [0x09, 0x07]);
}

fn second_device_added(gpu: &Gpu) {
    let pair = Pair::new(gpu);
    assert_eq!(gpu.rights_of(device(1), pair.range.base), Ok(NO_ACCESS));
    let added = rights(device(1), READ);
    call!(gpu, cuMemSetAccess(pair.range.base, gpu.granules(2), &added, 1) => SUCCESS);
    pair.demand_rights(READ_WRITE, READ_WRITE);
    assert_eq!(gpu.rights_of(device(1), pair.range.base), Ok(READ));
    assert_eq!(gpu.rights_of(device(1), pair.range.at(2)), Ok(NO_ACCESS));

    let plain = gpu.create_with(1, &pinned(device(1), NONE));
    gpu.map(pair.range.at(4), &plain);
    assert_eq!(gpu.rights(pair.range.at(4)), Ok(NO_ACCESS));
}
