//! Misuse is caught and named.

use cuda_vmm::sim::{Misuse, MisuseKind};
use cuda_vmm::sys::{
    CUevent, CUmemAllocationHandleType, CUmemLocationType, CUresult, CUstream, Call, DriverCalls,
};

use crate::rig::*;

const NO_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;

fn kinds(rig: &Rig) -> Vec<(Call, MisuseKind, u64)> {
    let all = rig.0.misuses();
    all.iter().map(|of| (of.call, of.kind, of.value)).collect()
}

#[test]
fn made_up_handles() {
    for rig in Rig::both() {
        let address = rig.reserve(G).unwrap();
        assert_eq!(rig.map(address, G, 0x77), Err(NO_HANDLE));
        assert_eq!(rig.release(0xdead_beef), Err(NO_HANDLE));
        let made_up = MisuseKind::MadeUpHandle;
        assert_eq!(
            kinds(&rig),
            [
                (Call::cuMemMap, made_up, 0x77),
                (Call::cuMemRelease, made_up, 0xdead_beef)
            ]
        );
    }
}

#[test]
fn stale_handles() {
    let rig = Rig::new();
    let handle = rig.create(G).unwrap();
    rig.release(handle).unwrap();
    assert_eq!(rig.release(handle), Err(INVALID), "as it was measured");
    let mut fd = -1;
    let to = std::ptr::from_mut(&mut fd).cast();
    let posix = CUmemAllocationHandleType(1);
    let code = unsafe { rig.0.cuMemExportToShareableHandle(to, handle, posix, 0) };
    assert_eq!(code, NO_HANDLE);
    assert_eq!(
        kinds(&rig),
        [
            (Call::cuMemRelease, MisuseKind::ReleasedTwice, handle),
            (
                Call::cuMemExportToShareableHandle,
                MisuseKind::StaleHandle,
                handle
            )
        ]
    );
    rig.0.clear_misuses();
    assert_eq!(rig.0.misuses(), []);
}

#[test]
fn a_handle_released_while_mapped_lives_on() {
    for rig in Rig::both() {
        let (address, handle) = rig.block(1);
        rig.release(handle).unwrap();
        assert_eq!(rig.release(handle), Err(INVALID));
        let elsewhere = rig.reserve(G).unwrap();
        rig.map(elsewhere, G, handle).unwrap();
        rig.unmap(address, G).unwrap();
        rig.unmap(elsewhere, G).unwrap();
        assert_eq!(rig.map(address, G, handle), Err(NO_HANDLE));
        assert_eq!(rig.snapshot().handles, []);
    }
}

#[test]
fn handle_zero_is_only_a_bad_value() {
    let rig = Rig::new();
    assert_eq!(rig.release(0), Err(INVALID));
    assert_eq!(rig.0.misuses(), []);
}

#[test]
fn streams_and_events() {
    let rig = Rig::new();
    let stream = rig.stream();
    check(unsafe { rig.0.cuStreamDestroy_v2(stream) }).unwrap();
    assert_eq!(unsafe { rig.0.cuStreamQuery(stream) }, NO_HANDLE);
    let event = 0x1234 as CUevent;
    assert_eq!(unsafe { rig.0.cuEventQuery(event) }, NO_HANDLE);
    assert_eq!(
        kinds(&rig),
        [
            (Call::cuStreamQuery, MisuseKind::NoSuchStream, stream as u64),
            (Call::cuEventQuery, MisuseKind::NoSuchEvent, 0x1234)
        ]
    );
    assert!(!rig.0.hold_stream(0x99 as CUstream));
}

#[test]
fn a_misuse_says_what_was_wrong() {
    let rig = Rig::new();
    assert_eq!(rig.release(0x55), Err(NO_HANDLE));
    let misuse: Misuse = rig.0.misuses()[0];
    assert_eq!(
        misuse.to_string(),
        "cuMemRelease: 0x55 is no handle of this driver"
    );
}

#[test]
fn what_a_device_may_not_do_where_the_host_has_rights() {
    for rig in Rig::both() {
        let address = rig.reserve(2 * G).unwrap();
        let mut props = props(1);
        props.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
        for at in [address, address + G as u64] {
            let handle = rig.create_with(G, &props).unwrap();
            rig.map(at, G, handle).unwrap();
            rig.release(handle).unwrap();
        }
        rig.access(address, 2 * G, 3).unwrap();
        let across = address + G as u64 - 8;
        rig.fill(across, 1, 16).unwrap();
        assert_eq!(rig.0.misuses(), []);

        let mut host = grant(0, 1);
        host.location = props.location;
        rig.access_of(address, 2 * G, &[host]).unwrap();
        let mut seen = [0_u8; 16];
        let to = seen.as_mut_ptr().cast();
        let read = |size| check(unsafe { rig.0.cuMemcpyDtoH_v2(to, across, size) });
        assert_eq!((read(16), read(8)), (Err(INVALID), Ok(())));
        assert_eq!(rig.fill(address, 1, 1), Err(INVALID));
        assert_eq!(
            kinds(&rig),
            [
                (Call::cuMemcpyDtoH_v2, MisuseKind::OverHostSeam, across),
                (Call::cuMemsetD8_v2, MisuseKind::HostReadOnly, address),
            ]
        );
        assert_eq!(
            rig.0.misuses()[1].to_string(),
            format!("cuMemsetD8_v2: {address:#x} begins what writes to memory that the host may only read")
        );
    }
}
