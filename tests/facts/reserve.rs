//! Reserving addresses.

use std::ptr;

use cuda_vmm::sys::CUdeviceptr;

use crate::case::{case, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::owned::Range;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// A place that nothing of the process uses on Linux, where the driver follows a hint.
const FREE_PLACE: CUdeviceptr = 0x2000_0000_0000;

pub const SECTION: Section = Section {
    name: "reserve",
    cases: &[
        case("size_zero", SIZES, |gpu| size_refused(gpu, 0)),
        case("size_one", SIZES, |gpu| size_refused(gpu, 1)),
        case("size_host_page", SIZES, |gpu| size_refused(gpu, 4096)),
        case("size_64_kib", SIZES, |gpu| size_refused(gpu, 64 * KIB)),
        case("size_granule_and_host_page", SIZES, |gpu| {
            size_refused(gpu, gpu.granularity + 4096)
        }),
        case("size_granule_and_64_kib", SIZES, |gpu| {
            size_refused(gpu, gpu.granularity + 64 * KIB)
        }),
        case("size_all_ones", SIZES, |gpu| size_refused(gpu, usize::MAX)),
        case("size_granule", SIZES, |gpu| {
            size_granted(gpu, gpu.granularity)
        }),
        case("alignment_zero", ALIGNMENT, |gpu| aligned(gpu, 0)),
        case("alignment_host_page", ALIGNMENT, |gpu| aligned(gpu, 4096)),
        case("alignment_granule", ALIGNMENT, |gpu| {
            aligned(gpu, gpu.granularity)
        }),
        case("alignment_1_gib", ALIGNMENT, |gpu| aligned(gpu, GIB)),
        case("alignment_64_gib", ALIGNMENT, |gpu| aligned(gpu, 64 * GIB)),
        case("alignment_three", ODD_ALIGNMENT, |gpu| {
            refused(gpu, gpu.granularity, 3, 0, 0)
        }),
        case("alignment_6_mib", ODD_ALIGNMENT, |gpu| {
            refused(gpu, gpu.granularity, 6 * MIB, 0, 0)
        }),
        case("hint_off_host_page", ODD_HINT, |gpu| {
            refused(gpu, gpu.granularity, 0, 0x1234, 0)
        }),
        case("hint_off_granule", ODD_HINT, |gpu| {
            refused(gpu, gpu.granularity, 0, 0x4000_0000_1000, 0)
        }),
        case("flag_1", FLAGS, |gpu| {
            refused(gpu, gpu.granularity, 0, 0, 1)
        }),
        case("flag_2", FLAGS, |gpu| {
            refused(gpu, gpu.granularity, 0, 0, 2)
        }),
        case("bytes_2_to_the_38", LARGE, |gpu| size_granted(gpu, 1 << 38)),
        case("bytes_2_to_the_39", LARGE, |gpu| size_granted(gpu, 1 << 39)),
        case("bytes_2_to_the_40", LARGE, |gpu| size_granted(gpu, 1 << 40)),
        case("bytes_2_to_the_41", LARGE, |gpu| size_granted(gpu, 1 << 41)),
        case("bytes_2_to_the_42", LARGE, |gpu| size_granted(gpu, 1 << 42)),
        case("bytes_2_to_the_43", LARGE, |gpu| size_granted(gpu, 1 << 43)),
        case("bytes_2_to_the_44", LARGE, |gpu| size_granted(gpu, 1 << 44)),
        case("bytes_2_to_the_45", LARGE, |gpu| size_granted(gpu, 1 << 45)),
        case("bytes_2_to_the_46", LARGE, |gpu| size_granted(gpu, 1 << 46)),
        case("bytes_2_to_the_47", TOO_LARGE, |gpu| {
            too_large(gpu, 1 << 47)
        }),
        case("bytes_2_to_the_48", TOO_LARGE, |gpu| {
            too_large(gpu, 1 << 48)
        }),
        case("bytes_2_to_the_49", TOO_LARGE, |gpu| {
            too_large(gpu, 1 << 49)
        }),
        case("bytes_2_to_the_50", TOO_LARGE, |gpu| {
            too_large(gpu, 1 << 50)
        }),
        case(
            "hint_taken_by_a_reservation",
            "a hint that is taken gives another address",
            |gpu| {
                let taken = gpu.reserve(4);
                apart_from(&gpu.reserve_at(2, taken.base), &taken);
            },
        ),
        case(
            "hint_in_a_mapping_of_the_process",
            "a hint inside an unrelated mapping of the process gives another address",
            hint_in_a_mapping_of_the_process,
        ),
        case(
            "hint_of_a_range_just_freed",
            "the addresses of a freed reservation can be asked for again",
            |gpu| {
                let first = gpu.reserve(64);
                first.free();
                gpu.reserve_at(64, first.base).free();
            },
        ),
        case(
            "hint_behind_an_own_reservation",
            "the addresses right behind a reservation can be asked for",
            |gpu| {
                let first = gpu.reserve(4);
                apart_from(&gpu.reserve_at(4, first.end()), &first);
            },
        ),
        case(
            "hint_of_a_free_place",
            "a hint of free addresses is accepted",
            |gpu| gpu.reserve_at(1, FREE_PLACE).free(),
        ),
        case(
            "shown_as_inaccessible_memory",
            "a reservation is private, inaccessible memory of the process, of no file",
            shown_as_inaccessible_memory,
        ),
    ],
};

const SIZES: &str = "the size must be a multiple of the granularity, not of the host's page";
const ALIGNMENT: &str = "an alignment that is zero or a power of two is honoured";
const ODD_ALIGNMENT: &str = "an alignment that is no power of two is refused";
const ODD_HINT: &str = "an address hint off the granularity is refused";
const FLAGS: &str = "flags are refused";
const LARGE: &str = "up to 2^46 bytes of addresses can be had at once";
const TOO_LARGE: &str = "2^47 bytes and more are OUT_OF_MEMORY, which here means address space";

/// The reservation is refused as an invalid value, and none is made.
fn refused(gpu: &Gpu, size: usize, alignment: usize, hint: CUdeviceptr, flags: u64) {
    gpu.nothing_changes(|| {
        let mut base = 0;
        call!(gpu, cuMemAddressReserve(&mut base, size, alignment, hint, flags) => INVALID_VALUE);
    });
}

fn size_refused(gpu: &Gpu, size: usize) {
    refused(gpu, size, 0, 0, 0);
}

fn too_large(gpu: &Gpu, size: usize) {
    gpu.nothing_changes(|| {
        let mut base = 0;
        call!(gpu, cuMemAddressReserve(&mut base, size, 0, 0, 0) => OUT_OF_MEMORY);
    });
}

/// The reservation is made, starts on a granule, and can be freed once.
fn size_granted(gpu: &Gpu, size: usize) {
    let mut base = 0;
    call!(gpu, cuMemAddressReserve(&mut base, size, 0, 0, 0) => SUCCESS);
    assert_eq!(
        base % gpu.granularity as u64,
        0,
        "{base:#x} is not on a granule"
    );
    call!(gpu, cuMemAddressFree(base, size) => SUCCESS);
    call!(gpu, cuMemAddressFree(base, size) => INVALID_VALUE);
}

fn aligned(gpu: &Gpu, alignment: usize) {
    let size = gpu.granularity;
    let mut base = 0;
    call!(gpu, cuMemAddressReserve(&mut base, size, alignment, 0, 0) => SUCCESS);
    let range = Range::new(gpu, base, size);
    let unit = alignment.max(gpu.granularity) as u64;
    assert_eq!(
        range.base % unit,
        0,
        "{:#x} is not a multiple of {unit:#x}",
        range.base
    );
}

/// Two reservations share no byte.
fn apart_from(one: &Range<'_>, other: &Range<'_>) {
    assert!(
        one.end() <= other.base || other.end() <= one.base,
        "reservations at {:#x} and {:#x} overlap",
        one.base,
        other.base
    );
}

fn hint_in_a_mapping_of_the_process(gpu: &Gpu) {
    let size = gpu.granules(128);
    let place = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(
        place,
        libc::MAP_FAILED,
        "no addresses for an unrelated mapping"
    );
    let unit = gpu.granularity as u64;
    let hint = (place as u64).next_multiple_of(unit);

    let range = gpu.reserve_at(64, hint);
    let clear = range.end() <= place as u64 || place as u64 + size as u64 <= range.base;
    assert!(
        clear,
        "the reservation at {:#x} lies over the mapping at {place:p}",
        range.base
    );
    assert_eq!(
        unsafe { libc::munmap(place, size) },
        0,
        "the unrelated mapping is gone"
    );
}

/// The line of `/proc/self/maps` that an address lies in.
fn line_of(at: CUdeviceptr) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the process's own mappings");
    let inside = |line: &&str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        Some((start..end).contains(&at))
    };
    maps.lines()
        .find(|line| inside(line) == Some(true))
        .map(String::from)
}

fn shown_as_inaccessible_memory(gpu: &Gpu) {
    let range = gpu.reserve(64);
    let line = line_of(range.base).expect("the reservation is among the process's mappings");
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[1], "---p", "{line}");
    assert_eq!(fields.get(5), None, "{line}");
}
