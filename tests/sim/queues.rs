//! Streams that wait for each other, functions of the host and words: in both modes, and when something is lost.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::*;

use crate::registered::Word;
use crate::rig::*;
use crate::rows::rows;

const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;
const NO_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
const DONE: CUresult = CUresult::CUDA_SUCCESS;

/// # Safety
///
/// The data is an `AtomicU32`.
unsafe extern "C" fn count(data: *mut c_void) {
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn streams_that_wait_go_on_one_after_the_other() {
    for rig in Rig::both() {
        let (address, _) = rig.block(1);
        let (first, reached) = rig.held();
        let (second, third, passed) = (rig.stream(), rig.stream(), rig.event());
        rig.wait(second, reached).unwrap();
        rig.fill_async(address, 1, 4, second).unwrap();
        rig.record(passed, second);
        rig.wait(third, passed).unwrap();
        rig.word(third, address, 0x0403_0201).unwrap();
        for stream in [first, second, third] {
            assert_eq!(rig.query(stream), NOT_READY);
        }
        assert_eq!(rig.read(address, 4), Ok(vec![0; 4]));
        // Released or not: what it waits for is not reached.
        assert!(rig.0.release_stream(third));
        assert_eq!(rig.query(third), NOT_READY);
        assert!(rig.0.release_stream(first));
        for stream in [first, second, third] {
            assert_eq!(rig.query(stream), DONE);
        }
        assert_eq!(rig.read(address, 4), Ok(vec![1, 2, 3, 4]));
    }
}

#[test]
fn a_held_stream_stays_held_when_its_wait_ends() {
    let rig = Rig::new();
    let (first, reached) = rig.held();
    let second = rig.stream();
    assert!(rig.0.hold_stream(second));
    rig.wait(second, reached).unwrap();
    let calls = AtomicU32::new(0);
    rig.launch(second, Some(count), &calls).unwrap();
    assert!(rig.0.release_stream(first));
    assert_eq!(
        (rig.query(second), calls.load(Ordering::SeqCst)),
        (NOT_READY, 0)
    );
    assert!(rig.0.release_stream(second));
    assert_eq!((rig.query(second), calls.load(Ordering::SeqCst)), (DONE, 1));
}

#[test]
fn a_wait_that_makes_no_sense() {
    let rig = Rig::new();
    let (stream, event) = (rig.stream(), rig.event());
    for flags in [1, 2] {
        let code = unsafe { rig.0.cuStreamWaitEvent(stream, event, flags) };
        assert_eq!(code, INVALID);
    }
    assert_eq!(rig.wait(stream, 0x1234 as CUevent), Err(NO_HANDLE));
    assert_eq!(rig.wait(0x1234 as CUstream, event), Err(NO_HANDLE));
    assert_eq!(rig.0.misuses().len(), 2);
    assert_eq!(rig.query(stream), DONE);
}

#[test]
fn a_destroyed_stream_does_what_it_was_given() {
    for rig in Rig::both() {
        let (address, _) = rig.block(1);
        let (first, reached) = rig.held();
        let second = rig.stream();
        rig.wait(second, reached).unwrap();
        rig.fill_async(address, 7, 1, second).unwrap();
        assert_eq!(rig.snapshot().streams, 2);
        rig.destroy(second);
        assert_eq!(rig.snapshot().streams, 1);
        assert_eq!(rig.query(second), NO_HANDLE);
        assert!(!rig.0.hold_stream(second));
        assert!(!rig.0.release_stream(second));
        assert_eq!(rig.read(address, 1), Ok(vec![0]));
        rig.destroy(first);
        assert_eq!(rig.read(address, 1), Ok(vec![7]));
        assert_eq!(rig.snapshot().streams, 0);
    }
}

/// What a function does while the driver waits for it.
struct Meeting {
    sim: Simulation,
    begun: Mutex<Sender<()>>,
    may_end: Mutex<Receiver<()>>,
    streams: AtomicU32,
}

/// # Safety
///
/// The data is a `Meeting`.
unsafe extern "C" fn meet(data: *mut c_void) {
    let meeting = unsafe { &*data.cast::<Meeting>() };
    let streams = meeting.sim.snapshot().streams;
    meeting.begun.lock().unwrap().send(()).unwrap();
    let wait = meeting.may_end.lock().unwrap();
    if wait.recv_timeout(Duration::from_secs(20)).is_ok() {
        meeting.streams.store(streams as u32, Ordering::SeqCst);
    }
}

#[test]
fn a_function_is_called_without_the_lock_and_holds_up_its_stream() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let (begun, began) = channel();
    let (end, may_end) = channel();
    let meeting = Meeting {
        sim: rig.0.clone(),
        begun: Mutex::new(begun),
        may_end: Mutex::new(may_end),
        streams: AtomicU32::new(0),
    };
    let stream = rig.stream();
    assert!(rig.0.hold_stream(stream));
    rig.launch(stream, Some(meet), &meeting).unwrap();
    rig.fill_async(address, 1, 1, stream).unwrap();
    thread::scope(|scope| {
        let sim = &rig.0;
        let number = stream as usize;
        scope.spawn(move || assert!(sim.release_stream(number as CUstream)));
        began.recv_timeout(Duration::from_secs(20)).unwrap();
        // Other calls go through, the stream is busy, and what comes to it now waits as well.
        assert_eq!(rig.query(stream), NOT_READY);
        let calls = AtomicU32::new(0);
        rig.launch(stream, Some(count), &calls).unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        assert_eq!(rig.read(address, 1), Ok(vec![0]));
        end.send(()).unwrap();
        check(unsafe { rig.0.cuStreamSynchronize(stream) }).unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    });
    assert_eq!(meeting.streams.load(Ordering::SeqCst), 1);
    assert_eq!(rig.read(address, 1), Ok(vec![1]));
}

#[test]
fn functions_of_several_streams_are_called_before_the_release_returns() {
    for rig in Rig::both() {
        let (first, reached) = rig.held();
        let calls = AtomicU32::new(0);
        rig.launch(first, Some(count), &calls).unwrap();
        for _ in 0..3 {
            let stream = rig.stream();
            rig.wait(stream, reached).unwrap();
            rig.launch(stream, Some(count), &calls).unwrap();
            rig.launch(stream, Some(count), &calls).unwrap();
        }
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        assert!(rig.0.release_stream(first));
        assert_eq!(calls.load(Ordering::SeqCst), 7);
        // On an idle stream it has been called when the call returns.
        rig.launch(first, Some(count), &calls).unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 8);
        assert_eq!(rig.launch(first, None, &calls), Err(INVALID));
    }
}

#[test]
fn a_function_may_not_call_the_driver() {
    struct Question(Simulation, Mutex<Vec<CUresult>>);
    /// # Safety
    ///
    /// The data is a `Question`.
    unsafe extern "C" fn ask(data: *mut c_void) {
        let Question(sim, answers) = unsafe { &*data.cast::<Question>() };
        let mut version = 77;
        let code = unsafe { sim.cuDriverGetVersion(&mut version) };
        answers.lock().unwrap().push(code);
        assert_eq!(version, 77);
    }
    let rig = Rig::new();
    let question = Question(rig.0.clone(), Mutex::default());
    rig.launch(null_mut(), Some(ask), &question).unwrap();
    let answers = question.1.lock().unwrap();
    assert_eq!(*answers, [CUresult::CUDA_ERROR_NOT_PERMITTED]);
    assert_eq!(rig.query(null_mut()), DONE);
}

/// What was pending is lost with a context, and holds up no other device's streams.
#[test]
fn a_lost_context_calls_no_functions_and_ends_waits_for_it() {
    let lose: [fn(&Rig); 2] = [
        |rig| assert!(rig.0.poison(0)),
        |rig| check(unsafe { rig.0.cuDevicePrimaryCtxReset_v2(0) }).unwrap(),
    ];
    for lose in lose {
        let two = Simulation::builder().devices([SimDevice::new(), SimDevice::new()]);
        let rig = Rig::with(two);
        let (held, event) = rig.held();
        let calls = [AtomicU32::new(0), AtomicU32::new(0)];
        rig.launch(held, Some(count), &calls[0]).unwrap();
        rig.enter(1);
        let other = rig.stream();
        rig.wait(other, event).unwrap();
        rig.launch(other, Some(count), &calls[1]).unwrap();
        assert_eq!(rig.query(other), NOT_READY);
        lose(&rig);
        assert_eq!(rig.query(other), DONE);
        let calls = calls.map(AtomicU32::into_inner);
        assert_eq!(calls, [0, 1]);
    }
}

#[test]
fn what_pending_words_and_rows_touch_is_not_unmapped_unnoticed() {
    type Enqueue = fn(&Rig, CUstream, u64);
    let enqueue: [Enqueue; 2] = [
        |rig, stream, address| rig.word(stream, address + G as u64, 1).unwrap(),
        |rig, stream, address| {
            let copy = rows(address + 64, G, address, 8, 8, 2);
            check(unsafe { rig.0.cuMemcpy2DAsync_v2(&copy, stream) }).unwrap();
        },
    ];
    for enqueue in enqueue {
        for rig in Rig::both() {
            let address = rig.reserve(2 * G).unwrap();
            for at in [address, address + G as u64] {
                let handle = rig.create(G).unwrap();
                rig.map(at, G, handle).unwrap();
            }
            rig.access(address, 2 * G, 3).unwrap();
            let (stream, _) = rig.held();
            enqueue(&rig, stream, address);
            // Only what lies in the second mapping is touched there.
            rig.unmap(address + G as u64, G).unwrap();
            assert_eq!(rig.query(stream), ILLEGAL);
        }
    }
}

#[test]
fn the_calls_are_recorded_and_can_fail() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let (stream, event) = (rig.stream(), rig.event());
    let (word, calls) = (Word::default(), AtomicU32::new(0));
    rig.0.clear_log();
    word.register(&rig, 3).unwrap();
    rig.wait(stream, event).unwrap();
    rig.word(stream, address, 7).unwrap();
    let copy = rows(address, 8, address + 64, 16, 4, 2);
    check(unsafe { rig.0.cuMemcpy2DAsync_v2(&copy, stream) }).unwrap();
    rig.0
        .inject(Fault::on(Call::cuLaunchHostFunc).code(OOM))
        .unwrap();
    assert_eq!(rig.launch(stream, Some(count), &calls), Err(OOM));
    assert_eq!(rig.launch(stream, None, &calls), Err(INVALID));
    let (memory, data) = (word.address() as usize, &raw const calls as usize);
    let (number, event) = (stream as usize, event as usize);
    let function = count as *const () as usize;
    let from = address + 64;
    let lines: Vec<String> = rig.0.log().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines[1..],
        [
            format!("cuMemHostGetDevicePointer_v2(address={memory:#x}, memory={memory:#x}, flags=0) = CUDA_SUCCESS"),
            format!("cuStreamWaitEvent(stream={number:#x}, event={event:#x}, flags=0) = CUDA_SUCCESS"),
            format!("cuStreamWriteValue32_v2(stream={number:#x}, address={address:#x}, value=7, flags=0) = CUDA_SUCCESS"),
            format!("cuMemcpy2DAsync_v2(copy={{2 rows of 4, from {from:#x} by 16, to {address:#x} by 8}}, stream={number:#x}) = CUDA_SUCCESS"),
            format!("cuLaunchHostFunc(stream={number:#x}, function={function:#x}, data={data:#x}) = CUDA_ERROR_OUT_OF_MEMORY"),
            format!("cuLaunchHostFunc(stream={number:#x}, function=null, data={data:#x}) = CUDA_ERROR_INVALID_VALUE"),
        ]
    );
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn a_device_whose_streams_write_no_words() {
    let unable = SimDevice::new().stream_memory_operations(false);
    let devices = [SimDevice::new(), unable];
    let rig = Rig::with(Simulation::builder().devices(devices));
    let supports = |attribute, device| {
        let mut value = 77;
        check(unsafe { rig.0.cuDeviceGetAttribute(&mut value, attribute, device) }).unwrap();
        value
    };
    let attributes = [
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1,
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V2,
    ];
    for attribute in attributes {
        assert_eq!((supports(attribute, 0), supports(attribute, 1)), (1, 0));
    }
    let (address, _) = rig.block(1);
    rig.access_of(address, G, &[grant(1, 3)]).unwrap();
    let write = |stream| check(unsafe { rig.0.cuStreamWriteValue32_v2(stream, address, 7, 0) });
    let able = rig.stream();
    write(able).unwrap();
    rig.enter(1);
    let unable = rig.stream();
    let unsupported = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    assert_eq!(write(unable), Err(unsupported));
    assert_eq!(write(std::ptr::null_mut()), Err(unsupported));
    // The stream's device counts, not the current one.
    write(able).unwrap();
    rig.fill_async(address, 9, 1, unable).unwrap();
    assert_eq!(rig.read(address, 2), Ok(vec![9, 0]));

    let said = SimDevice::new()
        .stream_memory_operations(false)
        .attribute(attributes[0], 1);
    let rig = Rig::with(Simulation::builder().device(said));
    let mut value = 77;
    check(unsafe { rig.0.cuDeviceGetAttribute(&mut value, attributes[0], 0) }).unwrap();
    assert_eq!(value, 1);
}
