//! Where reservations come to lie: alignments together with hints, and hints that cannot be followed.

use cuda_vmm::sys::CUdeviceptr;

use crate::case::{alone, case, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::owned::Range;
use crate::props::{device, rights, READ};

const GIB: u64 = 1 << 30;

/// A place that nothing of the process uses on Linux, where the driver follows a hint.
const FREE_PLACE: CUdeviceptr = 0x2100_0000_0000;

pub const SECTION: Section = Section {
    name: "placement",
    cases: &[
        case("alignment_1", SMALL, |gpu| placed(gpu, 1, 0)),
        case("alignment_2", SMALL, |gpu| placed(gpu, 2, 0)),
        case("alignment_64_kib", SMALL, |gpu| placed(gpu, 64 << 10, 0)),
        case("alignment_2_granules", BOTH, |gpu| {
            placed(gpu, 2 * gpu.granularity as u64, 0)
        }),
        case("alignment_with_its_hint", BOTH, |gpu| {
            placed(gpu, GIB, FREE_PLACE)
        }),
        case("alignment_with_a_hint_off_it", OFF, |gpu| {
            refused(gpu, GIB, FREE_PLACE + gpu.granularity as u64)
        }),
        case("alignment_with_a_hint_half_off_it", OFF, |gpu| {
            refused(gpu, 64 * GIB, FREE_PLACE + GIB)
        }),
        case("alignment_with_a_taken_hint", BOTH, |gpu| {
            let mut base = 0;
            call!(gpu, cuMemAddressReserve(&mut base, gpu.granularity, GIB as usize, 0, 0) => SUCCESS);
            let taken = Range::new(gpu, base, gpu.granularity);
            placed(gpu, GIB, taken.base);
        }),
        case("alignment_2_to_the_46", TOO_FAR, |gpu| {
            out_of_addresses(gpu, 1 << 46, 0)
        }),
        case("alignment_2_to_the_47", TOO_FAR, |gpu| {
            out_of_addresses(gpu, 1 << 47, 0)
        }),
        case(
            "alignment_2_to_the_63",
            "the largest power of two is no alignment",
            |gpu| refused(gpu, 1 << 63, 0),
        ),
        case("hint_at_the_first_granule", ELSEWHERE, |gpu| {
            placed(gpu, 0, gpu.granularity as u64)
        }),
        case("hint_at_the_end_of_user_space", TOO_FAR, |gpu| {
            out_of_addresses(gpu, 0, 1 << 47)
        }),
        case("hint_in_kernel_space", TOO_FAR, |gpu| {
            out_of_addresses(gpu, 0, 0xffff_8000_0000_0000)
        }),
        case("hint_at_the_last_granule", TOO_FAR, |gpu| {
            out_of_addresses(gpu, 0, 0_u64.wrapping_sub(gpu.granularity as u64))
        }),
        case(
            "hint_that_overlaps_from_below",
            "a hint whose range runs into a reservation gives another address",
            |gpu| {
                let taken = gpu.reserve_at(2, FREE_PLACE + GIB);
                let range = gpu.reserve_at(4, taken.base - 2 * gpu.granularity as u64);
                let apart = range.end() <= taken.base || taken.end() <= range.base;
                assert!(apart, "two reservations overlap");
            },
        ),
        case("flag_2_to_the_63", "flags are refused", |gpu| {
            let mut base = 0;
            gpu.nothing_changes(|| {
                call!(gpu, cuMemAddressReserve(&mut base, gpu.granularity, 0, 0, 1 << 63) => INVALID_VALUE);
            });
        }),
        case("map_at_zero", NOWHERE, |gpu| map_refused(gpu, 0)),
        case("map_at_the_last_granule", NOWHERE, |gpu| {
            map_refused(gpu, 0_u64.wrapping_sub(gpu.granularity as u64));
        }),
        case("map_right_behind_a_reservation", NOWHERE, |gpu| {
            let range = gpu.reserve_at(1, FREE_PLACE);
            map_refused(gpu, range.end());
        }),
        alone(
            "unmap_to_the_end_of_memory",
            "an unmap whose range ends behind the last address is accepted, and unmaps nothing",
            |gpu| {
                let range = gpu.reserve(2);
                let _memory = gpu.back(range.base, 1);
                let size = usize::MAX & !(gpu.granularity - 1);
                gpu.nothing_changes_in(&range, || {
                    call!(gpu, cuMemUnmap(range.base, size) => SUCCESS);
                });
            },
        ),
        alone(
            "grant_to_the_end_of_memory",
            "a grant whose range ends behind the last address is refused",
            |gpu| {
                let range = gpu.reserve(1);
                let _memory = gpu.back(range.base, 1);
                let size = usize::MAX & !(gpu.granularity - 1);
                let read = rights(device(0), READ);
                gpu.nothing_changes_in(&range, || {
                    call!(gpu, cuMemSetAccess(range.base, size, &read, 1) => INVALID_VALUE);
                });
            },
        ),
        case(
            "free_of_the_largest_size",
            "a free of any other size is refused",
            |gpu| {
                let range = gpu.reserve(1);
                let size = usize::MAX & !(gpu.granularity - 1);
                gpu.nothing_changes(
                    || call!(gpu, cuMemAddressFree(range.base, size) => INVALID_VALUE),
                );
            },
        ),
    ],
};

const SMALL: &str = "an alignment below the granularity asks for nothing more than that";
const BOTH: &str = "an alignment is honoured, whatever becomes of the hint";
const OFF: &str = "a hint that is no multiple of the alignment is refused";
const TOO_FAR: &str = "a hint or an alignment that no address of the process has is OUT_OF_MEMORY";
const ELSEWHERE: &str = "a hint that cannot be followed gives another address";
const NOWHERE: &str = "a mapping that starts outside every reservation is refused";

/// The reservation is made, on a multiple of its alignment and within what a process can address.
fn placed(gpu: &Gpu, alignment: u64, hint: CUdeviceptr) {
    let size = gpu.granularity;
    let mut base = 0;
    call!(gpu, cuMemAddressReserve(&mut base, size, alignment as usize, hint, 0) => SUCCESS);
    let range = Range::new(gpu, base, size);
    let unit = alignment.max(size as u64);
    assert_eq!(base % unit, 0, "{base:#x} is no multiple of {unit:#x}");
    assert!(
        range.end() <= 1 << 47,
        "{base:#x} is not an address of a process"
    );
    let _memory = gpu.back(range.base, 1);
}

fn refused(gpu: &Gpu, alignment: u64, hint: CUdeviceptr) {
    let mut base = 0;
    gpu.nothing_changes(|| {
        call!(gpu, cuMemAddressReserve(&mut base, gpu.granularity, alignment as usize, hint, 0) => INVALID_VALUE);
    });
}

fn out_of_addresses(gpu: &Gpu, alignment: usize, hint: CUdeviceptr) {
    let mut base = 0;
    gpu.nothing_changes(|| {
        call!(gpu, cuMemAddressReserve(&mut base, gpu.granularity, alignment, hint, 0) => OUT_OF_MEMORY);
    });
}

fn map_refused(gpu: &Gpu, at: CUdeviceptr) {
    let memory = gpu.create(1);
    gpu.nothing_changes(|| {
        call!(gpu, cuMemMap(at, memory.size, 0, memory.raw, 0) => INVALID_VALUE);
    });
}
