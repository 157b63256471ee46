//! The operations of reservations that do all or nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cuda_vmm::{Access, AllocationProps, Error, Fence, Location, Reservation};

use crate::operations::Operation;
use crate::stage::{Stage, G};

const MANY: usize = 6;

/// An address that is free, and that no other trial asks for: they all run in one process, whose addresses they share.
fn free_address() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0x2000_0000_0000);
    NEXT.fetch_add(4 << 30, Ordering::Relaxed)
}

/// A row that was written to, so that its device's context is retained.
pub fn in_use(stage: &mut Stage) {
    a_row(stage);
    stage.kv().write(0, b"first").unwrap();
}

/// Three mappings with holes between: an owned one, a mirrored page twice, one whose handle was given up.
fn furnished(stage: &mut Stage) {
    stage.reserve(2 * MANY);
    stage.map(0, 2);
    stage.page(1);
    stage.map_page(3, 0);
    stage.map_page(4, 0);
    let props = stage.props();
    let id = stage.kv().map_releasing(6 * G, G, &props).unwrap();
    stage.ids.push(id);
}

/// Mappings without holes, one of each backing: owned, shared with the caller, the sole share, given up, owned.
fn a_row(stage: &mut Stage) {
    stage.reserve(2 * MANY);
    stage.map(0, 2);
    stage.page(1);
    stage.page(1);
    stage.map_page(2, 0);
    stage.map_page(3, 1);
    drop(stage.pages.pop());
    let props = stage.props();
    stage.kv().map_releasing(4 * G, G, &props).unwrap();
    stage.map(5, 1);
}

fn empty(stage: &mut Stage) {
    stage.reserve(4);
    stage.page(1);
}

fn without_policy(stage: &mut Stage) {
    let kv = Reservation::builder(4 * G).reserve(stage.driver()).unwrap();
    stage.kv = Some(kv);
}

fn two_reservations(stage: &mut Stage) {
    furnished(stage);
    stage.other = stage.kv.take();
    furnished(stage);
}

pub const OPERATIONS: &[Operation] = &[
    Operation::new(
        "ReservationBuilder::reserve",
        "first on a driver",
        |_| {},
        |stage| {
            let kv = Reservation::builder(4 * G).reserve(stage.driver())?;
            stage.kv = Some(kv);
            Ok(())
        },
    ),
    Operation::new(
        "ReservationBuilder::reserve",
        "at an exact address that is free",
        empty,
        |stage| {
            let wanted = free_address();
            let kv = Reservation::builder(4 * G)
                .exact_address(wanted)
                .reserve(stage.driver())?;
            assert_eq!(kv.base(), wanted);
            stage.other = Some(kv);
            Ok(())
        },
    ),
    Operation::new(
        "ReservationBuilder::reserve",
        "at an exact address that is taken",
        empty,
        |stage| {
            let taken = stage.kv().base();
            let error = Reservation::builder(2 * G)
                .exact_address(taken)
                .reserve(stage.driver())
                .unwrap_err();
            if let Error::HintNotHonoured { wanted, got } = *error.first() {
                assert_eq!(wanted, taken);
                assert_ne!(got, taken);
            }
            Err(error)
        },
    )
    .refusing(|error| matches!(error, Error::HintNotHonoured { .. })),
    Operation::new("Reservation::map", "", empty, |stage| {
        let props = stage.props();
        let id = stage.kv().map(G, 2 * G, &props)?;
        stage.ids.push(id);
        Ok(())
    }),
    Operation::new("Reservation::map", "between others", furnished, |stage| {
        let props = stage.props();
        stage.kv().map(2 * G, G, &props).map(drop)
    }),
    Operation::new(
        "Reservation::map",
        "without a policy",
        without_policy,
        |stage| {
            let props = stage.props();
            stage.kv().map(0, G, &props).map(drop)
        },
    ),
    Operation::new(
        "Reservation::map",
        "of properties not yet asked about",
        empty,
        |stage| {
            let props = stage.props().rdma(true).compression(true);
            stage.kv().map(0, G, &props).map(drop)
        },
    ),
    Operation::new(
        "Reservation::map",
        "of memory on the host",
        |stage| {
            let kv = Reservation::builder(4 * G)
                .access(&stage.devices[0], Access::ReadWrite)
                .access(Location::HostNuma(0), Access::ReadWrite)
                .reserve(stage.driver())
                .unwrap();
            stage.kv = Some(kv);
        },
        |stage| {
            let props = AllocationProps::on_host_numa(stage.driver(), 0);
            stage.kv().map(0, G, &props).map(drop)
        },
    ),
    Operation::new("Reservation::map_releasing", "", empty, |stage| {
        let props = stage.props();
        stage.kv().map_releasing(G, 2 * G, &props).map(drop)
    }),
    Operation::new("Reservation::map_existing", "", empty, |stage| {
        let (kv, page) = stage.kv_and_page();
        kv.map_existing(2 * G, page).map(drop)
    }),
    Operation::new(
        "Reservation::map_existing",
        "as a mirror",
        furnished,
        |stage| {
            let (kv, page) = stage.kv_and_page();
            kv.map_existing(8 * G, page).map(drop)
        },
    ),
    Operation::new(
        "Reservation::unmap",
        "of an owned mapping",
        furnished,
        |stage| {
            let id = stage.ids.remove(0);
            stage.kv().unmap(id)
        },
    ),
    Operation::new("Reservation::unmap", "of a mirror", furnished, |stage| {
        let id = stage.ids.remove(1);
        stage.kv().unmap(id)
    }),
    Operation::new(
        "Reservation::unmap",
        "of a handle given up",
        furnished,
        |stage| {
            let id = stage.ids.remove(3);
            stage.kv().unmap(id)
        },
    ),
    Operation::new(
        "Reservation::unmap",
        "of a sole share",
        |stage| {
            empty(stage);
            stage.map_page(1, 0);
            stage.pages.clear();
        },
        |stage| {
            let id = stage.ids.remove(0);
            stage.kv().unmap(id)
        },
    ),
    Operation::new(
        "Reservation::unmap_range",
        "of one of each backing",
        a_row,
        |stage| stage.kv().unmap_range(0, 6 * G),
    ),
    Operation::new(
        "Reservation::unmap_range",
        "in the middle",
        a_row,
        |stage| stage.kv().unmap_range(2 * G, 2 * G),
    ),
    Operation::new(
        "Reservation::unmap_after",
        "the default stream",
        in_use,
        |stage| {
            let (id, device) = (stage.ids.remove(0), stage.devices[0].clone());
            let fence = Fence::default_stream(&device);
            stage.kv().unmap_after(id, fence)
        },
    ),
    Operation::new(
        "Reservation::unmap_after",
        "by a deadline",
        in_use,
        |stage| {
            let (id, device) = (stage.ids.remove(0), stage.devices[0].clone());
            let fence = Fence::default_stream(&device).within(Duration::from_secs(60));
            stage.kv().unmap_after(id, fence)
        },
    ),
    Operation::new(
        "Reservation::unmap_range_after",
        "the default stream",
        in_use,
        |stage| {
            let fence = Fence::default_stream(&stage.devices[0]);
            stage.kv().unmap_range_after(0, 6 * G, fence)
        },
    ),
    Operation::new("Reservation::set_access", "", a_row, |stage| {
        let reader = stage.devices[1].clone();
        stage
            .kv()
            .set_access(2 * G, 3 * G, &reader, Access::ReadWrite)
    }),
    Operation::new(
        "Reservation::set_access",
        "of a whole row",
        a_row,
        |stage| {
            stage
                .kv()
                .set_access(0, 6 * G, Location::Device(0), Access::None)
        },
    ),
    Operation::new(
        "Reservation::set_policy",
        "over runs with holes",
        |stage| {
            furnished(stage);
            // Two of the runs differ from the policy, so that undoing has to restore different rights.
            stage
                .kv()
                .set_access(0, 2 * G, Location::Device(1), Access::None)
                .unwrap();
            stage
                .kv()
                .set_access(3 * G, G, Location::Device(1), Access::ReadWrite)
                .unwrap();
        },
        |stage| {
            stage
                .kv()
                .set_policy(Location::Device(1), Access::ReadWrite)
        },
    ),
    Operation::new("Reservation::access_of", "", furnished, |stage| {
        let access = stage.kv().access_of(3 * G + 5, Location::Device(1))?;
        assert_eq!(access, Access::Read);
        Ok(())
    }),
    Operation::new("Reservation::write", "first on a device", a_row, |stage| {
        stage.kv().write(2 * G - 3, b"seam")
    }),
    Operation::new(
        "Reservation::write",
        "again",
        |stage| {
            a_row(stage);
            stage.kv().write(0, b"first").unwrap();
        },
        |stage| stage.kv().write(2 * G - 3, b"seam"),
    ),
    Operation::new("Reservation::read", "first on a device", a_row, |stage| {
        stage.kv().read(2 * G - 3, &mut [0; 8])
    }),
    Operation::new(
        "Reservation::read",
        "again",
        |stage| {
            a_row(stage);
            stage.kv().write(2 * G - 3, b"seam").unwrap();
        },
        |stage| {
            let mut bytes = [0; 4];
            stage.kv().read(2 * G - 3, &mut bytes)?;
            assert_eq!(&bytes, b"seam");
            Ok(())
        },
    ),
    Operation::new("Reservation::fill", "", a_row, |stage| {
        stage.kv().fill(G, 3 * G, 7)
    }),
    Operation::new("Reservation::copy_within", "", a_row, |stage| {
        stage.kv().copy_within(3 * G - 64, 2 * G - 64, 128)
    }),
    Operation::new("Reservation::copy_from", "", two_reservations, |stage| {
        let Stage {
            kv: Some(kv),
            other: Some(other),
            ..
        } = stage
        else {
            unreachable!("the preparation reserves twice");
        };
        kv.copy_from(4 * G - 64, other, G, 128)
    }),
    Operation::new("Reservation::view", "", furnished, |stage| {
        let view = stage.kv().view(3 * G, 2 * G)?;
        assert_eq!(view.size(), 2 * G);
        Ok(())
    })
    .silent(),
    Operation::new("View::elements", "", furnished, |stage| {
        let elements = stage.kv().view(3 * G, 2 * G)?.elements::<u64>()?;
        assert_eq!(elements.count(), G / 4);
        Ok(())
    })
    .silent(),
];
