//! What could not be undone: blocks in quarantine are in the way, are never reused, and go with the next decommit.

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Code, Driver, ElasticRange, Error, Fence};

use crate::case::{blocks, runs, Case, Machine};

pub const CASES: &[Case] = &[
    Case::simulated(
        "a block that stays after a commit is in the way",
        in_the_way,
    ),
    Case::simulated("a block that could not be put back is not split", not_back),
    Case::simulated("a new block that stays in the place of an old one", stuck),
    Case::simulated(
        "a split empties the cache before memory is out",
        split_for_cache,
    ),
    Case::simulated("out of memory is final where undoing failed", final_failure),
    Case::simulated(
        "a cached block that close cannot release is kept",
        kept_by_close,
    ),
];

fn vouched() -> Fence<'static> {
    Fence::closure(|_| Ok::<_, String>(()))
}

#[track_caller]
fn quarantined(error: &Error, block: std::ops::Range<usize>) {
    match error {
        Error::Quarantined { mapping } => assert_eq!(*mapping, block),
        other => panic!("{other:?}"),
    }
}

fn in_the_way(machine: &Machine) {
    let (sim, g) = (machine.sim(), machine.g);
    let builder = machine.builder(16).blocks(g..=4 * g).cache(8 * g);
    let mut range = builder.reserve().unwrap();
    range.commit(0, 2 * g).unwrap();
    sim.inject(Fault::on(Call::cuMemSetAccess)).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let error = range.commit(0, 8 * g).unwrap_err();
    assert_eq!(error.first().code(), Some(Code::ERROR_UNKNOWN));
    assert_eq!(error.undo_failures().len(), 1);
    assert_eq!((blocks(&range), runs(&range)), (vec![2, 4], vec![(0, 2)]));
    assert_eq!(range.retained_bytes(), 6 * g);
    // Not the first mapping beneath what is asked for.
    let error = machine.refused(&mut range, |range| range.commit(0, 8 * g));
    quarantined(&error, 4 * g..8 * g);
    let gone = range.decommit(3 * g, 2 * g).unwrap();
    assert_eq!((gone.bytes, gone.released, gone.cached), (0, 4 * g, 0));
    assert_eq!(range.retained_bytes(), 2 * g);
    range.commit(0, 8 * g).unwrap();
    range.close().unwrap();
}

/// One block of eight granules, committed throughout.
fn one_block(machine: &Machine) -> ElasticRange {
    let g = machine.g;
    let builder = machine.builder(8).blocks(g..=8 * g).cache(8 * g);
    let mut range = builder.reserve().unwrap();
    range.commit(0, 8 * g).unwrap();
    range
}

fn not_back(machine: &Machine) {
    let (sim, g) = (machine.sim(), machine.g);
    let mut range = one_block(machine);
    // Three new blocks are mapped aside to be filled; the first of them cannot be mapped in place, nor the old one.
    sim.inject(Fault::on(Call::cuMemMap).nth(4).forever())
        .unwrap();
    let error = range.decommit_splitting(g, g, vouched()).unwrap_err();
    assert_eq!(error.undo_failures().len(), 1);
    sim.clear_faults();
    assert_eq!((blocks(&range), runs(&range)), (vec![8], vec![(0, 8)]));
    quarantined(&range.read(0, &mut [0]).unwrap_err(), 0..8 * g);
    let error = machine.refused(&mut range, |range| {
        range.decommit_splitting(g, g, vouched())
    });
    quarantined(&error, 0..8 * g);
    let gone = range.decommit(0, 8 * g).unwrap();
    assert_eq!((gone.bytes, gone.released, gone.cached), (8 * g, 8 * g, 0));
    assert_eq!((range.retained_bytes(), range.cached_bytes()), (0, 0));
    assert!(sim.snapshot().handles.is_empty());
    range.close().unwrap();
}

fn stuck(machine: &Machine) {
    let (sim, g) = (machine.sim(), machine.g);
    let mut range = one_block(machine);
    // The second new block cannot be mapped in place, and the first not taken out again.
    sim.inject(Fault::on(Call::cuMemMap).nth(5)).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap).nth(5)).unwrap();
    let error = range.decommit_splitting(g, g, vouched()).unwrap_err();
    assert_eq!(error.undo_failures().len(), 1);
    assert_eq!(sim.pending_faults(), []);
    // Nothing of the old block is mapped, so nothing of it is committed; its memory waits for the close.
    assert_eq!((blocks(&range), runs(&range)), (vec![1], vec![]));
    assert_eq!((range.committed_bytes(), range.retained_bytes()), (0, g));
    assert_eq!(range.reservation().quarantined(), 2);
    let gone = range.decommit(0, 8 * g).unwrap();
    assert_eq!((gone.bytes, gone.released, gone.cached), (0, g, 0));
    range.commit(0, 8 * g).unwrap();
    range.close().unwrap();
}

fn split_for_cache(_: &Machine) {
    let device = SimDevice::new().memory(37 << 21);
    let sim = Simulation::builder().device(device).build().unwrap();
    let machine = Machine::of(Driver::simulated(&sim).unwrap(), Some(sim));
    let g = machine.g;
    let builder = machine.builder(32).blocks(g..=8 * g).cache(8 * g);
    let mut range = builder.reserve().unwrap();
    range.commit(0, 32 * g).unwrap();
    range.fill(8 * g, g, 7).unwrap();
    range.decommit(24 * g, 8 * g).unwrap();
    assert_eq!(range.cached_bytes(), 8 * g);
    // Seven granules survive, and five are free.
    let gone = range.decommit_splitting(15 * g, g, vouched()).unwrap();
    assert_eq!((gone.released, range.cached_bytes()), (g, 0));
    let mut seen = [0; 2];
    range.read(9 * g - 2, &mut seen).unwrap();
    assert_eq!((seen, blocks(&range)), ([7; 2], vec![8, 4, 2, 1, 8]));
    range.close().unwrap();
}

fn final_failure(machine: &Machine) {
    let (sim, g) = (machine.sim(), machine.g);
    let builder = machine.builder(16).blocks(g..=4 * g).cache(4 * g);
    let mut range = builder.reserve().unwrap();
    range.commit(0, 4 * g).unwrap();
    range.decommit(0, 4 * g).unwrap();
    let out = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    sim.inject(Fault::on(Call::cuMemCreate).nth(2).code(out))
        .unwrap();
    sim.inject(Fault::on(Call::cuMemRelease)).unwrap();
    let error = range.commit(8 * g, 3 * g).unwrap_err();
    assert!(
        matches!(error.first(), Error::OutOfMemory { .. }),
        "{error:?}"
    );
    assert_eq!(error.undo_failures().len(), 1);
    // Asked no second time, for which the cache would have gone.
    assert_eq!((range.cached_bytes(), range.retained_bytes()), (4 * g, 0));
    assert_eq!(range.reservation().quarantined(), 1);
    range.close().unwrap();
}

fn kept_by_close(machine: &Machine) {
    let (sim, g) = (machine.sim(), machine.g);
    let mut range = machine.builder(4).cache(4 * g).reserve().unwrap();
    range.commit(0, g).unwrap();
    range.decommit(0, g).unwrap();
    sim.inject(Fault::on(Call::cuMemRelease)).unwrap();
    let unclosed = range.close().unwrap_err();
    assert_eq!(unclosed.error.code(), Some(Code::ERROR_UNKNOWN));
    assert_eq!(
        (unclosed.further.len(), unclosed.reservation.quarantined()),
        (0, 1)
    );
    unclosed.reservation.into_inner().close().unwrap();
}
