//! What bytes hold: kept while committed, zero or unspecified afterwards, never stale where zero was promised.

use cuda_vmm::{Allocation, Contents, ElasticRange, Error, Fence, Reservation};

use crate::case::{Case, Machine};

pub const CASES: &[Case] = &[
    Case::everywhere("a block that somebody holds is not reused", held_elsewhere),
    Case::everywhere("zeroes after reuse of a block that stayed", stayed),
    Case::everywhere("zeroes after reuse of a cached block", cached),
    Case::everywhere("zeroes in part of a new block, then in the rest", in_parts),
    Case::everywhere(
        "what is committed keeps its contents in all of this",
        undisturbed,
    ),
    Case::everywhere("copies are for what is committed", copies),
    Case::simulated("what the driver gives is filled, or trusted", trusting),
];

const ZEROED: [Contents; 2] = [Contents::Zeroed, Contents::ZeroedUnlessFresh];

#[track_caller]
fn holds(range: &ElasticRange, offset: usize, size: usize, value: u8) {
    let mut bytes = vec![!value; size];
    range.read(offset, &mut bytes).unwrap();
    assert!(
        bytes == [value].repeat(size),
        "[{offset}, +{size}) is not all {value}"
    );
}

fn stayed(machine: &Machine) {
    let g = machine.g;
    for contents in ZEROED {
        let mut range = machine
            .builder(8)
            .blocks(8 * g..=8 * g)
            .contents(contents)
            .reserve()
            .unwrap();
        range.commit(0, 8 * g).unwrap();
        range.fill(0, 8 * g, 7).unwrap();
        range.decommit(2 * g, 3 * g).unwrap();
        range.commit(g, 5 * g).unwrap();
        holds(&range, 0, 2 * g, 7);
        holds(&range, 2 * g, 3 * g, 0);
        holds(&range, 5 * g, 3 * g, 7);
        range.close().unwrap();
    }
}

fn cached(machine: &Machine) {
    let g = machine.g;
    for contents in ZEROED {
        let builder = machine.builder(16).blocks(g..=4 * g).cache(16 * g);
        let mut range = builder.contents(contents).reserve().unwrap();
        range.commit(0, 4 * g).unwrap();
        range.commit(8 * g, g).unwrap();
        range.fill(0, 4 * g, 9).unwrap();
        range.fill(8 * g, g, 9).unwrap();
        range.decommit(0, 16 * g).unwrap();
        // A fresh block of two, then the two cached ones.
        assert_eq!(range.commit(2 * g, 7 * g).unwrap().from_cache, 5 * g);
        holds(&range, 2 * g, 7 * g, 0);
        range.close().unwrap();
    }
}

fn in_parts(machine: &Machine) {
    let g = machine.g;
    let builder = machine.builder(8).blocks(8 * g..=8 * g).cache(8 * g);
    let mut range = builder.contents(Contents::Zeroed).reserve().unwrap();
    range.commit(0, 8 * g).unwrap();
    range.fill(0, 8 * g, 5).unwrap();
    range.decommit(0, 8 * g).unwrap();
    for granule in [3, 0, 7, 5, 1] {
        range.commit(granule * g, g).unwrap();
        holds(&range, granule * g, g, 0);
        range.fill(granule * g, g, 1).unwrap();
    }
    range.commit(0, 8 * g).unwrap();
    for granule in 0..8 {
        let value = [3, 0, 7, 5, 1].contains(&granule).into();
        holds(&range, granule * g, g, value);
    }
    range.close().unwrap();
}

fn undisturbed(machine: &Machine) {
    let g = machine.g;
    let mut range = machine
        .builder(32)
        .blocks(2 * g..=8 * g)
        .cache(4 * g)
        .reserve()
        .unwrap();
    range.commit(0, 32 * g).unwrap();
    for granule in 0..32 {
        range.fill(granule * g, g, granule as u8).unwrap();
    }
    for (offset, size) in [(3, 4), (8, 8), (21, 1), (30, 2)] {
        range.decommit(offset * g, size * g).unwrap();
    }
    range.commit(8 * g, 3 * g).unwrap();
    range.commit(30 * g, g).unwrap();
    for granule in (0..3).chain(7..8).chain(16..21).chain(22..30) {
        holds(&range, granule * g, g, granule as u8);
    }
    range.close().unwrap();
}

fn copies(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(8).blocks(4 * g..=4 * g).reserve().unwrap();
    range.commit(g, g).unwrap();
    range.commit(4 * g, 4 * g).unwrap();
    range.write(2 * g - 4, b"last").unwrap();
    range.copy_within(6 * g - 2, 2 * g - 4, 4).unwrap();
    let mut back = [0; 4];
    range.read(6 * g - 2, &mut back).unwrap();
    assert_eq!(&back, b"last");
    assert_eq!(range.view(g, g).unwrap().address(), range.base() + g as u64);
    let mut other: Reservation = Reservation::builder(g)
        .access(&machine.devices[0], cuda_vmm::Access::ReadWrite)
        .reserve(&machine.driver)
        .unwrap();
    other.map(0, g, &machine.props()).unwrap();
    other.write(0, b"other").unwrap();
    range.copy_from(5 * g, &other, 0, 5).unwrap();
    let mut back = [0; 5];
    range.read(5 * g, &mut back).unwrap();
    assert_eq!(&back, b"other");

    // Mapped, but not committed: the block reaches there.
    assert!(range.reservation().mapping_at(2 * g).is_some());
    let refused = |error: Error, asked: std::ops::Range<usize>, gap: std::ops::Range<usize>| {
        let expected = Error::NotCommitted { asked, gap };
        assert_eq!(format!("{error:?}"), format!("{expected:?}"));
    };
    let (end, over) = (2 * g - 1, 2 * g - 1..2 * g + 1);
    refused(
        machine.refused(&mut range, |range| range.write(end, b"xx")),
        over.clone(),
        2 * g..2 * g + 1,
    );
    refused(
        machine.refused(&mut range, |range| range.read(end, &mut [0; 2])),
        over.clone(),
        2 * g..2 * g + 1,
    );
    refused(
        machine.refused(&mut range, |range| range.fill(end, 2, 1)),
        over.clone(),
        2 * g..2 * g + 1,
    );
    refused(
        machine.refused(&mut range, |range| range.view(g, 5 * g).map(drop)),
        g..6 * g,
        2 * g..4 * g,
    );
    refused(
        machine.refused(&mut range, |range| range.copy_within(end, 4 * g, 2)),
        over.clone(),
        2 * g..2 * g + 1,
    );
    refused(
        machine.refused(&mut range, |range| range.copy_within(4 * g, end, 2)),
        over.clone(),
        2 * g..2 * g + 1,
    );
    refused(
        machine.refused(&mut range, |range| range.copy_from(0, &other, 0, 2)),
        0..2,
        0..2,
    );
    let device = machine.devices[0].clone();
    refused(
        machine.refused(&mut range, |range| range.access_of(7, &device)),
        7..8,
        7..8,
    );
    other.close().unwrap();
    range.close().unwrap();
}

/// Counts the fills: of everything, or of nothing that is new.
fn trusting(machine: &Machine) {
    let g = machine.g;
    let fills = |contents| {
        let builder = machine.builder(16).blocks(g..=4 * g).cache(4 * g);
        let mut range = builder.contents(contents).reserve().unwrap();
        let sim = machine.sim();
        let count = || {
            let record = cuda_vmm::sys::Call::cuMemsetD8_v2;
            sim.log().iter().filter(|one| one.call == record).count()
        };
        let start = count();
        range.commit(0, 4 * g).unwrap();
        let fresh = count() - start;
        range.decommit(0, 4 * g).unwrap();
        // From the cache, and beside it a new one.
        range.commit(0, 5 * g).unwrap();
        let reused = count() - start - fresh;
        range.close().unwrap();
        (fresh, reused)
    };
    assert_eq!(fills(Contents::Unspecified), (0, 0));
    assert_eq!(fills(Contents::Zeroed), (1, 1));
    assert_eq!(fills(Contents::ZeroedUnlessFresh), (0, 1));
}

/// A block that somebody took a count of, by its address, is not handed out again: they would see what is written there.
fn held_elsewhere(machine: &Machine) {
    let g = machine.g;
    let builder = machine.builder(8).blocks(g..=2 * g).cache(8 * g);
    let mut range = builder.reserve().unwrap();
    range.commit(0, 4 * g).unwrap();
    let held = Allocation::retain(&machine.driver, range.base()).unwrap();
    let fence = Fence::closure(|_| Ok::<_, String>(()));
    match machine.refused(&mut range, |range| range.decommit_splitting(0, g, fence)) {
        Error::BlockKnownOutside { block } => assert_eq!(block, 0..2 * g),
        other => panic!("{other:?}"),
    }
    let gone = range.decommit(0, 4 * g).unwrap();
    assert_eq!((gone.released, gone.cached), (2 * g, 2 * g));
    held.release().unwrap();
    // Nobody has the other one.
    range.commit(0, 2 * g).unwrap();
    assert_eq!(range.cached_bytes(), 0);
    assert_eq!(range.decommit(0, 2 * g).unwrap().cached, 2 * g);
    range.close().unwrap();
}
