//! Mapping a handle at an address.

use cuda_vmm::sys::CUdeviceptr;

use crate::case::{alone, case, Need, Section};
use crate::codes::{call, INVALID_VALUE, NOT_FOUND};
use crate::gpu::{Gpu, UNRESERVED};
use crate::owned::{Handle, Range};
use crate::props::{device, pinned, rights, NONE, NO_ACCESS, READ_WRITE};

pub const SECTION: Section = Section {
    name: "map",
    cases: &[
        case("size_zero", "a size of 0 is refused", |gpu| {
            refused(gpu, |_| 0, 0)
        }),
        case("flag_1", "flags are refused", |gpu| {
            refused(gpu, |at| at.size, 1)
        }),
        case("handle_zero", "handle 0 is refused", |gpu| {
            let range = gpu.reserve(1);
            gpu.nothing_changes_in(&range, || {
                call!(gpu, cuMemMap(range.base, range.size, 0, 0, 0) => INVALID_VALUE);
            });
        }),
        case("address_off_by_a_host_page", ALIGNED, |gpu| {
            off_granule(gpu, 4096)
        }),
        case("address_off_by_half_a_granule", ALIGNED, |gpu| {
            off_granule(gpu, gpu.granularity as u64 / 2)
        }),
        case(
            "address_never_reserved",
            "an address that was never reserved is refused",
            |gpu| {
                let memory = gpu.create(1);
                gpu.nothing_changes(|| {
                call!(gpu, cuMemMap(UNRESERVED, memory.size, 0, memory.raw, 0) => INVALID_VALUE);
            });
            },
        ),
        case("over_the_same_mapping", OVERLAP, |gpu| overlap(gpu, 1, 2)),
        case("over_the_start_of_a_mapping", OVERLAP, |gpu| {
            overlap(gpu, 0, 2)
        }),
        case("over_the_end_of_a_mapping", OVERLAP, |gpu| {
            overlap(gpu, 2, 2)
        }),
        case("over_the_whole_of_a_mapping", OVERLAP, |gpu| {
            overlap(gpu, 0, 4)
        }),
        case("over_the_inside_of_a_mapping", OVERLAP, |gpu| {
            overlap(gpu, 2, 1)
        }),
        case("size_half_a_granule", WHOLE, |gpu| {
            part(gpu, 1, 0, gpu.granularity / 2)
        }),
        case("size_64_kib", WHOLE, |gpu| part(gpu, 1, 0, 64 << 10)),
        case("size_first_half", WHOLE, |gpu| {
            part(gpu, 2, 0, gpu.granularity)
        }),
        case("size_twice", WHOLE, |gpu| part(gpu, 1, 0, gpu.granules(2))),
        case("offset_second_half", WHOLE, |gpu| {
            part(gpu, 2, gpu.granularity, gpu.granularity)
        }),
        case("offset_with_the_whole_size", WHOLE, |gpu| {
            part(gpu, 2, gpu.granularity, gpu.granules(2))
        }),
        case("offset_64_kib", WHOLE, |gpu| {
            part(gpu, 1, 64 << 10, gpu.granularity - (64 << 10))
        }),
        case(
            "granted_no_access",
            "a new mapping gives no rights",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.create(1);
                gpu.map(range.base, &memory);
                assert_eq!(gpu.rights(range.base), Ok(NO_ACCESS));
            },
        ),
        case(
            "one_handle_at_two_addresses",
            "both addresses show the same bytes",
            |gpu| {
                let range = gpu.reserve(3);
                let memory = gpu.back(range.base, 1);
                gpu.map(range.at(2), &memory);
                gpu.grant(range.at(2), gpu.granularity, READ_WRITE);
                gpu.fill(range.base, 0x5a, gpu.granularity);
                assert_eq!(gpu.byte(range.at(2)), 0x5a);
                gpu.fill(range.at(2), 0x11, 16);
                assert_eq!(
                    gpu.bytes(range.base, 17),
                    [vec![0x11; 16], vec![0x5a]].concat()
                );
            },
        ),
        case(
            "one_handle_at_4096_addresses",
            "one handle can be mapped 4,096 times; all show the same bytes",
            one_handle_at_4096_addresses,
        ),
        case(
            "over_the_end_of_the_reservation",
            ONLY_THE_START,
            over_the_end,
        ),
        alone(
            "over_the_end_of_the_only_reservation",
            ONLY_THE_START,
            over_the_end,
        ),
        alone("behind_the_only_reservation", OUTSIDE, |gpu| {
            outside_the_only_reservation(gpu, |range| range.end())
        }),
        alone("far_behind_the_only_reservation", OUTSIDE, |gpu| {
            outside_the_only_reservation(gpu, |range| range.base + (1 << 30))
        }),
        alone("before_the_only_reservation", OUTSIDE, |gpu| {
            outside_the_only_reservation(gpu, |range| range.base - (range.at(1) - range.base))
        }),
        case(
            "across_adjacent_reservations",
            "a mapping may lie across two adjacent reservations",
            across_adjacent_reservations,
        ),
        case(
            "memory_of_two_devices",
            "memory of two devices may lie side by side in one reservation",
            memory_of_two_devices,
        )
        .needs(Need::TwoDevices),
        case(
            "again_after_unmap",
            "unmapped and mapped again, memory keeps its bytes and loses its rights",
            again_after_unmap,
        ),
    ],
};

const ALIGNED: &str = "an address off the granularity is refused";
const OVERLAP: &str = "a map over any part of a live mapping is refused";
const WHOLE: &str = "a map takes the whole handle, from its start, or is NOT_SUPPORTED";
const ONLY_THE_START: &str =
    "only where a mapping starts is checked: it may run over the reservation's end";
const OUTSIDE: &str = "a mapping that starts outside every reservation is refused";

/// A map of a fresh handle, of a size made from it, is refused; nothing is mapped.
fn refused(gpu: &Gpu, size: fn(&Handle<'_>) -> usize, flags: u64) {
    let range = gpu.reserve(4);
    let memory = gpu.create(1);
    gpu.nothing_changes_in(&range, || {
        call!(gpu, cuMemMap(range.base, size(&memory), 0, memory.raw, flags) => INVALID_VALUE);
    });
}

fn off_granule(gpu: &Gpu, bytes: u64) {
    let range = gpu.reserve(4);
    let memory = gpu.create(1);
    gpu.nothing_changes_in(&range, || {
        call!(gpu, cuMemMap(range.base + bytes, memory.size, 0, memory.raw, 0) => INVALID_VALUE);
    });
}

/// With two granules mapped at the second, a map of so many from a granule on is refused.
fn overlap(gpu: &Gpu, from: usize, granules: usize) {
    let range = gpu.reserve(8);
    let _there = gpu.back(range.at(1), 2);
    gpu.fill(range.at(1), 0x62, gpu.granules(2));
    let memory = gpu.create(granules);
    gpu.nothing_changes_in(&range, || {
        call!(gpu, cuMemMap(range.at(from), memory.size, 0, memory.raw, 0) => INVALID_VALUE);
    });
    assert_eq!(gpu.byte(range.at(1)), 0x62);
    assert_eq!(gpu.byte(range.at(3) - 1), 0x62);
}

/// A map of a part of a handle of so many granules, or of more than it, is not supported.
fn part(gpu: &Gpu, granules: usize, offset: usize, size: usize) {
    let range = gpu.reserve(4);
    let memory = gpu.create(granules);
    gpu.nothing_changes_in(&range, || {
        call!(gpu, cuMemMap(range.base, size, offset, memory.raw, 0) => NOT_SUPPORTED);
    });
}

fn one_handle_at_4096_addresses(gpu: &Gpu) {
    const TIMES: usize = 4096;
    let range = gpu.reserve(TIMES);
    let memory = gpu.create(1);
    for time in 0..TIMES {
        gpu.map(range.at(time), &memory);
    }
    gpu.grant(range.base, range.size, READ_WRITE);
    gpu.fill(range.base, 0x33, gpu.granularity);
    for time in [1, TIMES / 2, TIMES - 1] {
        assert_eq!(gpu.byte(range.at(time)), 0x33, "address {time}");
    }
    call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
    range.free();
}

fn over_the_end(gpu: &Gpu) {
    let range = gpu.reserve(16);
    let memory = gpu.create(2);
    let last = range.at(15);
    gpu.map(last, &memory);
    gpu.grant(last, memory.size, READ_WRITE);
    assert_eq!(gpu.extent(range.end()), Ok((last, memory.size)));
    gpu.fill(last, 0x01, memory.size);
    assert_eq!(
        gpu.byte(range.at(17) - 1),
        0x01,
        "the last byte, behind the reservation"
    );

    gpu.nothing_changes_in(&range, || {
        call!(gpu, cuMemAddressFree(range.base, range.size) => INVALID_VALUE);
    });
    call!(gpu, cuMemUnmap(last, memory.size) => SUCCESS);
    assert_eq!(gpu.extent(last), Err(NOT_FOUND));
    range.free();
}

fn outside_the_only_reservation(gpu: &Gpu, place: fn(&Range<'_>) -> CUdeviceptr) {
    let memory = gpu.create(2);
    let range = gpu.reserve(4);
    gpu.nothing_changes_in(&range, || {
        call!(gpu, cuMemMap(place(&range), memory.size, 0, memory.raw, 0) => INVALID_VALUE);
    });
}

fn across_adjacent_reservations(gpu: &Gpu) {
    let (first, second) = gpu.reserve_adjacent(4, 4);
    let memory = gpu.create(2);
    gpu.map(first.at(3), &memory);
    gpu.grant(first.at(3), memory.size, READ_WRITE);
    gpu.fill(first.at(3), 0x2b, memory.size);
    assert_eq!(gpu.byte(second.base), 0x2b);
    assert_eq!(gpu.extent(second.base), Ok((first.at(3), memory.size)));

    call!(gpu, cuMemUnmap(first.at(3), memory.size) => SUCCESS);
    first.free();
    second.free();
}

fn memory_of_two_devices(gpu: &Gpu) {
    let range = gpu.reserve(2);
    let near = gpu.create(1);
    let far = gpu.create_with(1, &pinned(device(1), NONE));
    gpu.map(range.base, &far);
    gpu.map(range.at(1), &near);
    let both = [rights(device(0), READ_WRITE), rights(device(1), READ_WRITE)];
    call!(gpu, cuMemSetAccess(range.base, range.size, both.as_ptr(), 2) => SUCCESS);
    gpu.fill(range.base, 0x6d, range.size);
    assert_eq!(gpu.byte(range.base), 0x6d);
    assert_eq!(gpu.byte(range.at(1)), 0x6d);
}

fn again_after_unmap(gpu: &Gpu) {
    let range = gpu.reserve(4);
    let memory = gpu.back(range.base, 1);
    gpu.fill(range.base, 0x77, gpu.granularity);
    call!(gpu, cuMemUnmap(range.base, gpu.granularity) => SUCCESS);
    assert_eq!(gpu.rights(range.base), Err(INVALID_VALUE));

    gpu.map(range.at(2), &memory);
    assert_eq!(gpu.rights(range.at(2)), Ok(NO_ACCESS));
    gpu.grant(range.at(2), gpu.granularity, READ_WRITE);
    assert_eq!(gpu.byte(range.at(2)), 0x77);
}
