//! The drawn reservation, letter by letter.

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, AllocationProps, Location, Reservation};

use crate::rig::{Rig, G};

/// The picture, without the one number that changes from run to run.
fn drawn(kv: &Reservation) -> String {
    kv.to_string().replace(&format!("{:#x}", kv.base()), "BASE")
}

#[test]
fn an_empty_one() {
    let rig = Rig::new();
    let kv = Reservation::builder(4 * G).reserve(&rig.driver).unwrap();
    let expected = "\
reservation BASE, 8 MiB: 0 B mapped in 0 mappings
  policy: nobody has access
  [....]
             0x0       8 MiB  -
";
    assert_eq!(drawn(&kv), expected);
}

#[test]
fn one_of_everything() {
    let rig = Rig::of(2);
    let mut kv = Reservation::builder(128 * G)
        .access(&rig.devices[0], Access::ReadWrite)
        .access(Location::HostNuma(0), Access::Read)
        .reserve(&rig.driver)
        .unwrap();
    let page = rig.props().create(2 * G).unwrap();
    let own = kv.map(0, 4 * G, &rig.props()).unwrap();
    kv.map_existing(4 * G, &page).unwrap();
    kv.map_existing(9 * G, &page).unwrap();
    kv.map_releasing(64 * G, 32 * G, &rig.props()).unwrap();
    let host = AllocationProps::on_host_numa(&rig.driver, 0);
    kv.map(120 * G, 8 * G, &host).unwrap();
    kv.set_access(4 * G, 2 * G, Location::Device(1), Access::ReadWrite)
        .unwrap();
    kv.set_access(0, 4 * G, Location::Device(0), Access::None)
        .unwrap();
    // A mapping and a handle that the driver would not take back.
    for (at, undo) in [(100, Call::cuMemUnmap), (102, Call::cuMemRelease)] {
        rig.sim.inject(Fault::on(Call::cuMemSetAccess)).unwrap();
        rig.sim.inject(Fault::on(undo)).unwrap();
        kv.map(at * G, 2 * G, &rig.props()).unwrap_err();
    }

    let of = |offset: usize| {
        let at = kv.base() + offset as u64;
        let snapshot = rig.sim.snapshot();
        let mapping = snapshot
            .mappings
            .into_iter()
            .find(|mapping| mapping.address == at);
        mapping.expect("it is mapped").handle
    };
    let (own_handle, node, stuck) = (of(0), of(120 * G), of(100 * G));
    let shared = page.raw();
    let expected = format!(
        "\
reservation BASE, 256 MiB: 100 MiB mapped in 6 mappings
  policy: device 0 read-write host NUMA node 0 read
  [###.++..........................################..!.........####]
             0x0       8 MiB  device 0, own handle {own_handle:#x}, no access
        0x800000       4 MiB  device 0, shares handle {shared:#x}, device 0 rw, device 1 rw
        0xc00000       6 MiB  -
       0x1200000       4 MiB  device 0, shares handle {shared:#x}, device 0 rw
       0x1600000     106 MiB  -
       0x8000000      64 MiB  device 0, handle given up, device 0 rw
       0xc000000       8 MiB  -
       0xc800000       4 MiB  device 0, own handle {stuck:#x}, rights unknown, QUARANTINED
       0xcc00000      36 MiB  -
       0xf000000      16 MiB  host NUMA node 0, own handle {node:#x}, device 0 rw, host NUMA node 0 r-
  and 1 handle that the driver did not release
"
    );
    assert_eq!(drawn(&kv), expected);
    kv.unmap(own).unwrap();
    kv.close().unwrap();
    page.release().unwrap();
    rig.leaves_nothing();
}

#[test]
fn one_mapping_is_told_in_the_singular() {
    let rig = Rig::new();
    let mut kv = Reservation::builder(4 * G).reserve(&rig.driver).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    let text = drawn(&kv);
    let first = text.lines().next();
    assert_eq!(
        first,
        Some("reservation BASE, 8 MiB: 2 MiB mapped in 1 mapping")
    );
}

#[test]
fn debug_says_which_and_how_much() {
    let rig = Rig::new();
    let mut kv = Reservation::builder(4 * G).reserve(&rig.driver).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    assert_eq!(
        format!("{kv:?}"),
        format!(
            "Reservation {{ base: {:#x}, size: 8388608, mappings: 1, quarantined: 0, .. }}",
            kv.base()
        )
    );
}
