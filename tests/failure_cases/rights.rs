//! E. Access rights and peers.

use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Error, Reservation};

use crate::case::{Case, Machine};
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::sim(
        "what is mapped later has the rights of what was mapped before",
        later_mappings,
    ),
    Case::both("rights come back with the next map", rights_after_remap),
    Case::sim("one call grants a whole range", one_call),
    Case::both("rights of the second of two mappings alone", the_tail_alone),
    Case::both("memory that may only be read is not written", read_only),
];

/// Failure cases 58 and 65.
fn later_mappings() {
    let rig = Rig::of(2);
    let [first, second] = &rig.devices[..] else {
        panic!("there are two");
    };
    let page = rig.props().create(G).unwrap();
    let mut kv = rig.reserve(8);
    kv.map(0, G, &rig.props()).unwrap();
    kv.set_policy(second, Access::ReadWrite).unwrap();
    kv.map(G, G, &rig.props()).unwrap();
    kv.map_existing(2 * G, &page).unwrap();
    kv.map_releasing(3 * G, G, &rig.props()).unwrap();
    kv.unmap_range(0, G).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    for at in 0..4 {
        for device in [first, second] {
            assert_eq!(kv.access_of(at * G, device).unwrap(), Access::ReadWrite);
        }
    }
    kv.close().unwrap();
    page.release().unwrap();
    rig.leaves_nothing();
}

/// Failure case 59.
fn rights_after_remap(on: &Machine) {
    let page = on.props.create(on.g).unwrap();
    let mut kv = on.reserve(1);
    for turn in 0..3_u8 {
        let id = kv.map_existing(0, &page).unwrap();
        assert_eq!(kv.access_of(0, &on.device).unwrap(), Access::ReadWrite);
        let mut byte = [0];
        kv.read(0, &mut byte).unwrap();
        assert_eq!(byte, [turn], "contents survive");
        kv.write(0, &[turn + 1]).unwrap();
        // Rights of one mapping go with it.
        kv.set_access(0, on.g, &on.device, Access::None).unwrap();
        let error = kv.read(0, &mut byte).unwrap_err();
        assert!(matches!(error, Error::NoAccess { .. }), "{error:?}");
        kv.unmap(id).unwrap();
    }
    kv.close().unwrap();
    page.release().unwrap();
}

/// Failure case 63.
fn one_call() {
    let rig = Rig::new();
    let mut kv = Reservation::builder(512 * G).reserve(&rig.driver).unwrap();
    for at in 0..512 {
        kv.map(at * G, G, &rig.props()).unwrap();
    }
    assert_eq!(rig.sim.calls_of(Call::cuMemSetAccess), 0);
    kv.set_access(0, 512 * G, rig.device(), Access::ReadWrite)
        .unwrap();
    assert_eq!(rig.sim.calls_of(Call::cuMemSetAccess), 1);
    kv.write(511 * G, b"all").unwrap();
    kv.close().unwrap();
    rig.leaves_nothing();
}

/// Failure case 64.
fn the_tail_alone(on: &Machine) {
    let g = on.g;
    let mut kv = Reservation::builder(4 * g).reserve(&on.driver).unwrap();
    kv.map(0, g, &on.props).unwrap();
    kv.set_access(0, g, &on.device, Access::Read).unwrap();
    kv.map(g, g, &on.props).unwrap();
    kv.set_access(g, g, &on.device, Access::ReadWrite).unwrap();
    assert_eq!(kv.access_of(0, &on.device).unwrap(), Access::Read);
    assert_eq!(
        kv.access_of(2 * g - 1, &on.device).unwrap(),
        Access::ReadWrite
    );
    kv.close().unwrap();
}

/// Failure case 66.
fn read_only(on: &Machine) {
    let g = on.g;
    let page = on.props.create(g).unwrap();
    let mut writer = on.reserve(1);
    writer.map_existing(0, &page).unwrap();
    writer.write(0, b"weights").unwrap();
    let builder = Reservation::builder(g).access(&on.device, Access::Read);
    let mut reader = builder.reserve(&on.driver).unwrap();
    reader.map_existing(0, &page).unwrap();
    let mut other = on.reserve(1);
    other.map(0, g, &on.props).unwrap();
    let refused = [
        reader.write(0, b"changed").unwrap_err(),
        reader.fill(0, g, 0).unwrap_err(),
        reader.copy_from(0, &other, 0, 7).unwrap_err(),
    ];
    for error in refused {
        assert!(
            matches!(error, Error::NoAccess { verb: "write", .. }),
            "{error:?}"
        );
    }
    let mut bytes = [0; 7];
    reader.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"weights");
    other.close().unwrap();
    reader.close().unwrap();
    writer.close().unwrap();
    page.release().unwrap();
}
