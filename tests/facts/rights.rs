//! Rights that change while memory is mapped, and rights that differ from mapping to mapping.

use cuda_vmm::sys::{CUmemLocation, CUmemLocationType};

use crate::case::{case, Section};
use crate::codes::{call, INVALID_DEVICE, INVALID_VALUE, NOT_FOUND};
use crate::gpu::Gpu;
use crate::owned::{Handle, Range};
use crate::props::{
    device, host, host_numa, pinned, rights, NONE, NO_ACCESS, POSIX_FD, READ, READ_WRITE,
};

pub const SECTION: Section = Section {
    name: "rights",
    cases: &[
        case(
            "read_write_then_read",
            "rights are narrowed in place: bytes stay readable, writes are refused",
            |gpu| {
                let row = Row::new(gpu, &[READ_WRITE]);
                gpu.grant(row.range.base, gpu.granularity, READ);
                assert_eq!(gpu.rights(row.range.base), Ok(READ));
                call!(gpu, cuMemsetD8_v2(row.range.base, 1, 1) => INVALID_VALUE);
                assert_eq!(gpu.byte(row.range.base), 0x10);
            },
        ),
        case(
            "read_write_then_none",
            "rights are taken in place: neither read nor written, and no extent is told",
            |gpu| {
                let row = Row::new(gpu, &[READ_WRITE]);
                gpu.grant(row.range.base, gpu.granularity, NO_ACCESS);
                assert_eq!(gpu.rights(row.range.base), Ok(NO_ACCESS));
                row.demand_unreadable(row.range.base, 1);
                call!(gpu, cuMemsetD8_v2(row.range.base, 1, 1) => INVALID_VALUE);
                assert_eq!(gpu.extent(row.range.base), Err(NOT_FOUND));
            },
        ),
        case(
            "all_the_way_and_back",
            "rights can go read-write, read, none, read, read-write; the bytes stay",
            |gpu| {
                let row = Row::new(gpu, &[READ_WRITE]);
                for what in [READ, NO_ACCESS, READ, READ_WRITE] {
                    gpu.grant(row.range.base, gpu.granularity, what);
                    assert_eq!(gpu.rights(row.range.base), Ok(what));
                }
                assert_eq!(gpu.byte(row.range.at(1) - 1), 0x10);
                gpu.fill(row.range.base, 0x66, gpu.granularity);
                assert_eq!(gpu.byte(row.range.base), 0x66);
            },
        ),
        case(
            "none_first",
            "no access can be granted where there was none",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create(1);
                gpu.map(range.base, &memory);
                gpu.grant(range.base, range.size, NO_ACCESS);
                assert_eq!(gpu.rights(range.base), Ok(NO_ACCESS));
            },
        ),
        case("read_over_the_seam", SEAM, |gpu| {
            let row = Row::new(gpu, &[READ_WRITE, READ]);
            let seam = gpu.bytes(row.range.at(1) - 4, 8);
            assert_eq!(seam, [[0x10; 4], [0x11; 4]].concat());
        }),
        case("write_over_the_seam", SEAM, |gpu| {
            let row = Row::new(gpu, &[READ_WRITE, READ]);
            call!(gpu, cuMemsetD8_v2(row.range.at(1) - 4, 1, 8) => INVALID_VALUE);
            assert_eq!(gpu.byte(row.range.at(1) - 4), 0x10, "before the seam");
            assert_eq!(gpu.byte(row.range.at(1)), 0x11, "behind the seam");
        }),
        case("write_over_the_seam_from_the_host", SEAM, |gpu| {
            let row = Row::new(gpu, &[READ_WRITE, READ]);
            let bytes = [1_u8; 8];
            call!(gpu, cuMemcpyHtoD_v2(row.range.at(1) - 4, bytes.as_ptr().cast(), 8) => INVALID_VALUE);
            assert_eq!(gpu.byte(row.range.at(1) - 4), 0x10, "before the seam");
        }),
        case("read_over_the_seam_to_none", SEAM, |gpu| {
            let row = Row::new(gpu, &[READ_WRITE, NO_ACCESS]);
            row.demand_unreadable(row.range.at(1) - 4, 8);
        }),
        case("read_over_the_seam_from_none", SEAM, |gpu| {
            let row = Row::new(gpu, &[NO_ACCESS, READ_WRITE]);
            row.demand_unreadable(row.range.at(1) - 4, 8);
        }),
        case("none_between_two", SEAM, |gpu| {
            let row = Row::new(gpu, &[READ_WRITE, NO_ACCESS, READ_WRITE]);
            row.demand_unreadable(row.range.base, row.range.size);
            assert_eq!(gpu.byte(row.range.at(2)), 0x12);
        }),
        case(
            "one_grant_over_different_rights",
            "one grant makes mappings with different rights the same",
            |gpu| {
                let row = Row::new(gpu, &[READ_WRITE, NO_ACCESS, READ]);
                gpu.grant(row.range.base, row.range.size, READ);
                row.demand(&[READ, READ, READ]);
                gpu.grant(row.range.base, row.range.size, READ_WRITE);
                row.demand(&[READ_WRITE; 3]);
            },
        ),
        case(
            "narrowed_in_the_middle",
            "a grant over the middle mapping of three changes no other",
            |gpu| {
                let row = Row::new(gpu, &[READ_WRITE; 3]);
                gpu.grant(row.range.at(1), gpu.granularity, NO_ACCESS);
                row.demand(&[READ_WRITE, NO_ACCESS, READ_WRITE]);
            },
        ),
        case(
            "granted_again",
            "the rights that are there can be granted again",
            |gpu| {
                let row = Row::new(gpu, &[READ]);
                gpu.grant(row.range.base, gpu.granularity, READ);
                row.demand(&[READ]);
            },
        ),
        case(
            "device_three_times",
            "of several rights for one device the last one wins, be it none",
            |gpu| {
                let row = Row::new(gpu, &[READ]);
                let all = [READ, READ_WRITE, NO_ACCESS].map(|what| rights(device(0), what));
                call!(gpu, cuMemSetAccess(row.range.base, gpu.granularity, all.as_ptr(), 3) => SUCCESS);
                row.demand(&[NO_ACCESS]);
            },
        ),
        case("refused_beside_a_host", IN_ORDER, |gpu| {
            let row = Row::new(gpu, &[READ]);
            let both = [rights(device(0), READ_WRITE), rights(host(), READ_WRITE)];
            call!(gpu, cuMemSetAccess(row.range.base, gpu.granularity, both.as_ptr(), 2) => NOT_SUPPORTED);
            row.demand(&[READ_WRITE]);
        }),
        case("refused_behind_a_host", IN_ORDER, |gpu| {
            let row = Row::new(gpu, &[READ]);
            let both = [
                rights(host_numa(0), READ_WRITE),
                rights(device(0), READ_WRITE),
            ];
            gpu.nothing_changes(|| {
                call!(gpu, cuMemSetAccess(row.range.base, gpu.granularity, both.as_ptr(), 2) => NOT_SUPPORTED);
            });
            row.demand(&[READ]);
        }),
        case("refused_for_bad_flags_behind", ALL_OR_NOTHING, |gpu| {
            let row = Row::new(gpu, &[READ]);
            let both = [rights(device(0), READ_WRITE), rights(device(0), 2)];
            row.demand_refused(&both);
        }),
        case("flags_4", FLAGS, |gpu| {
            Row::new(gpu, &[READ]).demand_refused(&[rights(device(0), 4)]);
        }),
        case("flags_all_ones", FLAGS, |gpu| {
            Row::new(gpu, &[READ]).demand_refused(&[rights(device(0), u64::from(u32::MAX))]);
        }),
        case("device_minus_one", PLACES, |gpu| {
            Row::new(gpu, &[READ]).demand_refused(&[rights(device(-1), READ)]);
        }),
        case("place_of_no_kind", PLACES, |gpu| {
            Row::new(gpu, &[READ]).demand_refused(&[rights(place(0), READ)]);
        }),
        case("place_of_an_unknown_kind", PLACES, |gpu| {
            Row::new(gpu, &[READ]).demand_refused(&[rights(place(99), READ)]);
        }),
        case(
            "lost_by_unmapping",
            "mapped again at the same address, memory has no rights",
            |gpu| {
                let row = Row::new(gpu, &[READ_WRITE]);
                call!(gpu, cuMemUnmap(row.range.base, gpu.granularity) => SUCCESS);
                gpu.map(row.range.base, &row.memory[0]);
                row.demand(&[NO_ACCESS]);
            },
        ),
        case(
            "after_the_release",
            "rights of memory that is released while mapped can be changed",
            |gpu| {
                let row = Row::new(gpu, &[READ_WRITE]);
                row.memory[0].release();
                gpu.grant(row.range.base, gpu.granularity, READ);
                row.demand(&[READ]);
                assert_eq!(gpu.byte(row.range.base), 0x10);
            },
        ),
        case("ask_at_the_first_and_last_byte", EVERY_BYTE, |gpu| {
            let row = Row::new(gpu, &[READ, READ_WRITE]);
            assert_eq!(gpu.rights(row.range.base), Ok(READ));
            assert_eq!(gpu.rights(row.range.at(1) - 1), Ok(READ));
            assert_eq!(gpu.rights(row.range.at(1)), Ok(READ_WRITE));
            assert_eq!(gpu.rights(row.range.at(2) - 1), Ok(READ_WRITE));
        }),
        case("ask_at_zero", "rights at address 0 are refused", |gpu| {
            assert_eq!(gpu.rights(0), Err(INVALID_VALUE));
        }),
        case("ask_for_device_minus_one", ASK, |gpu| {
            let row = Row::new(gpu, &[READ]);
            let found = gpu.rights_of(device(-1), row.range.base);
            assert_eq!(found, Err(INVALID_DEVICE));
        }),
        case(
            "ask_for_the_host",
            "of device memory the host is said to have the rights of device 0",
            |gpu| {
                let row = Row::new(gpu, &[READ]);
                assert_eq!(gpu.rights_of(host(), row.range.base), Ok(READ));
            },
        ),
        case("ask_for_a_node", ASK, |gpu| {
            let row = Row::new(gpu, &[READ]);
            assert_eq!(gpu.rights_of(host_numa(0), row.range.base), Ok(NO_ACCESS));
        }),
        case("ask_for_no_kind_of_place", ASK, |gpu| {
            let row = Row::new(gpu, &[READ]);
            assert_eq!(gpu.rights_of(place(0), row.range.base), Err(INVALID_DEVICE));
        }),
        case(
            "device_on_a_nodes_memory",
            "host memory is granted to the device alone, or to the host alone",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create_with(1, &pinned(host_numa(0), POSIX_FD));
                gpu.map(range.base, &memory);
                gpu.grant(range.base, range.size, READ_WRITE);
                assert_eq!(gpu.rights(range.base), Ok(READ_WRITE));
                assert_eq!(gpu.rights_of(host_numa(0), range.base), Ok(NO_ACCESS));
                let by_host = rights(host_numa(0), READ_WRITE);
                call!(gpu, cuMemSetAccess(range.base, range.size, &by_host, 1) => SUCCESS);
                assert_eq!(gpu.rights_of(host_numa(0), range.base), Ok(READ_WRITE));
                assert_eq!(gpu.rights(range.base), Ok(READ_WRITE));
            },
        ),
        case(
            "host_on_host_memory",
            "the host has rights on host memory of no particular node",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create_with(1, &pinned(host(), NONE));
                gpu.map(range.base, &memory);
                let by_host = rights(host(), READ_WRITE);
                call!(gpu, cuMemSetAccess(range.base, range.size, &by_host, 1) => SUCCESS);
                assert_eq!(gpu.rights_of(host(), range.base), Ok(READ_WRITE));
                let byte = range.base as *mut u8;
                unsafe { byte.write_volatile(0x31) };
                assert_eq!(unsafe { byte.read_volatile() }, 0x31);
            },
        ),
    ],
};

const SEAM: &str = "a copy over a seam needs the right on both sides, or does nothing";
const ALL_OR_NOTHING: &str = "one invalid descriptor refuses the others";
const IN_ORDER: &str =
    "a descriptor that is NOT_SUPPORTED ends the call; those before it were granted and stay";
const FLAGS: &str = "flags that are no access right are refused";
const PLACES: &str = "a place that does not exist is refused";
const EVERY_BYTE: &str = "rights can be asked for from the first byte of a mapping to its last";
const ASK: &str = "a place without access has none; one that does not exist is refused";

/// A place of a kind that memory does not have.
fn place(kind: u32) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType(kind),
        id: 0,
    }
}

/// Mappings of one granule side by side that fill a reservation, the n-th filled with 0x10 + n.
struct Row<'g> {
    gpu: &'g Gpu,
    range: Range<'g>,
    memory: Vec<Handle<'g>>,
}

impl<'g> Row<'g> {
    /// One mapping for each of the rights, which device 0 then has of it.
    fn new(gpu: &'g Gpu, each: &[u64]) -> Self {
        let range = gpu.reserve(each.len());
        let memory = (0..each.len()).map(|granule| gpu.back(range.at(granule), 1));
        let row = Row {
            gpu,
            memory: memory.collect(),
            range,
        };
        for (granule, &what) in each.iter().enumerate() {
            let at = row.range.at(granule);
            gpu.fill(at, 0x10 + granule as u8, gpu.granularity);
            gpu.grant(at, gpu.granularity, what);
        }
        row.demand(each);
        row
    }

    #[track_caller]
    fn demand(&self, each: &[u64]) {
        for (granule, &what) in each.iter().enumerate() {
            let found = self.gpu.rights(self.range.at(granule));
            assert_eq!(found, Ok(what), "granule {granule}");
        }
    }

    /// A grant over the first mapping, which device 0 may read, is refused and changes nothing.
    #[track_caller]
    fn demand_refused(&self, descriptors: &[cuda_vmm::sys::CUmemAccessDesc]) {
        let gpu = self.gpu;
        let (all, count) = (descriptors.as_ptr(), descriptors.len());
        gpu.nothing_changes(|| {
            call!(gpu, cuMemSetAccess(self.range.base, gpu.granularity, all, count) => INVALID_VALUE);
        });
        self.demand(&[READ]);
    }

    /// A copy out of these bytes is refused and writes nothing.
    #[track_caller]
    fn demand_unreadable(&self, at: u64, size: usize) {
        let mut bytes = vec![0xa5_u8; size];
        call!(self.gpu, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), at, size) => INVALID_VALUE);
        assert!(bytes.iter().all(|&byte| byte == 0xa5), "bytes were copied");
    }
}
