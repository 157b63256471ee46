//! Memory found by its address, whoever mapped it.

use cuda_vmm::share::SpanSource;
use cuda_vmm::sys::{CUresult, DriverCalls};
use cuda_vmm::{Access, Allocation, Error, HandleType, HandleTypes, Origin, Reservation, What};

use crate::pair::{received, Pair};
use crate::rig::{same, says, Rig, G};

#[test]
fn whole_allocations_beneath_a_part_of_them() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let address = kv.base() + 5 * G as u64 + 100;
    let before = pair.maker.sim.snapshot();
    let found = SpanSource::of_addresses(&pair.maker.driver, address, G).unwrap();
    assert_eq!((found.lead(), found.size()), (100, 2 * G));
    let pieces: Vec<_> = found.pieces().map(|(at, one)| (at, one.size())).collect();
    assert_eq!(pieces, [(0, G), (G, G)]);

    let import = received(found.export(HandleType::PosixFd, Access::Read).unwrap());
    found.release().unwrap();
    let contexts = pair.maker.sim.snapshot().retained_contexts;
    assert_eq!(contexts, before.retained_contexts);
    let there = import
        .attach_read_only(&pair.taker.driver, [pair.taker.device()])
        .unwrap();
    let mut byte = [0];
    there.read(0, &mut byte).unwrap();
    assert_eq!(byte, [3], "the page");
    there.read(G, &mut byte).unwrap();
    assert_eq!(byte, [6]);
    there.close().unwrap();
    assert_eq!(pair.maker.sim.snapshot(), before);
}

#[test]
fn gaps_are_an_error_or_left() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let (driver, base) = (&pair.maker.driver, kv.base());
    let before = pair.maker.sim.snapshot();
    let at = |granule: usize| base + (granule * G) as u64;
    let error = SpanSource::of_addresses(driver, base, 10 * G).unwrap_err();
    says(
        &error,
        &Error::Gap {
            asked: base..at(10),
            gap: at(2)..at(3),
        },
        &format!(
            "[{:#x}, {:#x}) (2 MiB) in [{base:#x}, {:#x}) (20 MiB) is not mapped by virtual memory management: ask for less, or allow for gaps",
            at(2), at(3), at(10)
        ),
    );
    assert_eq!(pair.maker.sim.snapshot(), before);

    let found = SpanSource::of_sparse_addresses(driver, at(2), 8 * G).unwrap();
    let pieces: Vec<_> = found.pieces().map(|(offset, _)| offset / G).collect();
    assert_eq!(
        pieces,
        [1, 3, 4],
        "counted from where it was asked to begin"
    );
    let span = found.export(HandleType::PosixFd, Access::Read).unwrap();
    assert_eq!(
        span.descriptor().allocations().len(),
        2,
        "a mirror is sent once"
    );
    found.release().unwrap();
    drop(span);
    assert_eq!(pair.maker.sim.snapshot(), before);

    let nothing = SpanSource::of_sparse_addresses(driver, at(7), 3 * G).unwrap_err();
    same(
        &nothing,
        &Error::Gap {
            asked: at(7)..at(10),
            gap: at(7)..at(10),
        },
    );
}

#[test]
fn exports_of_what_was_found_are_equal_to_those_of_the_reservation() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let export = |source: &SpanSource| {
        let span = source.export(HandleType::PosixFd, Access::Read).unwrap();
        span.descriptor().encode()
    };
    let found = || SpanSource::of_sparse_addresses(&pair.maker.driver, kv.base(), 7 * G).unwrap();
    let (one, two) = (found(), found());
    let bytes = export(&one);
    assert_eq!(bytes, export(&two));
    let own = kv
        .export_span(0, 7 * G, HandleType::PosixFd, Access::Read)
        .unwrap();
    assert_eq!(own.descriptor().encode(), bytes);
}

#[test]
fn ordinary_memory_and_bad_ranges() {
    let rig = Rig::new();
    let guard = rig.device().make_current().unwrap();
    let mut address = 0;
    let made = unsafe { rig.sim.cuMemAlloc_v2(&mut address, G) };
    assert_eq!(made, CUresult::CUDA_SUCCESS);
    let of = |address, size| SpanSource::of_addresses(&rig.driver, address, size).unwrap_err();
    assert!(matches!(of(address, G), Error::Gap { .. }));
    same(&of(address, 0), &Error::ZeroSize { what: What::Size });
    same(
        &of(u64::MAX, 2),
        &Error::Overflow {
            offset: usize::MAX,
            size: 2,
        },
    );
    let freed = unsafe { rig.sim.cuMemFree_v2(address) };
    assert_eq!(freed, CUresult::CUDA_SUCCESS);
    drop(guard);
    rig.leaves_nothing();
}

#[test]
fn what_was_not_made_for_it() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props()).unwrap();
    let found = SpanSource::of_addresses(&rig.driver, kv.base(), G).unwrap();
    let calls = rig.sim.calls();
    same(
        &found.export(HandleType::PosixFd, Access::Read).unwrap_err(),
        &Error::NotExportable {
            asked: HandleTypes::NONE,
            needed: HandleTypes::POSIX_FD,
        },
    );
    same(
        &found.export(HandleType::PosixFd, Access::None).unwrap_err(),
        &Error::NothingOffered,
    );
    assert_eq!(rig.sim.calls(), calls);
}

#[test]
fn an_import_is_offered_as_it_was_to_whoever_finds_it() {
    let pair = Pair::new();
    let here = pair.furnished();
    let span = here.export_span(0, here.size(), HandleType::PosixFd, Access::Read);
    let there = received(span.unwrap())
        .attach_read_only(&pair.taker.driver, [pair.taker.device()])
        .unwrap();
    let name = |address| {
        let found = Allocation::retain(&pair.taker.driver, address).unwrap();
        assert_eq!(found.offered(), Access::Read, "at {address:#x}");
        found.id()
    };
    let page = there.base() + 3 * G as u64;
    assert_eq!(name(page), name(page + 2 * G as u64), "mapped twice");
    assert_ne!(name(page), name(there.base()));

    // The rights stay when the span is gone, and what is found in another mapping of it has them too.
    let found = Allocation::retain(&pair.taker.driver, page).unwrap();
    let more = Error::MoreThanOffered {
        asked: Access::ReadWrite,
        offered: Access::Read,
    };
    there.close().unwrap();
    assert_eq!(found.origin(), Origin::Retained);
    let mut writable = pair.taker.reserve(1);
    let refused = |kv: &mut Reservation| kv.map_existing(0, &found);
    same(&pair.taker.refused(&mut writable, refused), &more);
    writable.close().unwrap();

    let device = pair.taker.device();
    let mut readable = Reservation::builder(G)
        .access(device, Access::Read)
        .reserve(&pair.taker.driver)
        .unwrap();
    readable.map_existing(0, &found).unwrap();
    found.release().unwrap();
    let source = SpanSource::of_addresses(&pair.taker.driver, readable.base(), G).unwrap();
    let offered: Vec<_> = source.pieces().map(|(_, one)| one.offered()).collect();
    assert_eq!(offered, [Access::Read]);
    source.release().unwrap();
    let write = |kv: &mut Reservation| kv.set_access(0, G, device, Access::ReadWrite);
    same(&pair.taker.refused(&mut readable, write), &more);
    let mut byte = [0];
    readable.read(0, &mut byte).unwrap();
    assert_eq!(byte, [3]);
    readable.close().unwrap();
    here.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn ones_own_memory_is_offered_whole_to_whoever_finds_it() {
    let pair = Pair::new();
    let here = pair.furnished();
    let found = |address| Allocation::retain(&pair.maker.driver, address).unwrap();
    let span = here.export_span(0, here.size(), HandleType::PosixFd, Access::Read);
    let page = here.base() + 3 * G as u64;
    assert_eq!(
        found(page).offered(),
        Access::ReadWrite,
        "by its maker, whatever it offers others"
    );

    // Rights are the import's: the same memory, imported by its maker to be read, is a handle of its own.
    let again = received(span.unwrap())
        .attach_read_only(&pair.maker.driver, [pair.maker.device()])
        .unwrap();
    let mirror = found(again.base() + 3 * G as u64);
    assert_eq!(mirror.offered(), Access::Read);
    assert_eq!(found(page).offered(), Access::ReadWrite);
    drop(mirror);
    again.close().unwrap();
    here.close().unwrap();
    pair.leaves_nothing();
}
