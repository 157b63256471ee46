//! Decommitting with blocks split: what survives is copied, and the rest goes.

use cuda_vmm::sim::SimDevice;
use cuda_vmm::sim::Simulation;
use cuda_vmm::{Driver, ElasticRange, Error, Fence};

use crate::case::{blocks, kept, ran_out, runs, state, Case, Machine};

pub const CASES: &[Case] = &[
    Case::everywhere("the middle of a block", middle),
    Case::everywhere("the ends of two blocks and all between", two_blocks),
    Case::everywhere("slots that survive in part stay", slots),
    Case::everywhere("slots side by side are one block", neighbours),
    Case::everywhere("what was let go before goes with it", earlier_holes),
    Case::everywhere("nothing is split where nothing is won", nothing_won),
    Case::everywhere("a fence that fails leaves all", failed_fence),
    Case::simulated("no memory to split with", no_memory),
];

fn fence(machine: &Machine) -> Fence<'static> {
    Fence::default_stream(&machine.devices[0])
}

/// Committed throughout in blocks of eight granules, each granule filled with its number.
fn filled(machine: &Machine, least: usize) -> ElasticRange {
    let g = machine.g;
    let mut range = machine
        .builder(32)
        .blocks(least * g..=8 * g)
        .reserve()
        .unwrap();
    range.commit(0, 32 * g).unwrap();
    for granule in 0..32 {
        range.fill(granule * g, g, granule as u8 + 1).unwrap();
    }
    range
}

#[track_caller]
fn intact(range: &ElasticRange) {
    let g = range.granularity();
    for run in range.runs() {
        for offset in run.step_by(g) {
            let (mut first, mut last) = ([0; 64], [0; 64]);
            range.read(offset, &mut first).unwrap();
            range.read(offset + g - 64, &mut last).unwrap();
            assert_eq!(
                (first, last),
                ([(offset / g) as u8 + 1; 64], [(offset / g) as u8 + 1; 64])
            );
        }
    }
}

fn middle(machine: &Machine) {
    let g = machine.g;
    let mut range = filled(machine, 1);
    let free = machine.devices[0].free_memory().unwrap();
    let gone = range
        .decommit_splitting(9 * g, 5 * g, fence(machine))
        .unwrap();
    assert_eq!(
        (gone.bytes, gone.released, gone.kept_bytes()),
        (5 * g, 5 * g, 0)
    );
    assert_eq!(blocks(&range), [8, 1, 2, 8, 8]);
    assert_eq!(runs(&range), [(0, 9), (14, 32)]);
    assert_eq!(
        (range.committed_bytes(), range.retained_bytes()),
        (27 * g, 27 * g)
    );
    let now = machine.devices[0].free_memory().unwrap();
    assert!(
        now.abs_diff(free + 5 * g) <= g,
        "{free} and then {now} bytes were free"
    );
    intact(&range);
    range.commit(8 * g, 8 * g).unwrap();
    assert_eq!(blocks(&range), [8, 1, 1, 2, 2, 2, 8, 8]);
    range.close().unwrap();
}

fn two_blocks(machine: &Machine) {
    let g = machine.g;
    let mut range = filled(machine, 1);
    let gone = range
        .decommit_splitting(6 * g, 21 * g, fence(machine))
        .unwrap();
    assert_eq!(
        (gone.bytes, gone.released, gone.kept_bytes()),
        (21 * g, 21 * g, 0)
    );
    assert_eq!(blocks(&range), [4, 2, 1, 4]);
    assert_eq!(runs(&range), [(0, 6), (27, 32)]);
    intact(&range);
    range.close().unwrap();
}

fn slots(machine: &Machine) {
    let g = machine.g;
    let mut range = filled(machine, 2);
    let gone = range
        .decommit_splitting(3 * g, 4 * g, fence(machine))
        .unwrap();
    assert_eq!((gone.bytes, gone.released), (4 * g, 2 * g));
    assert_eq!(kept(&gone, g), [(3, 4), (6, 7)]);
    assert_eq!(blocks(&range), [4, 2, 8, 8, 8]);
    assert_eq!(
        (range.committed_bytes(), range.retained_bytes()),
        (28 * g, 30 * g)
    );
    intact(&range);
    range.close().unwrap();
}

/// Slots that lie side by side are covered together, though the runs that survive in them do not touch.
fn neighbours(machine: &Machine) {
    let g = machine.g;
    let mut range = filled(machine, 2);
    range.decommit(g, g).unwrap();
    let gone = range.decommit_splitting(4 * g, 4 * g, fence(machine));
    assert_eq!(gone.unwrap().released, 4 * g);
    assert_eq!(blocks(&range), [4, 8, 8, 8]);
    assert_eq!(runs(&range), [(0, 1), (2, 4), (8, 32)]);
    intact(&range);
    range.close().unwrap();
}

fn earlier_holes(machine: &Machine) {
    let g = machine.g;
    let mut range = filled(machine, 1);
    range.decommit(g, 2 * g).unwrap();
    range.decommit(7 * g, g).unwrap();
    let gone = range
        .decommit_splitting(4 * g, 2 * g, fence(machine))
        .unwrap();
    assert_eq!((gone.bytes, gone.released), (2 * g, 5 * g));
    assert_eq!(blocks(&range), [1, 1, 1, 8, 8, 8]);
    assert_eq!(runs(&range), [(0, 1), (3, 4), (6, 7), (8, 32)]);
    intact(&range);
    range.close().unwrap();
}

fn nothing_won(machine: &Machine) {
    let g = machine.g;
    let mut range = filled(machine, 8);
    let gone = range
        .decommit_splitting(3 * g, 4 * g, fence(machine))
        .unwrap();
    assert_eq!(
        (gone.bytes, gone.released, gone.kept_bytes()),
        (4 * g, 0, 4 * g)
    );
    assert_eq!(blocks(&range), [8, 8, 8, 8]);
    let gone = range
        .decommit_splitting(8 * g, 8 * g, fence(machine))
        .unwrap();
    assert_eq!(
        (gone.bytes, gone.released, gone.kept_bytes()),
        (8 * g, 8 * g, 0)
    );
    intact(&range);
    range.close().unwrap();
}

fn failed_fence(machine: &Machine) {
    let g = machine.g;
    let mut range = filled(machine, 1);
    let before = state(&range);
    let late = Fence::closure(|_| Err("late"));
    let error = range.decommit_splitting(3 * g, 10 * g, late).unwrap_err();
    assert!(matches!(error, Error::WaitFailed(_)), "{error:?}");
    assert_eq!(state(&range), before);
    intact(&range);
    range.close().unwrap();
}

fn no_memory(_: &Machine) {
    let device = SimDevice::new().memory(37 << 21);
    let sim = Simulation::builder().device(device).build().unwrap();
    let machine = Machine::of(Driver::simulated(&sim).unwrap(), Some(sim));
    let g = machine.g;
    let mut range = filled(&machine, 1);
    let before = (state(&range), machine.sim().snapshot());
    let error = range
        .decommit_splitting(6 * g, g, fence(&machine))
        .unwrap_err();
    assert_eq!(ran_out(&error), (7 * g, Some(5 * g), 0));
    assert_eq!((state(&range), machine.sim().snapshot()), before);
    intact(&range);
    // What is left fits.
    let gone = range
        .decommit_splitting(4 * g, 4 * g, fence(&machine))
        .unwrap();
    assert_eq!(gone.released, 4 * g);
    intact(&range);
    range.close().unwrap();
}
