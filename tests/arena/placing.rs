//! Where pieces lie, without any memory beneath.

use cuda_vmm::arena::{Arena, Extent, Fit, Piece};
use cuda_vmm::{Error, What};
use proptest::prelude::*;

use crate::rig::says;

fn cursors(arena: &Arena) -> Vec<usize> {
    arena.extents().map(|(_, cursor)| cursor).collect()
}

fn three(fit: Fit) -> Arena {
    let extents = [(0x1000, 100), (0x2000, 50), (0x3000, 200)];
    Arena::over(
        extents.map(|(address, size)| Extent::new(address, size)),
        fit,
    )
    .unwrap()
}

#[test]
fn first_fit_takes_the_first_with_room() {
    let mut arena = three(Fit::First);
    let places: Vec<u64> = [60, 60, 40, 50, 1]
        .into_iter()
        .map(|size| arena.allocate(size, 0).unwrap().address())
        .collect();
    assert_eq!(places, [0x1000, 0x3000, 0x1000 + 60, 0x2000, 0x3000 + 60]);
    assert_eq!(cursors(&arena), [100, 50, 61]);
    assert_eq!((arena.used(), arena.left(), arena.freed()), (211, 139, 0));
}

#[test]
fn best_fit_takes_the_one_with_the_least_room() {
    let mut arena = three(Fit::Best);
    let places: Vec<u64> = [40, 10, 10, 101, 90]
        .into_iter()
        .map(|size| arena.allocate(size, 1).unwrap().address())
        .collect();
    assert_eq!(places, [0x2000, 0x2000 + 40, 0x1000, 0x3000, 0x1000 + 10]);
    assert_eq!(cursors(&arena), [100, 50, 101]);
}

#[test]
fn of_equal_rooms_best_fit_takes_the_first() {
    let extents = [0x1000, 0x2000].map(|address| Extent::new(address, 50));
    let mut arena = Arena::over(extents, Fit::Best).unwrap();
    assert_eq!(arena.allocate(10, 0).unwrap().address(), 0x1000);
}

#[test]
fn a_full_arena_names_the_largest_room_of_all() {
    for fit in [Fit::First, Fit::Best] {
        let extents = [(0x1000, 100), (0x2000, 200), (0x3000, 50)];
        let extents = extents.map(|(address, size)| Extent::new(address, size));
        let mut arena = Arena::over(extents, fit).unwrap();
        let error = arena.allocate(201, 0).unwrap_err();
        assert!(
            matches!(
                error,
                Error::ArenaFull {
                    size: 201,
                    largest: 200,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn alignment_is_of_the_address() {
    let mut arena = Arena::over([Extent::new(0x1003, 0x100)], Fit::First).unwrap();
    assert_eq!(arena.allocate(1, 16).unwrap().address(), 0x1010);
    assert_eq!(arena.allocate(1, 0).unwrap().address(), 0x1011);
    assert_eq!(arena.allocate(1, 64).unwrap().address(), 0x1040);
    assert_eq!((arena.used(), arena.left()), (0x3e, 0x100 - 0x3e));
    says(
        &arena.allocate(1, 4096).unwrap_err(),
        &Error::ArenaFull {
            size: 1,
            alignment: 4096,
            largest: 0,
        },
        "no extent has room for 1 bytes aligned to 4096; the most that one has is 0 bytes: reset the arena, or give it \
         more extents",
    );
    says(
        &arena.allocate(0x100, 64).unwrap_err(),
        &Error::ArenaFull {
            size: 0x100,
            alignment: 64,
            largest: 0x1103 - 0x1080,
        },
        "no extent has room for 256 bytes aligned to 64; the most that one has is 131 bytes: reset the arena, or give \
         it more extents",
    );
    assert_eq!(cursors(&arena), [0x3e]);
}

#[test]
fn frees_are_counted() {
    let mut arena = three(Fit::First);
    let (first, second) = (
        arena.allocate(10, 0).unwrap(),
        arena.allocate(20, 0).unwrap(),
    );
    arena.free(second).unwrap();
    assert_eq!((arena.freed(), arena.used()), (20, 30));
    arena.free(first).unwrap();
    assert_eq!((arena.freed(), arena.used(), arena.left()), (30, 30, 320));
    // Not handed out again before a new beginning.
    assert_eq!(arena.allocate(1, 0).unwrap().address(), 0x1000 + 30);
    arena.reset();
    assert_eq!((arena.freed(), arena.used()), (0, 0));
    assert_eq!(arena.allocate(1, 0).unwrap().address(), 0x1000);
}

#[test]
fn a_piece_of_another_arena_or_beginning_is_refused() {
    let (mut arena, mut other) = (three(Fit::First), three(Fit::First));
    let (foreign, forgotten) = (
        other.allocate(10, 0).unwrap(),
        arena.allocate(10, 0).unwrap(),
    );
    let text = "the 10 bytes at 0x1000 were not handed out by this arena since it began anew";
    let expected = Error::NotOfThisArena {
        address: 0x1000,
        size: 10,
    };
    says(&arena.free(foreign).unwrap_err(), &expected, text);
    arena.reset();
    says(&arena.free(forgotten).unwrap_err(), &expected, text);
    assert_eq!(arena.freed(), 0);
}

#[test]
fn extents_can_be_set_anew() {
    let mut arena = three(Fit::Best);
    let old = arena.allocate(10, 0).unwrap();
    let bad = [Extent::new(0, 10), Extent::new(9, 1)];
    says(
        &arena.set_extents(bad).unwrap_err(),
        &Error::ExtentsOverlap {
            first: 0..10,
            second: 9..10,
        },
        "the extents [0x0, 0xa) (10 B) and [0x9, 0xa) (1 B) overlap: give each address once",
    );
    // Nothing is changed: the old piece is still known.
    assert_eq!(cursors(&arena), [0, 10, 0]);
    arena.free(old).unwrap();
    arena.set_extents([Extent::new(0x8000, 8)]).unwrap();
    assert_eq!((arena.used(), arena.left(), arena.freed()), (0, 8, 0));
    assert_eq!(arena.allocate(8, 8).unwrap().address(), 0x8000);
    arena.set_extents([]).unwrap();
    assert!(matches!(
        arena.allocate(1, 0),
        Err(Error::ArenaFull { largest: 0, .. })
    ));
}

#[test]
fn what_cannot_be() {
    let mut arena = three(Fit::First);
    says(
        &arena.allocate(0, 0).unwrap_err(),
        &Error::ZeroSize { what: What::Size },
        "size is zero: give a size in bytes",
    );
    says(
        &arena.allocate(1, 48).unwrap_err(),
        &Error::AlignmentNotPowerOfTwo { alignment: 48 },
        "alignment 48 is not a power of two, or 64",
    );
    says(
        &Arena::over([Extent::new(1, 0)], Fit::First).unwrap_err(),
        &Error::ZeroSize {
            what: What::ExtentSize,
        },
        "extent size is zero: give a size in bytes",
    );
    let beyond = Arena::over([Extent::new(u64::MAX, 1)], Fit::First).unwrap_err();
    assert!(matches!(
        beyond,
        Error::Overflow {
            offset: usize::MAX,
            size: 1
        }
    ));
    assert!(matches!(
        arena.allocate(usize::MAX, 1 << 63),
        Err(Error::ArenaFull { largest: 0, .. })
    ));
    assert_eq!(arena.used(), 0);
}

/// More than the reference's sixty-four.
#[test]
fn many_extents() {
    let extents = (0..1000).map(|nth| Extent::new(nth << 20, 64));
    let mut arena = Arena::over(extents, Fit::First).unwrap();
    let pieces: Vec<Piece> = (0..1000).map(|_| arena.allocate(64, 64).unwrap()).collect();
    assert_eq!(pieces[999].address(), 999 << 20);
    assert_eq!(arena.left(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Pieces are aligned, lie in an extent, never over another, and the counts add up; a refusal is right.
    #[test]
    fn pieces_never_overlap(
        best in any::<bool>(),
        extents in prop::collection::vec((0u64..50, 1usize..3000), 0..6),
        asked in prop::collection::vec((1usize..900, 0u32..10, any::<bool>()), 1..60),
    ) {
        let mut end = 0;
        let extents: Vec<Extent> = extents
            .into_iter()
            .map(|(gap, size)| {
                let extent = Extent::new(end + gap, size);
                end += gap + size as u64;
                extent
            })
            .collect();
        let fit = if best { Fit::Best } else { Fit::First };
        let mut arena = Arena::over(extents.clone(), fit).unwrap();
        let mut taken: Vec<(u64, usize)> = Vec::new();
        let mut freed = 0;
        for (size, alignment, free) in asked {
            let alignment = 1 << alignment;
            let before = cursors(&arena);
            match arena.allocate(size, alignment) {
                Ok(piece) => {
                    let (start, end) = (piece.address(), piece.address() + size as u64);
                    prop_assert_eq!(start % alignment as u64, 0);
                    prop_assert!(extents.iter().any(|extent| extent.address() <= start
                        && end <= extent.address() + extent.size() as u64));
                    prop_assert!(taken.iter().all(|(other, len)| end <= *other || other + *len as u64 <= start));
                    taken.push((start, size));
                    if free {
                        freed += size;
                        arena.free(piece).unwrap();
                    }
                }
                Err(Error::ArenaFull { largest, .. }) => {
                    prop_assert_eq!(cursors(&arena), before);
                    prop_assert!(largest < size);
                    if largest > 0 {
                        prop_assert!(arena.allocate(largest, alignment).is_ok());
                        arena.reset();
                        (taken, freed) = (Vec::new(), 0);
                    }
                }
                Err(other) => panic!("{other}"),
            }
            prop_assert_eq!(arena.freed(), freed);
            let all: usize = extents.iter().map(|extent| extent.size()).sum();
            prop_assert_eq!(arena.used() + arena.left(), all);
        }
    }
}
