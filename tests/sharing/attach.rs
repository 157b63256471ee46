//! A span, rebuilt at the importer.

use cuda_vmm::share::SpanImport;
use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, BackingKind, Error, HandleType, Reservation};

use crate::pair::{exported, received, Pair};
use crate::rig::{same, says, Rig, G};

fn byte(kv: &Reservation, granule: usize) -> u8 {
    let mut byte = [0];
    kv.read(granule * G, &mut byte).unwrap();
    byte[0]
}

/// Attaching is refused, and leaves nothing, not even a descriptor.
pub fn refused(rig: &Rig, import: SpanImport, access: Access) -> Error {
    let before = rig.sim.snapshot();
    let error = import
        .attach(&rig.driver, [(rig.device(), access)])
        .map(drop)
        .unwrap_err();
    assert_eq!(rig.sim.snapshot(), before, "{error}");
    assert_eq!(rig.driver.quarantined(), 0);
    error
}

#[test]
fn every_piece_lies_at_its_offset_and_is_the_same_memory() {
    let pair = Pair::new();
    let mut here = pair.furnished();
    for handle_type in HandleType::DEFAULT_ORDER {
        let span = here
            .export_span(0, 10 * G, handle_type, Access::ReadWrite)
            .unwrap();
        let (bytes, fds, kept) = span.into_parts();
        let import = SpanImport::new(&bytes, fds).unwrap();
        let policy = [(pair.taker.device(), Access::ReadWrite)];
        let mut there = import.attach(&pair.taker.driver, policy).unwrap();
        drop(kept);
        let ranges: Vec<_> = there.mappings().map(|one| one.range()).collect();
        let expected = [(0, 2), (3, 4), (5, 6), (6, 7)].map(|(a, b)| a * G..b * G);
        assert_eq!(ranges, expected);
        assert_eq!([0, 3, 6].map(|at| byte(&there, at)), [0, 3, 6]);
        there.write(5 * G, &[55]).unwrap();
        assert_eq!(byte(&there, 3), 55, "a mirror there as here");
        assert_eq!(byte(&here, 3), 55);
        here.write(3 * G, &[3]).unwrap();
        assert_eq!(
            pair.taker.sim.snapshot().handles.len(),
            3,
            "each imported once"
        );
        there.close().unwrap();
    }
    here.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn it_outlives_its_maker() {
    let pair = Pair::new();
    let here = pair.furnished();
    let import = received(exported(&here));
    here.close().unwrap();
    let policy = [(pair.taker.device(), Access::Read)];
    let there = import.attach(&pair.taker.driver, policy).unwrap();
    assert_eq!([0, 3, 6].map(|at| byte(&there, at)), [0, 3, 6]);
    there.close().unwrap();
    pair.leaves_nothing();
}

/// An unmap that fails and whose release cannot be taken back leaves the memory mapped without its handle.
#[test]
fn what_is_offered_stays_so_when_the_handle_is_lost() {
    let pair = Pair::new();
    let here = pair.furnished();
    let offered = here.export_span(0, 2 * G, HandleType::PosixFd, Access::Read);
    let offered = received(offered.unwrap());
    let policy = [(pair.taker.device(), Access::Read)];
    let mut there = offered.attach(&pair.taker.driver, policy).unwrap();
    for call in [Call::cuMemUnmap, Call::cuMemRetainAllocationHandle] {
        pair.taker.sim.inject(Fault::on(call)).unwrap();
    }
    there.unmap_range(0, 2 * G).unwrap_err();
    let mapping = there.mapping_at(0).unwrap();
    assert_eq!(mapping.backing(), BackingKind::GivenUp);
    let device = pair.taker.device();
    let too_much = Error::MoreThanOffered {
        asked: Access::ReadWrite,
        offered: Access::Read,
    };
    let error = pair.taker.refused(&mut there, |kv| {
        kv.set_access(0, 2 * G, device, Access::ReadWrite)
    });
    same(&error, &too_much);
    let error = pair
        .taker
        .refused(&mut there, |kv| kv.set_policy(device, Access::ReadWrite));
    same(&error, &too_much);
    there.close().unwrap();
    here.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn ones_own_export_is_recognised_and_can_be_attached() {
    let pair = Pair::new();
    let mut here = pair.furnished();
    let import = received(exported(&here));
    assert!(import.descriptor().is_of_this_process());
    let policy = [(pair.maker.device(), Access::Read)];
    let again = import.attach(&pair.maker.driver, policy).unwrap();
    here.write(0, &[77]).unwrap();
    assert_eq!(byte(&again, 0), 77);
    again.close().unwrap();
    here.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn rights_are_as_offered_or_less() {
    let pair = Pair::new();
    let here = pair.furnished();
    let offer = |access| {
        let span = here.export_span(0, 10 * G, HandleType::PosixFd, access);
        received(span.unwrap())
    };
    let calls = pair.taker.sim.calls();
    let error = refused(&pair.taker, offer(Access::Read), Access::ReadWrite);
    says(
        &error,
        &Error::MoreThanOffered {
            asked: Access::ReadWrite,
            offered: Access::Read,
        },
        "read-write was asked for, but the memory's maker offers read: ask for read",
    );
    assert_eq!(pair.taker.sim.calls(), calls, "no driver call was made");

    let policy = [(pair.taker.device(), Access::Read)];
    let mut there = offer(Access::Read)
        .attach(&pair.taker.driver, policy)
        .unwrap();
    let device = pair.taker.device();
    assert_eq!(there.access_of(3 * G, device).unwrap(), Access::Read);
    let more = |error: Error| {
        same(
            &error,
            &Error::MoreThanOffered {
                asked: Access::ReadWrite,
                offered: Access::Read,
            },
        );
    };
    let before = pair.taker.sim.snapshot();
    more(
        there
            .set_access(0, 2 * G, device, Access::ReadWrite)
            .unwrap_err(),
    );
    more(there.set_policy(device, Access::ReadWrite).unwrap_err());
    same(
        &there.write(0, &[1]).unwrap_err(),
        &Error::NoAccess {
            range: 0..1,
            verb: "write",
        },
    );
    assert_eq!(pair.taker.sim.snapshot(), before);
    there.set_access(0, 2 * G, device, Access::None).unwrap();
    there.close().unwrap();

    let policy = [(pair.taker.device(), Access::Read)];
    let mut there = offer(Access::ReadWrite)
        .attach(&pair.taker.driver, policy)
        .unwrap();
    there.set_policy(device, Access::ReadWrite).unwrap();
    there.write(0, &[0]).unwrap();
    there.close().unwrap();
}

#[test]
fn read_only_is_a_type() {
    let pair = Pair::new();
    let here = pair.furnished();
    let import = received(exported(&here));
    let span = import
        .attach_read_only(&pair.taker.driver, [pair.taker.device()])
        .unwrap();
    assert_eq!(span.size(), 10 * G);
    assert_eq!(span.mappings().count(), 4);
    assert_eq!(
        span.view(3 * G, G).unwrap().address(),
        span.base() + 3 * G as u64
    );
    let access = span.access_of(0, pair.taker.device()).unwrap();
    assert_eq!(access, Access::Read, "less than offered");
    let mut target = pair.taker.reserve(1);
    target.map(0, G, &pair.taker.props()).unwrap();
    span.copy_to(6 * G, &mut target, 0, G).unwrap();
    assert_eq!(byte(&target, 0), 6);
    target.close().unwrap();
    assert!(
        span.to_string().contains("device 0, shares handle"),
        "{span}"
    );
    span.close().unwrap();
    here.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn into_a_place_of_a_reservation() {
    let pair = Pair::new();
    let here = pair.furnished();
    let mut kv = pair.taker.reserve(20);
    kv.map(0, G, &pair.taker.props()).unwrap();
    let ids = received(exported(&here))
        .attach_into(&mut kv, 4 * G)
        .unwrap();
    let offsets: Vec<_> = ids.iter().map(|id| id.offset() / G).collect();
    assert_eq!(offsets, [4, 7, 9, 10]);
    assert_eq!([4, 7, 10].map(|at| byte(&kv, at)), [0, 3, 6]);
    for id in ids {
        kv.unmap(id).unwrap();
    }
    assert_eq!(kv.mapping_count(), 1);
    kv.close().unwrap();
    here.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn a_place_that_will_not_do() {
    let pair = Pair::new();
    let here = pair.furnished();
    let import = || received(exported(&here));
    let refused = |kv: &mut Reservation, offset: usize| {
        pair.taker
            .refused(kv, |kv| import().attach_into(kv, offset))
    };
    let mut kv = pair.taker.reserve(12);
    kv.map(6 * G, G, &pair.taker.props()).unwrap();
    // Over the hole is no harm; over a piece is.
    same(
        &refused(&mut kv, G),
        &Error::Overlap {
            asked: 6 * G..7 * G,
            existing: 6 * G..7 * G,
        },
    );
    same(
        &refused(&mut kv, 6 * G),
        &Error::Overlap {
            asked: 6 * G..8 * G,
            existing: 6 * G..7 * G,
        },
    );
    same(
        &refused(&mut kv, usize::MAX - G),
        &Error::Overflow {
            offset: usize::MAX - G,
            size: 10 * G,
        },
    );
    let mut readable = Reservation::builder(10 * G)
        .access(pair.taker.device(), Access::ReadWrite)
        .reserve(&pair.taker.driver)
        .unwrap();
    let offered = here.export_span(0, 10 * G, HandleType::PosixFd, Access::Read);
    let offered = received(offered.unwrap());
    let error = pair
        .taker
        .refused(&mut readable, |kv| offered.attach_into(kv, 0));
    same(
        &error,
        &Error::MoreThanOffered {
            asked: Access::ReadWrite,
            offered: Access::Read,
        },
    );
}

#[test]
fn devices_are_numbered_as_here() {
    let uuid = [0xd0; 16];
    let maker = Rig::with(Simulation::builder().device(SimDevice::new().uuid(uuid)));
    let other = SimDevice::new().uuid([0xd1; 16]);
    let builder = Simulation::builder().device(other);
    let taker = Rig::with(builder.device(SimDevice::new().uuid(uuid)));
    let mut kv = maker.reserve(1);
    let props = maker.props().shareable_as(HandleType::PosixFd.into());
    kv.map(0, G, &props).unwrap();
    let policy = [(&taker.devices[1], Access::Read)];
    let span = received(exported(&kv))
        .attach(&taker.driver, policy)
        .unwrap();
    let location = span.mappings().next().unwrap().location();
    assert_eq!(location, cuda_vmm::Location::Device(1));
}

#[test]
fn five_hundred_and_twelve_pieces() {
    const PIECES: usize = 512;
    let pair = Pair::new();
    let mut kv = pair.maker.reserve(PIECES);
    for at in 0..PIECES {
        kv.map(at * G, G, &pair.props()).unwrap();
    }
    let span = kv
        .export_span(0, kv.size(), HandleType::Fabric, Access::Read)
        .unwrap();
    let before = pair
        .taker
        .sim
        .calls_of(Call::cuMemImportFromShareableHandle);
    let policy = [(pair.taker.device(), Access::Read)];
    let (bytes, fds, _kept) = span.into_parts();
    let there = SpanImport::new(&bytes, fds)
        .unwrap()
        .attach(&pair.taker.driver, policy)
        .unwrap();
    assert_eq!(there.mapping_count(), PIECES);
    let imports = pair
        .taker
        .sim
        .calls_of(Call::cuMemImportFromShareableHandle);
    assert_eq!(imports - before, PIECES as u64);
    there.close().unwrap();
}
