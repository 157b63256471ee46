//! Unmapping.

use cuda_vmm::sys::CUdeviceptr;

use crate::busy::Busy;
use crate::case::{apart, case, Section};
use crate::codes::{call, demand, ILLEGAL_ADDRESS, INVALID_VALUE, NOT_FOUND};
use crate::driver::Driver;
use crate::gpu::{Gpu, UNRESERVED};
use crate::owned::{Handle, Range};
use crate::props::READ_WRITE;
use crate::support::which::Which;

/// Mappings as (first granule, granules).
type Picture = &'static [(usize, usize)];

/// Two mappings of two granules side by side.
const PAIR: Picture = &[(0, 2), (2, 2)];
/// Two mappings of two granules, two unmapped granules before and between them.
const APART: Picture = &[(2, 2), (6, 2)];

pub const SECTION: Section = Section {
    name: "unmap",
    cases: &[
        case("one_mapping", WHOLE, |gpu| unmaps(gpu, PAIR, (0, 2), &[(2, 2)])),
        case("adjacent_mappings", WHOLE, |gpu| unmaps(gpu, PAIR, (0, 4), &[])),
        case(
            "across_adjacent_reservations",
            "one unmap covers mappings of two adjacent reservations",
            across_adjacent_reservations,
        ),
        case("nothing_mapped", HOLES, |gpu| unmaps(gpu, PAIR, (8, 2), PAIR)),
        case("twice", HOLES, |gpu| {
            let view = View::new(gpu, PAIR);
            for _ in 0..2 {
                call!(gpu, cuMemUnmap(view.range.base, gpu.granules(2)) => SUCCESS);
                view.demand_mapped(&[(2, 2)]);
            }
        }),
        case("hole_between", HOLES, |gpu| unmaps(gpu, APART, (2, 6), &[])),
        case("hole_at_the_end", HOLES, |gpu| unmaps(gpu, PAIR, (2, 6), &[(0, 2)])),
        case("starting_in_a_hole", HOLES, |gpu| unmaps(gpu, APART, (1, 4), &[(6, 2)])),
        case("past_the_end_of_the_reservation", HOLES, |gpu| unmaps(gpu, PAIR, (0, 64), &[])),
        case("address_off_granule", UNALIGNED, |gpu| {
            let view = View::new(gpu, APART);
            call!(gpu, cuMemUnmap(view.range.at(1) + 4096, gpu.granules(3) - 4096) => SUCCESS);
            view.demand_mapped(&[(6, 2)]);
        }),
        case("size_off_granule", UNALIGNED, |gpu| {
            let view = View::new(gpu, APART);
            call!(gpu, cuMemUnmap(view.range.at(2), gpu.granules(2) + 4096) => SUCCESS);
            view.demand_mapped(&[(6, 2)]);
        }),
        case("size_zero", "a size of 0 is refused", |gpu| refused(gpu, (0, 0))),
        case("pointer_zero", "address 0 is refused", |gpu| nowhere(gpu, 0)),
        case("never_reserved", "an address that was never reserved is refused", |gpu| {
            nowhere(gpu, UNRESERVED)
        }),
        case("first_half", CUT, |gpu| refused(gpu, (0, 1))),
        case("second_half", CUT, |gpu| refused(gpu, (1, 1))),
        case("inner_part", CUT, |gpu| {
            let view = View::new(gpu, PAIR);
            view.demand_refused(view.range.base + (64 << 10), gpu.granularity);
        }),
        case("one_mapping_and_half_of_the_next", CUT, |gpu| refused(gpu, (0, 3))),
        case("half_of_a_mapping_and_the_next", CUT, |gpu| refused(gpu, (1, 3))),
        apart(
            "while_a_stream_writes",
            "an unmap does not wait: work that still writes there fails with ILLEGAL_ADDRESS and the context is lost",
            while_a_stream_writes,
        ),
    ],
};

const WHOLE: &str = "whole mappings are unmapped, one or several at once";
const HOLES: &str = "holes are passed in silence; every mapping wholly inside is unmapped";
const UNALIGNED: &str =
    "an address or size off the granularity is accepted where it cuts no mapping";
const CUT: &str = "a range that cuts a mapping is refused";

/// A reservation of sixteen granules with some mappings in it, each filled with the number of its first granule.
struct View<'g> {
    gpu: &'g Gpu,
    range: Range<'g>,
    _memory: Vec<Handle<'g>>,
}

impl<'g> View<'g> {
    fn new(gpu: &'g Gpu, picture: Picture) -> Self {
        let range = gpu.reserve(16);
        let back = |&(first, granules): &(usize, usize)| {
            let memory = gpu.back(range.at(first), granules);
            gpu.fill(range.at(first), first as u8, memory.size);
            memory
        };
        let memory = picture.iter().map(back).collect();
        let view = View {
            gpu,
            range,
            _memory: memory,
        };
        view.demand_mapped(picture);
        view
    }

    /// Exactly these mappings are there, with their rights and their bytes.
    #[track_caller]
    fn demand_mapped(&self, picture: &[(usize, usize)]) {
        let gpu = self.gpu;
        for granule in 0..self.range.size / gpu.granularity {
            let at = self.range.at(granule);
            let inside = |&&(first, granules): &&(usize, usize)| {
                (first..first + granules).contains(&granule)
            };
            match picture.iter().find(inside) {
                Some(&(first, granules)) => {
                    assert_eq!(gpu.rights(at), Ok(READ_WRITE), "granule {granule}");
                    let extent = (self.range.at(first), gpu.granules(granules));
                    assert_eq!(gpu.extent(at), Ok(extent), "granule {granule}");
                    assert_eq!(gpu.byte(at), first as u8, "granule {granule}");
                }
                None => {
                    assert_eq!(gpu.rights(at), Err(INVALID_VALUE), "granule {granule}");
                    assert_eq!(gpu.extent(at), Err(NOT_FOUND), "granule {granule}");
                }
            }
        }
    }

    #[track_caller]
    fn demand_refused(&self, at: CUdeviceptr, size: usize) {
        self.gpu
            .nothing_changes(|| call!(self.gpu, cuMemUnmap(at, size) => INVALID_VALUE));
        self.demand_mapped(PAIR);
    }
}

/// An unmap of so many granules from one on succeeds and leaves what it must.
fn unmaps(gpu: &Gpu, before: Picture, (from, granules): (usize, usize), after: Picture) {
    let view = View::new(gpu, before);
    call!(gpu, cuMemUnmap(view.range.at(from), gpu.granules(granules)) => SUCCESS);
    view.demand_mapped(after);
}

fn refused(gpu: &Gpu, (from, granules): (usize, usize)) {
    let view = View::new(gpu, PAIR);
    view.demand_refused(view.range.at(from), gpu.granules(granules));
}

fn nowhere(gpu: &Gpu, at: CUdeviceptr) {
    let view = View::new(gpu, PAIR);
    view.demand_refused(at, gpu.granularity);
}

fn across_adjacent_reservations(gpu: &Gpu) {
    let (first, second) = gpu.reserve_adjacent(4, 4);
    let _memory = [gpu.back(first.at(3), 1), gpu.back(second.base, 1)];
    call!(gpu, cuMemUnmap(first.at(3), gpu.granules(2)) => SUCCESS);
    assert_eq!(gpu.extent(first.at(3)), Err(NOT_FOUND));
    assert_eq!(gpu.extent(second.base), Err(NOT_FOUND));
    first.free();
    second.free();
}

fn while_a_stream_writes(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let busy = Busy::start(&gpu);
    call!(gpu, cuStreamQuery(busy.stream) => NOT_READY);
    call!(gpu, cuMemUnmap(busy.range.base, busy.range.size) => SUCCESS);
    demand("cuStreamSynchronize", busy.finish(), ILLEGAL_ADDRESS);
    call!(gpu, cuCtxSynchronize() => ILLEGAL_ADDRESS);

    busy.memory.release();
    busy.range.free();
}
