//! Freeing addresses.

use cuda_vmm::sys::CUdeviceptr;

use crate::case::{case, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::props::READ_WRITE;

pub const SECTION: Section = Section {
    name: "address_free",
    cases: &[
        case("smaller_size", EXACT, |gpu| refused(gpu, 0, 1)),
        case("larger_size", EXACT, |gpu| refused(gpu, 0, 8)),
        case("size_zero", EXACT, |gpu| refused(gpu, 0, 0)),
        case("interior_pointer", EXACT, |gpu| refused(gpu, 1, 1)),
        case("rest_from_an_interior_pointer", EXACT, |gpu| {
            refused(gpu, 1, 3)
        }),
        case("pointer_zero", "address 0 is refused", |gpu| {
            gpu.nothing_changes(
                || call!(gpu, cuMemAddressFree(0, gpu.granularity) => INVALID_VALUE),
            );
        }),
        case("second_free", "a second free is refused", |gpu| {
            let range = gpu.reserve(4);
            range.free();
            gpu.nothing_changes(|| {
                call!(gpu, cuMemAddressFree(range.base, range.size) => INVALID_VALUE);
            });
        }),
        case(
            "ordinary_allocation",
            "memory of cuMemAlloc is no reservation",
            ordinary_allocation,
        ),
        case(
            "adjacent_reservations_as_one",
            "two adjacent reservations cannot be freed by one call",
            adjacent_reservations_as_one,
        ),
        case(
            "with_a_mapping_inside",
            "refused while something is mapped inside; works after the unmap",
            with_a_mapping_inside,
        ),
        case(
            "by_ordinary_free",
            "cuMemFree refuses a reservation",
            |gpu| {
                let range = gpu.reserve(1);
                gpu.nothing_changes(|| call!(gpu, cuMemFree_v2(range.base) => INVALID_VALUE));
                range.free();
            },
        ),
    ],
};

const EXACT: &str = "only the very base and size of the reservation are accepted";

/// A free of some granules of a reservation of four is refused; the reservation is still whole.
fn refused(gpu: &Gpu, from: usize, granules: usize) {
    let range = gpu.reserve(4);
    gpu.nothing_changes(|| {
        call!(gpu, cuMemAddressFree(range.at(from), gpu.granules(granules)) => INVALID_VALUE);
    });
    let _memory = gpu.back(range.at(3), 1);
    call!(gpu, cuMemUnmap(range.at(3), gpu.granularity) => SUCCESS);
    range.free();
}

fn ordinary_allocation(gpu: &Gpu) {
    let mut address: CUdeviceptr = 0;
    call!(gpu, cuMemAlloc_v2(&mut address, gpu.granularity) => SUCCESS);
    gpu.nothing_changes(|| call!(gpu, cuMemAddressFree(address, gpu.granularity) => INVALID_VALUE));
    call!(gpu, cuMemFree_v2(address) => SUCCESS);
}

fn adjacent_reservations_as_one(gpu: &Gpu) {
    let (first, second) = gpu.reserve_adjacent(4, 4);
    gpu.nothing_changes(|| {
        call!(gpu, cuMemAddressFree(first.base, first.size + second.size) => INVALID_VALUE);
    });
    first.free();
    second.free();
}

fn with_a_mapping_inside(gpu: &Gpu) {
    let range = gpu.reserve(4);
    let _memory = gpu.back(range.at(2), 1);
    gpu.fill(range.at(2), 0x3c, gpu.granularity);
    gpu.nothing_changes_in(&range, || {
        call!(gpu, cuMemAddressFree(range.base, range.size) => INVALID_VALUE);
    });
    assert_eq!(gpu.rights(range.at(2)), Ok(READ_WRITE));
    assert_eq!(gpu.byte(range.at(2)), 0x3c);

    call!(gpu, cuMemUnmap(range.at(2), gpu.granularity) => SUCCESS);
    range.free();
}
