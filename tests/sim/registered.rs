//! Registered memory of the host: books that are kept as documented.

use std::ffi::c_void;

use cuda_vmm::sys::{CUresult, DriverCalls};

use crate::rig::{check, Result, Rig, INVALID};

const AGAIN: CUresult = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
const NOT: CUresult = CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;

/// The addresses are only noted: nothing is read or written there.
fn at(address: u64) -> *mut c_void {
    address as *mut c_void
}

fn register(rig: &Rig, address: u64, size: usize, flags: u32) -> Result {
    check(unsafe { rig.0.cuMemHostRegister_v2(at(address), size, flags) })
}

fn unregister(rig: &Rig, address: u64) -> Result {
    check(unsafe { rig.0.cuMemHostUnregister(at(address)) })
}

#[test]
fn registered_memory_is_in_the_snapshot() {
    for rig in Rig::both() {
        let before = rig.snapshot();
        register(&rig, 0x10_0000, 0x2000, 1).unwrap();
        register(&rig, 0x10_2000, 0x1000, 0).unwrap();
        let registered = rig.snapshot().registered;
        let told: Vec<_> = registered
            .iter()
            .map(|one| (one.address, one.size))
            .collect();
        assert_eq!(told, [(0x10_0000, 0x2000), (0x10_2000, 0x1000)]);
        assert!(!rig.snapshot().holds_no_memory());
        let shown = rig.snapshot().to_string();
        assert!(shown.contains("registered 0x100000 8 KiB\n"), "{shown}");
        unregister(&rig, 0x10_0000).unwrap();
        unregister(&rig, 0x10_2000).unwrap();
        assert_eq!(rig.snapshot(), before);
    }
}

#[test]
fn what_cannot_be_registered() {
    for rig in Rig::both() {
        register(&rig, 0x10_0000, 0x2000, 1).unwrap();
        let before = rig.snapshot();
        for (address, size) in [
            (0x10_0000, 0x2000),
            (0x10_0000, 1),
            (0x10_1fff, 1),
            (0xf_f000, 0x1001),
            (0xf_f000, 0x9000),
        ] {
            assert_eq!(register(&rig, address, size, 1), Err(AGAIN));
        }
        assert_eq!(register(&rig, 0, 1, 1), Err(INVALID));
        assert_eq!(register(&rig, 0x20_0000, 0, 1), Err(INVALID));
        assert_eq!(register(&rig, 0x20_0000, 1, 16), Err(INVALID));
        assert_eq!(register(&rig, 0x20_0000, usize::MAX, 1), Err(INVALID));
        assert_eq!(unregister(&rig, 0x10_1000), Err(NOT));
        assert_eq!(unregister(&rig, 0x20_0000), Err(NOT));
        assert_eq!(unregister(&rig, 0), Err(INVALID));
        assert_eq!(rig.snapshot(), before);
        register(&rig, 0xf_f000, 0x1000, 1).unwrap();
    }
}

#[test]
fn registrations_go_with_their_context() {
    for rig in Rig::both() {
        register(&rig, 0x10_0000, 0x2000, 1).unwrap();
        rig.leave(0);
        assert!(rig.snapshot().is_empty(), "{}", rig.snapshot());
        let nobody = CUresult::CUDA_ERROR_INVALID_CONTEXT;
        assert_eq!(register(&rig, 0x10_0000, 1, 1), Err(nobody));
        assert_eq!(unregister(&rig, 0x10_0000), Err(nobody));
    }
}
