//! Mapping: what is mapped is what was asked for, and the policy is applied each time.

use cuda_vmm::sim::{Fault, Place, Rights, SimDevice, Simulation};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{
    Access, AllocationProps, BackingKind, Error, HandleTypes, Location, Reservation, What,
};

use crate::rig::{free_address, same, Rig, G};

#[test]
fn a_fresh_reservation_is_one_hole() {
    let rig = Rig::new();
    let kv = rig.reserve(8);
    assert_eq!((kv.size(), kv.granularity()), (8 * G, G));
    assert_eq!((kv.mapping_count(), kv.mapped_bytes()), (0, 0));
    assert_eq!(kv.holes().collect::<Vec<_>>(), [0..8 * G]);
    assert!(kv.mapping_at(0).is_none());
    assert_eq!(
        kv.policy().collect::<Vec<_>>(),
        [(Location::Device(0), Access::ReadWrite)]
    );
    let snapshot = rig.sim.snapshot();
    assert_eq!(snapshot.reservations[0].address, kv.base());
    assert_eq!(snapshot.reservations[0].size, 8 * G as u64);
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn what_is_mapped_where() {
    let rig = Rig::new();
    let mut kv = rig.reserve(8);
    let late = kv.map(5 * G, 2 * G, &rig.props()).unwrap();
    let early = kv.map(G, G, &rig.props()).unwrap();
    assert_eq!((early.offset(), late.offset()), (G, 5 * G));

    let ranges: Vec<_> = kv.mappings().map(|mapping| mapping.range()).collect();
    assert_eq!(ranges, [G..2 * G, 5 * G..7 * G], "by offset, not by age");
    let holes: Vec<_> = kv.holes().collect();
    assert_eq!(holes, [0..G, 2 * G..5 * G, 7 * G..8 * G]);
    assert_eq!((kv.mapping_count(), kv.mapped_bytes()), (2, 3 * G));

    let mapping = kv.mapping(&late).unwrap();
    assert_eq!(mapping.address(), kv.base() + 5 * G as u64);
    assert_eq!((mapping.offset(), mapping.size()), (5 * G, 2 * G));
    assert_eq!(mapping.location(), Location::Device(0));
    assert_eq!(mapping.backing(), BackingKind::Owned);
    assert!(!mapping.is_quarantined());

    let starts = |offset| kv.mapping_at(offset).map(|mapping| mapping.offset());
    let expected = [
        (0, None),
        (G - 1, None),
        (G, Some(G)),
        (2 * G - 1, Some(G)),
        (2 * G, None),
        (5 * G, Some(5 * G)),
        (7 * G - 1, Some(5 * G)),
        (7 * G, None),
        (8 * G, None),
        (usize::MAX, None),
    ];
    for (offset, start) in expected {
        assert_eq!(starts(offset), start, "at {offset}");
    }
}

#[test]
fn a_reservation_mapped_throughout_has_no_hole() {
    let rig = Rig::new();
    let mut kv = rig.reserve(3);
    kv.map(G, 2 * G, &rig.props()).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    assert_eq!(kv.holes().count(), 0);
    assert_eq!(kv.mapped_bytes(), kv.size());
}

#[test]
fn a_mirror_shows_the_same_bytes() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let page = rig.props().create(G).unwrap();
    kv.map_existing(0, &page).unwrap();
    let id = kv.map_existing(3 * G, &page).unwrap();
    assert_eq!(kv.mapping(&id).unwrap().backing(), BackingKind::Shared);
    kv.write(100, b"once").unwrap();
    let mut bytes = [0; 4];
    kv.read(3 * G + 100, &mut bytes).unwrap();
    assert_eq!(&bytes, b"once");

    // One handle, one count, however often it is mapped, and whoever drops it first.
    drop(page);
    let snapshot = rig.sim.snapshot();
    assert_eq!(snapshot.handles.len(), 1);
    assert_eq!(
        (snapshot.handles[0].count, snapshot.handles[0].mapped),
        (1, 2)
    );
    kv.unmap_range(0, G).unwrap();
    kv.read(3 * G + 100, &mut bytes).unwrap();
    assert_eq!(&bytes, b"once");
    kv.unmap(id).unwrap();
    assert_eq!(rig.sim.snapshot().handles, []);
}

#[test]
fn a_ring_reads_on_where_it_begins_again() {
    let rig = Rig::new();
    let mut ring = rig.reserve(4);
    let page = rig.props().create(2 * G).unwrap();
    ring.map_existing(0, &page).unwrap();
    ring.map_existing(2 * G, &page).unwrap();
    // A write over the end of the first lap lands at its beginning.
    ring.write(2 * G - 3, b"around").unwrap();
    let mut bytes = [0; 3];
    ring.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"und");
    ring.close().unwrap();
    page.release().unwrap();
    rig.leaves_nothing();
}

#[test]
fn one_allocation_in_two_reservations() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.reserve(1), rig.reserve(1));
    let page = rig.props().create(G).unwrap();
    one.map_existing(0, &page).unwrap();
    two.map_existing(0, &page).unwrap();
    drop(page);
    one.fill(0, G, 9).unwrap();
    one.close().unwrap();
    let mut byte = [0];
    two.read(G - 1, &mut byte).unwrap();
    assert_eq!(byte, [9]);
    two.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn a_handle_given_up_lives_by_being_mapped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    let id = kv.map_releasing(0, 2 * G, &rig.props()).unwrap();
    assert_eq!(kv.mapping(&id).unwrap().backing(), BackingKind::GivenUp);
    let snapshot = rig.sim.snapshot();
    assert_eq!(
        (snapshot.handles[0].count, snapshot.handles[0].mapped),
        (0, 1)
    );
    kv.write(G, b"kept").unwrap();
    let mut bytes = [0; 4];
    kv.read(G, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    kv.unmap(id).unwrap();
    assert!(rig.sim.snapshot().handles.is_empty());
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn the_policy_is_granted_with_every_map() {
    let rig = Rig::of(2);
    let mut kv = Reservation::builder(4 * G)
        .access(&rig.devices[0], Access::ReadWrite)
        .access(&rig.devices[1], Access::Read)
        .reserve(&rig.driver)
        .unwrap();
    let page = rig.props().create(G).unwrap();
    for _ in 0..2 {
        kv.map(0, G, &rig.props()).unwrap();
        kv.map_releasing(G, G, &rig.props()).unwrap();
        kv.map_existing(2 * G, &page).unwrap();
        for mapping in rig.sim.snapshot().mappings {
            assert_eq!(
                mapping.rights,
                [
                    (Place::Device(0), Rights::ReadWrite),
                    (Place::Device(1), Rights::Read)
                ]
            );
        }
        // Unmapping takes the rights away; the next map gives them again.
        kv.unmap_range(0, 3 * G).unwrap();
    }
}

#[test]
fn a_policy_without_rights_asks_nothing_of_the_driver() {
    let rig = Rig::new();
    let mut kv = Reservation::builder(G).reserve(&rig.driver).unwrap();
    let before = rig.sim.calls_of(Call::cuMemSetAccess);
    let id = kv.map(0, G, &rig.props()).unwrap();
    assert_eq!(rig.sim.calls_of(Call::cuMemSetAccess), before);
    assert_eq!(kv.rights(kv.mapping(&id).unwrap()).count(), 0);
}

#[test]
fn a_policy_entry_of_none_gives_nothing() {
    let rig = Rig::new();
    let builder = Reservation::builder(G).access(rig.device(), Access::None);
    let mut kv = builder.reserve(&rig.driver).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    assert_eq!(rig.sim.snapshot().mappings[0].rights, []);
    let access = kv.access_of(0, Location::Device(0)).unwrap();
    assert_eq!(access, Access::None);
}

#[test]
fn entries_of_the_host_hold_for_host_memory_only() {
    let rig = Rig::new();
    let mut kv = Reservation::builder(4 * G)
        .access(rig.device(), Access::ReadWrite)
        .access(Location::HostNuma(0), Access::ReadWrite)
        .reserve(&rig.driver)
        .unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    let host = AllocationProps::on_host_numa(&rig.driver, 0);
    let id = kv.map(G, G, &host).unwrap();
    assert_eq!(kv.mapping(&id).unwrap().location(), Location::HostNuma(0));
    let rights: Vec<_> = rig
        .sim
        .snapshot()
        .mappings
        .into_iter()
        .map(|mapping| mapping.rights)
        .collect();
    let device = (Place::Device(0), Rights::ReadWrite);
    let node = (Place::HostNuma(0), Rights::ReadWrite);
    assert_eq!(rights, [vec![device], vec![device, node]]);
    // The processor may touch it at the same address.
    let byte = kv.view(G, 1).unwrap().address() as *mut u8;
    kv.fill(G, G, 5).unwrap();
    assert_eq!(unsafe { byte.read_volatile() }, 5);
}

#[test]
fn a_base_is_aligned_for_the_coarser_of_two_devices() {
    const FINE: usize = 64 << 10;
    let rig = Rig::with(
        Simulation::builder()
            .device(SimDevice::new().granularity(FINE, FINE))
            .device(SimDevice::new()),
    );
    let coarse = AllocationProps::on(&rig.devices[1]);
    let sized = |bytes| Reservation::builder(bytes);
    // What is taken before leaves no base aligned by chance.
    let odd = sized(FINE).reserve(&rig.driver).unwrap();
    let odder = sized(3 * FINE).reserve(&rig.driver).unwrap();
    let mut kv = sized(4 * G).reserve(&rig.driver).unwrap();
    assert_eq!(kv.granularity(), FINE);
    kv.map(0, G, &coarse).unwrap();
    kv.map(3 * G, FINE, &rig.props()).unwrap();
    let hinted = sized(4 * G).hint(kv.base()).reserve(&rig.driver).unwrap();
    assert_eq!(hinted.base() % G as u64, 0);

    // At an address that was asked for, it is the offset that has to make up for it.
    let wanted = free_address() + FINE as u64;
    let mut at = sized(4 * G)
        .exact_address(wanted)
        .reserve(&rig.driver)
        .unwrap();
    let error = rig.refused(&mut at, |at| at.map(0, G, &coarse));
    let expected = Error::Misaligned {
        what: What::Address,
        value: wanted as usize,
        granularity: G,
    };
    same(&error, &expected);
    for kv in [odd, odder, kv, hinted, at] {
        kv.close().unwrap();
    }
}

#[test]
fn devices_of_two_granularities_share_a_reservation() {
    let rig = Rig::with(
        Simulation::builder()
            .device(SimDevice::new())
            .device(SimDevice::new().granularity(4 * G, 4 * G)),
    );
    let mut kv = rig.reserve(16);
    assert_eq!(kv.granularity(), G, "the smaller of the two");
    let coarse = AllocationProps::on(&rig.devices[1]);
    assert_eq!(coarse.granularity().unwrap().minimum(), 4 * G);
    kv.map(G, G, &rig.props()).unwrap();
    let error = rig.refused(&mut kv, |kv| kv.map(2 * G, 4 * G, &coarse));
    let expected = Error::Misaligned {
        what: What::Offset,
        value: 2 * G,
        granularity: 4 * G,
    };
    same(&error, &expected);
    let error = rig.refused(&mut kv, |kv| kv.map(4 * G, 2 * G, &coarse));
    let expected = Error::Misaligned {
        what: What::Size,
        value: 2 * G,
        granularity: 4 * G,
    };
    same(&error, &expected);
    kv.map(4 * G, 4 * G, &coarse).unwrap();

    // An allocation keeps its own granularity, through a failed unmap and a close too.
    let page = coarse.create(4 * G).unwrap();
    let error = rig.refused(&mut kv, |kv| kv.map_existing(9 * G, &page));
    let expected = Error::Misaligned {
        what: What::Offset,
        value: 9 * G,
        granularity: 4 * G,
    };
    same(&error, &expected);
    let id = kv.map_existing(12 * G, &page).unwrap();
    drop(page);
    rig.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    kv.unmap(id).unwrap_err();
    kv.unmap_range(G, G).unwrap();
    let kept = kv.close_keeping().unwrap();
    let offsets: Vec<_> = kept.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [4 * G, 12 * G]);
    let mut kv = rig.reserve(16);
    for (_, page) in &kept {
        let error = rig.refused(&mut kv, |kv| kv.map_existing(9 * G, page));
        same(&error, &expected);
    }
}

#[test]
fn memory_for_fabric_without_a_channel_is_not_permitted() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    let before = rig.sim.snapshot();
    let props = rig.props().shareable_as(HandleTypes::FABRIC);
    let error = kv.map(0, G, &props).unwrap_err();
    assert!(error.is_not_permitted());
    assert_eq!(
        error.to_string(),
        "cuMemCreate (2097152 bytes (2 MiB) on device 0, shareable as FABRIC handle) failed with \
         CUDA_ERROR_NOT_PERMITTED (800): FABRIC handles need an IMEX channel in this container; ask for POSIX_FD instead"
    );
    assert_eq!(rig.sim.snapshot(), before);
}

#[test]
fn a_failed_grant_leaves_nothing_mapped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    let before = (rig.sim.snapshot(), kv.to_string());
    let fault = Fault::on(Call::cuMemSetAccess).code(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    rig.sim.inject(fault).unwrap();
    let error = kv.map(G, G, &rig.props()).unwrap_err();
    let at = kv.base() + G as u64;
    assert_eq!(
        error.to_string(),
        format!(
            "cuMemSetAccess (2097152 bytes (2 MiB) at {at:#x} for device 0) failed with CUDA_ERROR_NOT_SUPPORTED (801)"
        )
    );
    assert!(error.is_not_supported());
    assert_eq!((rig.sim.snapshot(), kv.to_string()), before);
    // The place is free, and the next map is as good as the first.
    kv.map(G, G, &rig.props()).unwrap();
}
