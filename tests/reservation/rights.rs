//! Rights: of single mappings, of everything, and as the driver says.

use cuda_vmm::sim::{Fault, Place, Rights, Simulation};
use cuda_vmm::sys::{
    CUmemAccessDesc, CUmemAccess_flags, CUmemLocation, CUmemLocationType, CUresult, Call,
    DriverCalls,
};
use cuda_vmm::{Access, AllocationProps, Code, Error, Location, Reservation};

use crate::rig::{says, Rig, G};

const READER: Location = Location::Device(1);

/// Two devices: one that writes by the policy, one that may nothing yet. `[##.#]`.
fn furnished() -> (Rig, Reservation) {
    let rig = Rig::of(2);
    let mut kv = rig.reserve(4);
    kv.map(0, G, &rig.props()).unwrap();
    kv.map(G, G, &rig.props()).unwrap();
    kv.map(3 * G, G, &rig.props()).unwrap();
    (rig, kv)
}

/// What the second device may do with each mapping: by the driver's books, and by the reservation's.
fn readers(rig: &Rig, kv: &Reservation) -> Vec<Access> {
    let driver: Vec<_> = rig
        .sim
        .snapshot()
        .mappings
        .iter()
        .map(|mapping| {
            let of = |(place, _): &&(Place, Rights)| *place == Place::Device(1);
            match mapping.rights.iter().find(of).map(|(_, rights)| rights) {
                None | Some(Rights::None) => Access::None,
                Some(Rights::Read) => Access::Read,
                Some(Rights::ReadWrite) => Access::ReadWrite,
            }
        })
        .collect();
    let crates: Vec<_> = kv
        .mappings()
        .map(|mapping| {
            let entry = kv.rights(mapping).find(|(location, _)| *location == READER);
            entry.map_or(Access::None, |(_, access)| access)
        })
        .collect();
    assert_eq!(driver, crates, "the driver's, and the reservation's");
    for (mapping, access) in kv.mappings().zip(&crates) {
        let asked = kv.access_of(mapping.offset() + 7, READER).unwrap();
        assert_eq!(asked, *access);
    }
    crates
}

#[test]
fn of_some_mappings() {
    use Access::{None, Read, ReadWrite};
    let (rig, mut kv) = furnished();
    kv.set_access(0, 2 * G, READER, Read).unwrap();
    assert_eq!(readers(&rig, &kv), [Read, Read, None]);
    kv.set_access(G, G, &rig.devices[1], ReadWrite).unwrap();
    assert_eq!(readers(&rig, &kv), [Read, ReadWrite, None]);
    kv.set_access(0, 2 * G, READER, None).unwrap();
    assert_eq!(readers(&rig, &kv), [None, None, None]);
    // The other device's rights stayed, and so did the policy.
    for offset in [0, G, 3 * G] {
        let access = kv.access_of(offset, Location::Device(0)).unwrap();
        assert_eq!(access, ReadWrite);
    }
    let policy: Vec<_> = kv.policy().collect();
    assert_eq!(policy, [(Location::Device(0), ReadWrite)]);
}

#[test]
fn of_everything_now_and_later() {
    use Access::{None, Read, ReadWrite};
    let (rig, mut kv) = furnished();
    kv.set_access(G, G, READER, ReadWrite).unwrap();
    kv.set_policy(READER, Read).unwrap();
    assert_eq!(readers(&rig, &kv), [Read, Read, Read]);
    kv.map(2 * G, G, &rig.props()).unwrap();
    assert_eq!(readers(&rig, &kv), [Read; 4]);
    let policy: Vec<_> = kv.policy().collect();
    assert_eq!(policy, [(Location::Device(0), ReadWrite), (READER, Read)]);
    kv.set_policy(&rig.devices[1], None).unwrap();
    kv.unmap_range(0, G).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    assert_eq!(readers(&rig, &kv), [None; 4]);
}

#[test]
fn a_grant_on_an_empty_reservation_is_a_policy() {
    let rig = Rig::of(2);
    let mut kv = rig.reserve(2);
    let calls = rig.sim.calls();
    kv.set_policy(READER, Access::Read).unwrap();
    assert_eq!(rig.sim.calls(), calls, "there is nothing to grant yet");
    kv.map(0, G, &rig.props()).unwrap();
    assert_eq!(readers(&rig, &kv), [Access::Read]);
}

#[test]
fn a_grant_to_the_host_passes_over_device_memory() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    kv.map(0, G, &rig.props()).unwrap();
    let host = AllocationProps::on_host_numa(&rig.driver, 0);
    kv.map(G, G, &host).unwrap();
    kv.set_policy(Location::HostNuma(0), Access::Read).unwrap();
    let rights: Vec<Vec<_>> = kv
        .mappings()
        .map(|mapping| kv.rights(mapping).collect())
        .collect();
    let device = (Location::Device(0), Access::ReadWrite);
    let node = (Location::HostNuma(0), Access::Read);
    assert_eq!(rights, [vec![device], vec![device, node]]);
}

#[test]
fn rights_that_the_driver_does_not_have() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props()).unwrap();
    let before = (rig.sim.snapshot(), kv.to_string());
    // The driver does not give the host rights on a device's memory.
    let error = kv
        .set_access(0, G, Location::Host, Access::Read)
        .unwrap_err();
    assert!(error.is_not_supported());
    assert_eq!(
        error.to_string(),
        format!(
            "cuMemSetAccess (2097152 bytes (2 MiB) at {:#x} for host) failed with CUDA_ERROR_NOT_SUPPORTED (801)",
            kv.base()
        )
    );
    assert_eq!((rig.sim.snapshot(), kv.to_string()), before);
}

/// Host memory, then device memory: the driver gives the host rights on the first, and then refuses the second.
fn mixed(rig: &Rig) -> Reservation {
    let mut kv = rig.reserve(2);
    let host = AllocationProps::on_host_numa(&rig.driver, 0);
    kv.map(0, G, &host).unwrap();
    kv.map(G, G, &rig.props()).unwrap();
    kv
}

#[test]
fn rights_that_the_driver_gave_before_it_refused_are_taken_back() {
    let rig = Rig::new();
    let mut kv = mixed(&rig);
    let node = Location::HostNuma(0);
    for old in [Access::None, Access::Read] {
        kv.set_access(0, G, node, old).unwrap();
        let before = (rig.sim.snapshot(), kv.to_string());
        let error = kv
            .set_access(0, 2 * G, node, Access::ReadWrite)
            .unwrap_err();
        assert!(error.is_not_supported());
        assert!(error.undo_failures().is_empty());
        assert_eq!((rig.sim.snapshot(), kv.to_string()), before, "{old}");
        assert_eq!(kv.access_of(0, node).unwrap(), old);
    }
}

#[test]
fn rights_that_could_not_be_taken_back_are_told() {
    let rig = Rig::new();
    let mut kv = mixed(&rig);
    let node = Location::HostNuma(0);
    rig.sim
        .inject(Fault::on(Call::cuMemSetAccess).nth(2))
        .unwrap();
    let error = kv
        .set_access(0, 2 * G, node, Access::ReadWrite)
        .unwrap_err();
    assert!(error.is_not_supported(), "the first stays the first");
    let undo: Vec<_> = error.undo_failures().iter().map(Error::code).collect();
    assert_eq!(undo, [Some(Code::ERROR_UNKNOWN)]);
    // What the books say is what the driver says.
    assert_eq!(kv.access_of(0, node).unwrap(), Access::ReadWrite);
    assert_eq!(kv.access_of(G, node).unwrap(), Access::None);
}

#[test]
fn the_host_has_no_rights_on_device_memory_whatever_the_driver_says() {
    let rig = Rig::new();
    let mut kv = mixed(&rig);
    kv.set_access(0, G, Location::HostNuma(0), Access::Read)
        .unwrap();
    assert_eq!(kv.access_of(0, Location::Host).unwrap(), Access::None);
    assert_eq!(kv.access_of(G, Location::Host).unwrap(), Access::None);
    // The driver names those of the first device.
    let mut flags = 0;
    let host = CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        id: 0,
    };
    let asked = unsafe {
        rig.sim
            .cuMemGetAccess(&mut flags, &host, kv.base() + G as u64)
    };
    assert_eq!((asked, flags), (CUresult::CUDA_SUCCESS, 3));
}

#[test]
fn rights_that_somebody_changed_behind_our_back() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props()).unwrap();
    let descriptor = CUmemAccessDesc {
        location: CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: 0,
        },
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
    };
    let set = unsafe { rig.sim.cuMemSetAccess(kv.base(), G, &descriptor, 1) };
    assert_eq!(set, CUresult::CUDA_SUCCESS);
    says(
        &kv.access_of(5, Location::Device(0)).unwrap_err(),
        &Error::Disagreement {
            ours: "device 0 was granted read-write at offset 0x5".into(),
            theirs: "reports read".into(),
            failure: None,
        },
        "the driver and this crate disagree: device 0 was granted read-write at offset 0x5, but the driver reports read",
    );
}

#[test]
fn devices_that_cannot_reach_each_other() {
    let rig = Rig::with(
        Simulation::builder()
            .device(cuda_vmm::sim::SimDevice::new())
            .device(cuda_vmm::sim::SimDevice::new())
            .no_peer(0, 1),
    );
    let (zero, one) = (&rig.devices[0], &rig.devices[1]);
    assert!(!zero.can_access_peer(one).unwrap());
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props()).unwrap();
    let before = (rig.sim.snapshot(), kv.to_string());
    let error = kv.set_policy(one, Access::Read).unwrap_err();
    assert!(
        matches!(error, Error::Driver(ref failure) if failure.call == Call::cuMemSetAccess),
        "{error:?}"
    );
    assert_eq!((rig.sim.snapshot(), kv.to_string()), before);
}
