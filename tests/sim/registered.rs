//! Registered memory of the host: books that are kept as documented, and devices that reach it.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_vmm::sys::{CUresult, DriverCalls};

use crate::rig::{check, Result, Rig, ILLEGAL, INVALID};

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

/// A word of the host's own, registered.
#[derive(Default)]
pub struct Word(pub Box<[AtomicU32; 4]>);

impl Word {
    pub fn address(&self) -> *mut c_void {
        self.0.as_ptr().cast_mut().cast()
    }

    pub fn register(&self, rig: &Rig, flags: u32) -> Result<u64> {
        let (memory, mut at) = (self.address(), 0);
        check(unsafe { rig.0.cuMemHostRegister_v2(memory, 16, flags) })?;
        check(unsafe { rig.0.cuMemHostGetDevicePointer_v2(&mut at, memory, 0) })?;
        Ok(at)
    }

    pub fn unregister(&self, rig: &Rig) {
        check(unsafe { rig.0.cuMemHostUnregister(self.address()) }).unwrap();
    }
}

#[test]
fn devices_reach_registered_memory_at_its_own_address() {
    for rig in Rig::both() {
        let word = Word::default();
        let stream = rig.stream();
        let at = word.address() as u64;
        assert_eq!(rig.word(stream, at, 1), Err(INVALID));
        assert_eq!(word.register(&rig, 3), Ok(at));
        rig.word(stream, at + 12, 0x1234_5678).unwrap();
        assert_eq!(word.0[3].load(Ordering::Acquire), 0x1234_5678);
        assert_eq!(rig.word(stream, at + 16, 1), Err(INVALID));
        assert_eq!(rig.word(stream, at + 2, 1), Err(INVALID));
        assert_eq!(rig.read(at + 12, 4), Ok(vec![0x78, 0x56, 0x34, 0x12]));
        assert_eq!(rig.read(at + 12, 5), Err(INVALID));
        rig.fill(at, 0xaa, 4).unwrap();
        assert_eq!(word.0[0].load(Ordering::Acquire), 0xaaaa_aaaa);
        word.unregister(&rig);

        // Registered to be read.
        assert_eq!(word.register(&rig, 8), Ok(at));
        assert_eq!(rig.word(stream, at, 1), Err(INVALID));
        assert_eq!(rig.read(at, 1), Ok(vec![0xaa]));
        word.unregister(&rig);
        let mut pointer = 77;
        let refused = |memory: *mut c_void, flags, pointer: &mut u64| unsafe {
            rig.0.cuMemHostGetDevicePointer_v2(pointer, memory, flags)
        };
        assert_eq!(refused(word.address(), 0, &mut pointer), INVALID);
        assert_eq!(refused(null_mut(), 0, &mut pointer), INVALID);
        word.register(&rig, 1).unwrap();
        assert_eq!(refused(word.address(), 1, &mut pointer), INVALID);
        assert_eq!(pointer, 77);

        // What is unregistered under a pending word is a fault when the stream comes to it.
        let (held, _) = rig.held();
        rig.word(held, at, 5).unwrap();
        word.unregister(&rig);
        assert!(rig.0.release_stream(held));
        assert_eq!(rig.query(held), ILLEGAL);
        assert_eq!(word.0[0].load(Ordering::Acquire), 0xaaaa_aaaa);
    }
}
