//! A forked child of an initialised process.

use cuda_vmm::sim::Simulation;
use cuda_vmm::sys::{CUresult, DriverCalls};

use crate::rig::*;

/// Runs `body` in a forked child, and says whether it held.
fn in_child(body: impl FnOnce() -> bool) -> bool {
    // The child of a threaded process may do little: `body` makes driver calls and compares numbers.
    match unsafe { libc::fork() } {
        0 => unsafe { libc::_exit(if body() { 0 } else { 1 }) },
        child => {
            assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = -1;
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[test]
fn every_call_is_not_initialized_and_the_parent_is_unharmed() {
    const GONE: Result = Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    let rig = Rig::new();
    let block = rig.block(1);
    let (address, handle) = block;
    rig.write(address, b"parent").unwrap();
    let before = rig.snapshot();
    let recorded = rig.0.log().len();
    assert!(in_child(|| {
        rig.unmap(address, G) == GONE
            && rig.release(handle) == GONE
            && rig.address_free(address, G) == GONE
            && rig.map(address, G, handle) == GONE
            && rig.access(address, G, 0) == GONE
            && rig.fill(address, 0, G) == GONE
            && rig.create(G).map(drop) == GONE
            && check(unsafe { rig.0.cuInit(0) }) == GONE
            // Recording takes a lock, which a thread that was not copied may have held.
            && rig.0.log().len() == recorded
    }));
    assert_eq!(rig.snapshot(), before);
    assert_eq!(rig.read(address, 6), Ok(b"parent".to_vec()));
    rig.drop_block(block, 1);
}

#[test]
fn a_driver_not_yet_initialised_works_in_the_child() {
    let sim = Simulation::new();
    assert!(in_child(|| {
        let ready = unsafe { sim.cuInit(0) };
        let mut address = 0;
        let reserved = unsafe { sim.cuMemAddressReserve(&mut address, G, 0, 0, 0) };
        ready == CUresult::CUDA_SUCCESS && reserved == CUresult::CUDA_SUCCESS
    }));
}
