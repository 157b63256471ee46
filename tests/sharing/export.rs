//! A span of a reservation, exported.

use cuda_vmm::share::{Descriptor, Home};
use cuda_vmm::sim::{Fault, Simulation};
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Error, HandleType, HandleTypes, Reservation};

use crate::pair::{exported, Pair};
use crate::rig::{same, Rig, G};

/// Refused without a driver call and without a change.
fn refused(rig: &Rig, kv: &Reservation, offset: usize, size: usize, offered: Access) -> Error {
    let before = (rig.sim.calls(), rig.sim.snapshot(), kv.to_string());
    let error = kv
        .export_span(offset, size, HandleType::PosixFd, offered)
        .unwrap_err();
    let after = (rig.sim.calls(), rig.sim.snapshot(), kv.to_string());
    assert_eq!(after, before, "{error}");
    error
}

fn places(descriptor: &Descriptor) -> Vec<(u64, u32)> {
    let places = descriptor.pieces().iter();
    places
        .map(|piece| (piece.offset, piece.allocation))
        .collect()
}

#[test]
fn holes_are_told_and_a_mirror_is_sent_once() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let span = exported(&kv);
    let descriptor = span.descriptor();
    assert_eq!(descriptor.size(), 10 * G as u64);
    assert_eq!(descriptor.handle_type(), HandleType::PosixFd);
    assert_eq!(descriptor.offered(), Access::ReadWrite);
    let g = G as u64;
    assert_eq!(
        places(descriptor),
        [(0, 0), (3 * g, 1), (5 * g, 1), (6 * g, 2)]
    );
    let sizes: Vec<_> = descriptor
        .allocations()
        .iter()
        .map(|one| one.size)
        .collect();
    assert_eq!(sizes, [2 * g, g, g]);
    let uuid = pair.maker.device().uuid().unwrap();
    assert!(descriptor
        .allocations()
        .iter()
        .all(|one| one.home == Home::Device(uuid) && one.fabric.is_none()));
    assert_eq!((span.fds().len(), descriptor.fd_count()), (3, 3));
    assert!(descriptor.is_of_this_process());
    assert_eq!(
        Descriptor::decode(&descriptor.encode()).unwrap(),
        *descriptor
    );
    drop(span);
    kv.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn an_export_takes_nothing_from_the_reservation() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let (before, view) = (pair.maker.sim.snapshot(), kv.to_string());
    drop(exported(&kv));
    assert_eq!(pair.maker.sim.snapshot(), before);
    assert_eq!(kv.to_string(), view);
    let fabric = kv.export_span(0, 10 * G, HandleType::Fabric, Access::Read);
    drop(fabric.unwrap());
    assert_eq!(pair.maker.sim.snapshot(), before);
}

#[test]
fn equal_exports_are_equal_bytes() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let (one, two) = (exported(&kv), exported(&kv));
    assert_eq!(one.descriptor().encode(), two.descriptor().encode());
    drop((one, two));
    let by_name = || kv.export_span(0, 10 * G, HandleType::Fabric, Access::Read);
    let (one, two) = (by_name().unwrap(), by_name().unwrap());
    assert_eq!(one.descriptor().encode(), two.descriptor().encode());
    // The names are the memory's, not the export's.
    let names = |descriptor: &Descriptor| {
        let names = descriptor.allocations().iter();
        names.map(|one| one.id).collect::<Vec<_>>()
    };
    assert_eq!(names(exported(&kv).descriptor()), names(one.descriptor()));
}

#[test]
fn memory_that_is_mapped_anew_has_another_name() {
    let pair = Pair::new();
    let mut kv = pair.maker.reserve(1);
    let mut names = Vec::new();
    for _ in 0..3 {
        let id = kv.map(0, G, &pair.props()).unwrap();
        names.push(exported(&kv).descriptor().allocations()[0].id);
        kv.unmap(id).unwrap();
    }
    names.dedup();
    assert_eq!(names.len(), 3);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3);
}

#[test]
fn a_part_of_a_reservation() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let span = kv
        .export_span(2 * G, 4 * G, HandleType::PosixFd, Access::Read)
        .unwrap();
    assert_eq!(
        places(span.descriptor()),
        [(G as u64, 0), (3 * G as u64, 0)]
    );
    assert_eq!(span.descriptor().size(), 4 * G as u64);
    assert_eq!(span.fds().len(), 1);
}

#[test]
fn fabric_handles_stand_in_the_description_and_are_kept() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let span = kv
        .export_span(0, 10 * G, HandleType::Fabric, Access::Read)
        .unwrap();
    assert_eq!((span.fds().len(), span.descriptor().fd_count()), (0, 0));
    assert!(span
        .descriptor()
        .allocations()
        .iter()
        .all(|one| one.fabric.is_some()));
    let (bytes, fds, kept) = span.into_parts();
    assert_eq!((bytes.len(), fds.len()), (28 + 3 * 105 + 4 * 12, 0));
    kv.close().unwrap();
    assert_eq!(
        pair.maker.sim.snapshot().handles.len(),
        3,
        "the export keeps them"
    );
    drop(kept);
    pair.leaves_nothing();
}

#[test]
fn ranges_that_cannot_be_exported() {
    let pair = Pair::new();
    let kv = pair.furnished();
    let (rig, read) = (&pair.maker, Access::Read);
    same(
        &refused(rig, &kv, G, 4 * G, read),
        &Error::PartialMapping {
            asked: G..5 * G,
            mapping: 0..2 * G,
        },
    );
    same(
        &refused(rig, &kv, 7 * G, 3 * G, read),
        &Error::Hole {
            asked: 7 * G..10 * G,
            hole: 7 * G..10 * G,
        },
    );
    same(
        &refused(rig, &kv, 7 * G, 4 * G, read),
        &Error::OutOfRange {
            offset: 7 * G,
            size: 4 * G,
            len: 10 * G,
        },
    );
    same(
        &refused(rig, &kv, 0, 10 * G, Access::None),
        &Error::NothingOffered,
    );
}

#[test]
fn one_that_was_not_made_for_it_among_many() {
    let pair = Pair::new();
    let mut kv = pair.furnished();
    kv.map(9 * G, G, &pair.maker.props()).unwrap();
    same(
        &refused(&pair.maker, &kv, 0, 10 * G, Access::Read),
        &Error::NotExportable {
            asked: HandleTypes::NONE,
            needed: HandleTypes::POSIX_FD,
        },
    );
}

#[test]
fn what_failed_to_be_undone_is_not_shared() {
    let rig = Rig::with(Simulation::builder());
    let mut kv = rig.reserve(2);
    let props = rig.props().shareable_as(HandleTypes::POSIX_FD);
    rig.sim.inject(Fault::on(Call::cuMemSetAccess)).unwrap();
    rig.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    kv.map(0, G, &props).map(drop).unwrap_err();
    same(
        &refused(&rig, &kv, 0, 2 * G, Access::Read),
        &Error::Quarantined { mapping: 0..G },
    );
    kv.close().unwrap();
    rig.leaves_nothing();
}
