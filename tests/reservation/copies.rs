//! Copies and fills: across seams, between reservations, and refused where something is missing.

use cuda_vmm::sim::{Fault, Simulation, Value};
use cuda_vmm::sys::{CUresult, Call, DriverCalls};
use cuda_vmm::{Access, Allocation, AllocationProps, Code, Error, Location, Reservation};

use crate::rig::{says, Rig, G};

/// Four mappings without a hole.
fn row(rig: &Rig) -> Reservation {
    let mut kv = rig.reserve(4);
    for at in 0..4 {
        kv.map(at * G, G, &rig.props()).unwrap();
    }
    kv
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

fn both() -> [Rig; 2] {
    [Rig::new(), Rig::with(Simulation::builder().ledger_only())]
}

#[test]
fn across_every_seam() {
    for rig in both() {
        let mut kv = row(&rig);
        let bytes = pattern(3 * G);
        kv.write(G / 2, &bytes).unwrap();
        let mut back = vec![0; 3 * G];
        kv.read(G / 2, &mut back).unwrap();
        assert!(back == bytes);
        let mut edges = [1; 2];
        kv.read(G / 2 - 1, &mut edges[..1]).unwrap();
        kv.read(G / 2 + 3 * G, &mut edges[1..]).unwrap();
        assert_eq!(edges, [0, 0], "not a byte more");
    }
}

/// A copy may return before the device has done it, so each is waited for.
#[test]
fn done_when_it_returns() {
    let rig = Rig::new();
    let mut kv = row(&rig);
    type Copy = (Call, fn(&mut Reservation));
    let copies: [Copy; 4] = [
        (Call::cuMemcpyHtoD_v2, |kv| kv.write(0, b"in").unwrap()),
        (Call::cuMemcpyDtoH_v2, |kv| kv.read(0, &mut [0; 2]).unwrap()),
        (Call::cuMemcpyDtoD_v2, |kv| kv.copy_within(0, G, 2).unwrap()),
        (Call::cuMemsetD8_v2, |kv| kv.fill(0, 2, 7).unwrap()),
    ];
    for (copy, run) in copies {
        rig.sim.clear_log();
        run(&mut kv);
        let log = rig.sim.log();
        let calls: Vec<_> = log.iter().map(|record| record.call).collect();
        let waited = [copy, Call::cuStreamSynchronize, Call::cuCtxPopCurrent_v2];
        assert!(calls.ends_with(&waited), "{calls:?}");
    }
}

#[test]
fn a_fill_to_the_byte() {
    for rig in both() {
        let mut kv = row(&rig);
        kv.fill(G - 3, 2 * G + 5, 0xab).unwrap();
        let mut all = vec![0; 4 * G];
        kv.read(0, &mut all).unwrap();
        let filled = |at: usize| (G - 3..3 * G + 2).contains(&at);
        assert!(all
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == if filled(at) { 0xab } else { 0 }));
    }
}

#[test]
fn within_a_reservation() {
    for rig in both() {
        let mut kv = row(&rig);
        let bytes = pattern(G);
        kv.write(G / 2, &bytes).unwrap();
        // Side by side is not over each other.
        kv.copy_within(G / 2 + G, G / 2, G).unwrap();
        let mut back = vec![0; G];
        kv.read(G / 2 + G, &mut back).unwrap();
        assert!(back == bytes);
    }
}

#[test]
fn from_another_reservation() {
    for rig in both() {
        let (mut from, mut to) = (row(&rig), row(&rig));
        let bytes = pattern(2 * G);
        from.write(G / 2, &bytes).unwrap();
        to.copy_from(G + 7, &from, G / 2, 2 * G).unwrap();
        let mut back = vec![0; 2 * G];
        to.read(G + 7, &mut back).unwrap();
        assert!(back == bytes);
    }
}

#[test]
fn by_the_device_that_may() {
    let rig = Rig::of(2);
    // Nobody but the second device has rights, so the work is done in its context.
    let mut kv = Reservation::builder(G)
        .access(&rig.devices[1], Access::ReadWrite)
        .reserve(&rig.driver)
        .unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    kv.fill(0, G, 3).unwrap();
    assert_eq!(rig.sim.snapshot().retained_contexts, [0, 1]);
}

#[test]
fn by_a_device_that_may_both() {
    let rig = Rig::of(3);
    let reserve = |rights: &[(usize, Access)]| {
        let builder = Reservation::builder(G);
        let builder = rights.iter().fold(builder, |builder, (device, access)| {
            builder.access(&rig.devices[*device], *access)
        });
        let mut kv = builder.reserve(&rig.driver).unwrap();
        kv.map(0, G, &rig.props()).unwrap();
        kv
    };
    let from = reserve(&[(0, Access::ReadWrite), (2, Access::Read)]);
    let mut to = reserve(&[(1, Access::ReadWrite), (2, Access::ReadWrite)]);
    to.copy_from(0, &from, 0, G).unwrap();
    assert_eq!(rig.sim.snapshot().retained_contexts, [0, 0, 1]);
    // Somebody may read the one, and somebody else write the other: nobody can copy.
    let mut apart = reserve(&[(1, Access::ReadWrite)]);
    let error = rig.refused(&mut apart, |kv| kv.copy_from(0, &from, 0, G));
    says(
        &error,
        &Error::NoCommonDevice {
            to: 0..G,
            from: 0..G,
        },
        "no one device may both read [0x0, 0x200000) (2 MiB) and write [0x0, 0x200000) (2 MiB): grant one of them the access that it lacks",
    );
}

#[test]
fn without_the_rights() {
    let rig = Rig::new();
    let mut kv = row(&rig);
    kv.set_access(G, G, Location::Device(0), Access::Read)
        .unwrap();
    let write = Error::NoAccess {
        range: G - 8..G + 8,
        verb: "write",
    };
    let text = "no device may write all of [0x1ffff8, 0x200008) (16 B): grant one the access first";
    says(
        &rig.refused(&mut kv, |kv| kv.write(G - 8, &[0; 16])),
        &write,
        text,
    );
    says(
        &rig.refused(&mut kv, |kv| kv.fill(G - 8, 16, 0)),
        &write,
        text,
    );
    says(
        &rig.refused(&mut kv, |kv| kv.copy_within(G - 8, 0, 16)),
        &write,
        text,
    );
    kv.read(G - 8, &mut [0; 16]).unwrap();

    kv.set_access(G, G, Location::Device(0), Access::None)
        .unwrap();
    let error = rig.refused(&mut kv, |kv| kv.read(G - 8, &mut [0; 16]));
    says(
        &error,
        &Error::NoAccess {
            range: G - 8..G + 8,
            verb: "read",
        },
        "no device may read all of [0x1ffff8, 0x200008) (16 B): grant one the access first",
    );
}

#[test]
fn the_thread_keeps_its_own_context() {
    let rig = Rig::of(2);
    let mut kv = row(&rig);
    let current = || {
        let mut context = std::ptr::null_mut();
        assert_eq!(
            unsafe { rig.sim.cuCtxGetCurrent(&mut context) },
            CUresult::CUDA_SUCCESS
        );
        context
    };
    assert!(current().is_null());
    kv.fill(0, G, 1).unwrap();
    assert!(
        current().is_null(),
        "what was current before is current again: nothing"
    );
    let guard = rig.devices[1].make_current().unwrap();
    let own = current();
    assert_eq!(own, guard.raw());
    kv.fill(0, G, 1).unwrap();
    kv.read(0, &mut [0; 8]).unwrap();
    assert_eq!(current(), own);
    drop(guard);
    assert!(current().is_null());
}

#[test]
fn in_a_context_that_is_lost() {
    let rig = Rig::new();
    let mut kv = row(&rig);
    kv.fill(0, G, 1).unwrap();
    let before = (rig.sim.snapshot(), kv.to_string());
    assert!(rig.sim.poison(0));
    let error = kv.fill(0, G, 2).unwrap_err();
    assert_eq!(error.code(), Some(Code::ERROR_ILLEGAL_ADDRESS));
    assert_eq!((rig.sim.snapshot(), kv.to_string()), before);
    // Memory management goes on, as the driver's does.
    kv.unmap_range(0, G).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn a_quarantined_mapping_is_named() {
    let rig = Rig::new();
    let builder = Reservation::builder(4 * G).access(&rig.devices[0], Access::ReadWrite);
    let mut kv = builder.reserve(&rig.driver).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    for call in [Call::cuMemSetAccess, Call::cuMemUnmap] {
        rig.sim.inject(Fault::on(call)).unwrap();
    }
    kv.map(G, G, &rig.props()).unwrap_err();
    rig.sim.clear_log();

    let error = kv.write(G - 2, b"seam").unwrap_err();
    assert!(matches!(&error, Error::Quarantined { mapping } if *mapping == (G..2 * G)));
    assert_eq!(
        error.to_string(),
        "the mapping at [0x200000, 0x400000) (2 MiB) is quarantined, left over from a failed operation: unmap it (its rights and \
         contents are not known), then map again"
    );
    assert!(matches!(kv.fill(G, G, 1), Err(Error::Quarantined { .. })));
    assert!(matches!(
        kv.read(G, &mut [0]),
        Err(Error::Quarantined { .. })
    ));
    assert_eq!(rig.sim.log(), []);

    // As the message says.
    kv.unmap_range(G, G).unwrap();
    kv.map(G, G, &rig.props()).unwrap();
    kv.write(G - 2, b"seam").unwrap();
    kv.close().unwrap();
}

#[test]
fn a_mirror_of_the_source_is_no_target() {
    for rig in both() {
        let builder = Reservation::builder(8 * G).access(&rig.devices[0], Access::ReadWrite);
        let mut kv = builder.reserve(&rig.driver).unwrap();
        let page = rig.props().create(2 * G).unwrap();
        kv.map_existing(0, &page).unwrap();
        kv.map_existing(4 * G, &page).unwrap();
        kv.map(2 * G, G, &rig.props()).unwrap();
        let refused = |result| {
            assert!(
                matches!(result, Err(Error::OverlappingCopy { to, .. }) if to == (4 * G + 10..4 * G + 110))
            );
        };
        refused(kv.copy_within(4 * G + 10, 0, 100));
        refused(kv.copy_within(4 * G + 10, 109, 100));
        // Beside each other in the same memory is no overlap, and neither is other memory.
        kv.copy_within(4 * G + 10, 110, 100).unwrap();
        kv.copy_within(4 * G + 10, 2 * G, 100).unwrap();

        let mut other = Reservation::builder(2 * G)
            .access(&rig.devices[0], Access::ReadWrite)
            .reserve(&rig.driver)
            .unwrap();
        let retained = Allocation::retain(&rig.driver, kv.base() + 2 * G as u64).unwrap();
        other.map_existing(0, &retained).unwrap();
        let error = kv.copy_from(2 * G, &other, 0, 8).unwrap_err();
        assert!(matches!(error, Error::OverlappingCopy { .. }), "{error}");
        let error = other.copy_from(0, &kv, 2 * G, 8).unwrap_err();
        assert!(matches!(error, Error::OverlappingCopy { .. }), "{error}");
        other.close().unwrap();
        kv.close().unwrap();
    }
}

/// The host's rights make the driver copy through the host's mapping, which must not run over its end.
#[test]
fn copies_are_cut_where_the_host_has_rights() {
    let rig = Rig::new();
    let builder = Reservation::builder(4 * G)
        .access(&rig.devices[0], Access::ReadWrite)
        .access(Location::HostNuma(0), Access::ReadWrite);
    let mut kv = builder.reserve(&rig.driver).unwrap();
    let host = AllocationProps::on_host_numa(&rig.driver, 0);
    kv.map(0, G, &host).unwrap();
    kv.map(G, G, &rig.props()).unwrap();
    kv.map(2 * G, G, &rig.props()).unwrap();
    let sizes = |call| -> Vec<usize> {
        let log = rig
            .sim
            .log()
            .into_iter()
            .filter(|record| record.call == call);
        log.map(|record| match record.arg("size") {
            Some(Value::Size(size)) => *size,
            other => panic!("{other:?}"),
        })
        .collect()
    };
    let bytes = pattern(G + 32);
    rig.sim.clear_log();
    kv.write(G - 16, &bytes).unwrap();
    assert_eq!(sizes(Call::cuMemcpyHtoD_v2), [16, G, 16]);
    let mut back = vec![0; bytes.len()];
    kv.read(G - 16, &mut back).unwrap();
    assert_eq!(back, bytes);
    assert_eq!(sizes(Call::cuMemcpyDtoH_v2), [16, G, 16]);
    kv.fill(G - 1, 2, 7).unwrap();
    assert_eq!(sizes(Call::cuMemsetD8_v2), [1, 1]);
    kv.copy_within(2 * G, G - 8, 16).unwrap();
    assert_eq!(sizes(Call::cuMemcpyDtoD_v2), [8, 8]);
    // Beyond the host's memory nothing is cut.
    rig.sim.clear_log();
    kv.write(2 * G - 16, &bytes[..32]).unwrap();
    assert_eq!(sizes(Call::cuMemcpyHtoD_v2), [32]);

    let node = Location::HostNuma(0);
    kv.set_access(0, G, node, Access::Read).unwrap();
    let error = kv.write(0, b"x").unwrap_err();
    assert!(matches!(&error, Error::HostReadOnly { mapping } if *mapping == (0..G)));
    assert!(matches!(kv.fill(0, 1, 1), Err(Error::HostReadOnly { .. })));
    kv.read(0, &mut [0]).unwrap();
    kv.set_access(0, G, node, Access::None).unwrap();
    kv.write(0, b"x").unwrap();
    kv.close().unwrap();
}
