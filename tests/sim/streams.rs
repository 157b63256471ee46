//! Work in flight: held streams.

use std::ptr::null_mut;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cuda_vmm::sys::{CUresult, CUstream, DriverCalls};

use crate::rig::*;

const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;
const DONE: CUresult = CUresult::CUDA_SUCCESS;

#[test]
fn work_is_done_at_once_unless_the_stream_is_held() {
    for rig in Rig::both() {
        let (address, _) = rig.block(1);
        let stream = rig.stream();
        rig.fill_async(address, 1, G, stream).unwrap();
        assert_eq!(rig.read(address, 1), Ok(vec![1]));
        assert!(rig.0.hold_stream(stream));
        assert_eq!(unsafe { rig.0.cuStreamQuery(stream) }, DONE);
        rig.fill_async(address, 2, G, stream).unwrap();
        assert_eq!(rig.read(address, 1), Ok(vec![1]));
        assert_eq!(unsafe { rig.0.cuStreamQuery(stream) }, NOT_READY);
        assert!(rig.0.release_stream(stream));
        assert_eq!(unsafe { rig.0.cuStreamQuery(stream) }, DONE);
        assert_eq!(rig.read(address, 1), Ok(vec![2]));
    }
}

#[test]
fn an_event_is_reached_with_the_work_before_it() {
    let rig = Rig::new();
    let (stream, event) = (rig.stream(), rig.event());
    assert_eq!(unsafe { rig.0.cuEventQuery(event) }, DONE);
    assert!(rig.0.hold_stream(stream));
    check(unsafe { rig.0.cuEventRecord(event, stream) }).unwrap();
    assert_eq!(unsafe { rig.0.cuEventQuery(event) }, NOT_READY);
    assert!(rig.0.release_stream(stream));
    assert_eq!(unsafe { rig.0.cuEventQuery(event) }, DONE);
}

#[test]
fn an_event_is_reached_when_its_last_record_is() {
    let rig = Rig::new();
    let (early, late, event) = (rig.stream(), rig.stream(), rig.event());
    for stream in [early, late] {
        assert!(rig.0.hold_stream(stream));
        check(unsafe { rig.0.cuEventRecord(event, stream) }).unwrap();
    }
    assert!(rig.0.release_stream(early));
    assert_eq!(unsafe { rig.0.cuEventQuery(event) }, NOT_READY);
    assert!(rig.0.release_stream(late));
    assert_eq!(unsafe { rig.0.cuEventQuery(event) }, DONE);
}

/// Runs a call that blocks, checks that it does, and what it answers after `release`.
fn blocks(rig: &Rig, call: impl FnOnce() -> CUresult + Send, release: impl FnOnce()) -> CUresult {
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            rig.enter(0);
            sender.send(call()).unwrap();
        });
        let early = receiver.recv_timeout(Duration::from_millis(50));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
        release();
        let late = receiver.recv_timeout(Duration::from_secs(20));
        late.unwrap_or_else(|_| {
            rig.0.deinitialize(); // or the scope would wait for the blocked thread
            panic!("still blocked after the release")
        })
    })
}

#[test]
fn synchronising_blocks_until_the_release() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let (stream, event) = (rig.stream(), rig.event());
    let (number, event_number) = (stream as usize, event as usize);
    let fill = || {
        assert!(rig.0.hold_stream(stream));
        rig.fill_async(address, 9, 8, stream).unwrap();
        check(unsafe { rig.0.cuEventRecord(event, stream) }).unwrap();
    };
    let release = || assert!(rig.0.release_stream(stream));
    fill();
    let sync = || unsafe { rig.0.cuStreamSynchronize(number as CUstream) };
    assert_eq!(blocks(&rig, sync, release), DONE);
    fill();
    let sync = || unsafe { rig.0.cuEventSynchronize(event_number as _) };
    assert_eq!(blocks(&rig, sync, release), DONE);
    fill();
    let sync = || unsafe { rig.0.cuCtxSynchronize() };
    assert_eq!(blocks(&rig, sync, release), DONE);
    fill();
    let end = || rig.0.deinitialize();
    let sync = || unsafe { rig.0.cuStreamSynchronize(number as CUstream) };
    assert_eq!(blocks(&rig, sync, end), CUresult::CUDA_ERROR_DEINITIALIZED);
}

#[test]
fn unmapping_under_pending_work_loses_the_context() {
    for rig in Rig::both() {
        let (address, handle) = rig.block(1);
        let stream = rig.stream();
        assert!(rig.0.hold_stream(stream));
        rig.fill_async(address, 1, G, stream).unwrap();
        rig.unmap(address, G).unwrap();
        assert_eq!(unsafe { rig.0.cuStreamQuery(stream) }, ILLEGAL);
        assert_eq!(unsafe { rig.0.cuStreamSynchronize(stream) }, ILLEGAL);
        assert_eq!(unsafe { rig.0.cuCtxSynchronize() }, ILLEGAL);
        rig.release(handle).unwrap();
        rig.address_free(address, G).unwrap();
    }
}

#[test]
fn a_blocked_call_learns_that_its_context_is_lost() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    assert!(rig.0.hold_stream(null_mut()));
    rig.fill_async(address, 1, G, null_mut()).unwrap();
    let sync = || unsafe { rig.0.cuCtxSynchronize() };
    let unmap = || rig.unmap(address, G).unwrap();
    assert_eq!(blocks(&rig, sync, unmap), ILLEGAL);
}

#[test]
fn freeing_ordinary_memory_waits_for_the_device() {
    let rig = Rig::new();
    let address = rig.alloc(G).unwrap();
    assert!(rig.0.hold_stream(null_mut()));
    rig.fill_async(address, 1, G, null_mut()).unwrap();
    let free = || unsafe { rig.0.cuMemFree_v2(address) };
    let release = || assert!(rig.0.release_stream(null_mut()));
    assert_eq!(blocks(&rig, free, release), DONE);
}

#[test]
fn a_reset_forgets_pending_work() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    assert!(rig.0.hold_stream(null_mut()));
    rig.fill_async(address, 1, G, null_mut()).unwrap();
    check(unsafe { rig.0.cuDevicePrimaryCtxReset_v2(0) }).unwrap();
    assert_eq!(unsafe { rig.0.cuStreamQuery(null_mut()) }, DONE);
    rig.fill_async(address, 2, 1, null_mut()).unwrap();
    assert_eq!(rig.read(address, 2), Ok(vec![2, 0]));
}

#[test]
fn unmapping_beside_pending_work_does_not() {
    let rig = Rig::new();
    let (busy, idle) = (rig.block(1), rig.block(1));
    let stream = rig.stream();
    assert!(rig.0.hold_stream(stream));
    rig.fill_async(busy.0, 3, G, stream).unwrap();
    rig.drop_block(idle, 1);
    assert!(rig.0.release_stream(stream));
    assert_eq!(rig.read(busy.0, 1), Ok(vec![3]));
}

#[test]
fn rights_taken_from_pending_work_lose_the_context() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let stream = rig.stream();
    assert!(rig.0.hold_stream(stream));
    rig.fill_async(address, 1, G, stream).unwrap();
    rig.access(address, G, 1).unwrap();
    assert!(rig.0.release_stream(stream));
    assert_eq!(rig.read(address, 1), Err(ILLEGAL));
}

#[test]
fn what_is_wrong_when_it_is_enqueued_is_refused_then() {
    let rig = Rig::new();
    let address = rig.reserve(G).unwrap();
    let stream = rig.stream();
    assert!(rig.0.hold_stream(stream));
    assert_eq!(rig.fill_async(address, 1, 1, stream), Err(INVALID));
    assert_eq!(unsafe { rig.0.cuStreamQuery(stream) }, DONE);
}

#[test]
fn the_default_stream_can_be_held() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    assert!(rig.0.hold_stream(null_mut()));
    rig.fill_async(address, 4, 1, null_mut()).unwrap();
    assert_eq!(unsafe { rig.0.cuStreamQuery(null_mut()) }, NOT_READY);
    assert!(rig.0.release_stream(null_mut()));
    assert_eq!(rig.read(address, 1), Ok(vec![4]));
}
