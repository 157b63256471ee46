//! Contexts, and the ends of a driver.

use std::ptr::null_mut;
use std::thread;

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::sys::*;

use crate::rig::*;

#[test]
fn before_init_and_after_the_end() {
    let sim = Simulation::builder().ledger_only().build().unwrap();
    let mut address = 0;
    let mut reserve = || unsafe { sim.cuMemAddressReserve(&mut address, G, 0, 0, 0) };
    assert_eq!(reserve(), CUresult::CUDA_ERROR_NOT_INITIALIZED);
    assert_eq!(unsafe { sim.cuInit(1) }, INVALID);
    assert_eq!(reserve(), CUresult::CUDA_ERROR_NOT_INITIALIZED);
    assert_eq!(unsafe { sim.cuInit(0) }, CUresult::CUDA_SUCCESS);
    assert_eq!(reserve(), CUresult::CUDA_SUCCESS);
    sim.deinitialize();
    assert_eq!(reserve(), CUresult::CUDA_ERROR_DEINITIALIZED);
    assert_eq!(unsafe { sim.cuInit(0) }, CUresult::CUDA_ERROR_DEINITIALIZED);
}

#[test]
fn each_thread_has_its_own_stack() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let here = rig.0.snapshot().context_depth;
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            assert_eq!(rig.0.snapshot().context_depth, 0);
            assert_eq!(rig.rights(address), Ok(3), "no call on addresses needs one");
            rig.read(address, 1)
        });
        let refused = there.join().unwrap();
        assert_eq!(refused, Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    });
    assert_eq!(here, 1);
}

#[test]
fn push_and_pop() {
    let two = Simulation::builder()
        .device(SimDevice::new())
        .device(SimDevice::new());
    let rig = Rig::with(two);
    let sim = &rig.0;
    let mut second = null_mut();
    check(unsafe { sim.cuDevicePrimaryCtxRetain(&mut second, 1) }).unwrap();
    check(unsafe { sim.cuCtxPushCurrent_v2(second) }).unwrap();
    let mut device = -1;
    check(unsafe { sim.cuCtxGetDevice(&mut device) }).unwrap();
    assert_eq!(device, 1);
    let mut popped = null_mut();
    check(unsafe { sim.cuCtxPopCurrent_v2(&mut popped) }).unwrap();
    assert_eq!(popped, second);
    check(unsafe { sim.cuCtxGetDevice(&mut device) }).unwrap();
    assert_eq!(device, 0);
    check(unsafe { sim.cuCtxPopCurrent_v2(&mut popped) }).unwrap();
    let empty = unsafe { sim.cuCtxPopCurrent_v2(&mut popped) };
    assert_eq!(empty, CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn rights_are_the_current_devices() {
    let two = Simulation::builder()
        .device(SimDevice::new())
        .device(SimDevice::new());
    let rig = Rig::with(two);
    let (address, _) = rig.block(1);
    rig.enter(1);
    assert_eq!(rig.read(address, 1), Err(INVALID));
    rig.access_of(address, G, &[grant(1, 1)]).unwrap();
    assert_eq!(rig.rights(address), Ok(3), "device 0 keeps its own");
    assert_eq!(rig.read(address, 1), Ok(vec![0]));
    assert_eq!(rig.fill(address, 1, 1), Err(INVALID));
}

#[test]
fn a_poisoned_context_fails_and_addresses_go_on() {
    let rig = Rig::new();
    let block = rig.block(1);
    assert!(rig.0.poison(0));
    assert!(!rig.0.poison(1), "there is no device 1");
    assert_eq!(rig.read(block.0, 1), Err(ILLEGAL));
    assert_eq!(unsafe { rig.0.cuCtxSynchronize() }, ILLEGAL);
    let more = rig.block(1);
    rig.drop_block(block, 1);
    rig.drop_block(more, 1);
}

#[test]
fn what_is_mapped_outlives_the_primary_context() {
    let rig = Rig::new();
    let block = rig.block(1);
    rig.write(block.0, b"outlives").unwrap();
    let ordinary = rig.alloc(G).unwrap();
    check(unsafe { rig.0.cuDevicePrimaryCtxReset_v2(0) }).unwrap();
    assert_eq!(rig.read(block.0, 8), Ok(b"outlives".to_vec()));
    assert_eq!(rig.read(ordinary, 1), Err(INVALID));
    rig.drop_block(block, 1);
}
