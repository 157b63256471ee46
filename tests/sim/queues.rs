//! Streams that wait for each other, functions of the host, words and rows: in both modes, and when something is lost.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::*;

use crate::rig::*;

const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;
const NO_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
const DONE: CUresult = CUresult::CUDA_SUCCESS;

impl Rig {
    fn query(&self, stream: CUstream) -> CUresult {
        unsafe { self.0.cuStreamQuery(stream) }
    }

    fn record(&self, event: CUevent, stream: CUstream) {
        check(unsafe { self.0.cuEventRecord(event, stream) }).unwrap();
    }

    fn wait(&self, stream: CUstream, event: CUevent) -> Result {
        check(unsafe { self.0.cuStreamWaitEvent(stream, event, 0) })
    }

    fn word(&self, stream: CUstream, address: u64, value: u32) -> Result {
        check(unsafe { self.0.cuStreamWriteValue32_v2(stream, address, value, 0) })
    }

    fn launch<T>(&self, stream: CUstream, function: CUhostFn, data: &T) -> Result {
        let data = (&raw const *data).cast_mut().cast();
        check(unsafe { self.0.cuLaunchHostFunc(stream, function, data) })
    }

    fn destroy(&self, stream: CUstream) {
        check(unsafe { self.0.cuStreamDestroy_v2(stream) }).unwrap();
    }

    /// A stream with an event recorded on it that is not reached before the stream is released.
    fn held(&self) -> (CUstream, CUevent) {
        let (stream, event) = (self.stream(), self.event());
        assert!(self.0.hold_stream(stream));
        self.record(event, stream);
        (stream, event)
    }
}

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

/// A word of the host's own, registered.
struct Word(Box<[AtomicU32; 4]>);

impl Word {
    fn address(&self) -> *mut c_void {
        self.0.as_ptr().cast_mut().cast()
    }

    fn register(&self, rig: &Rig, flags: u32) -> Result<u64> {
        let (memory, mut at) = (self.address(), 0);
        check(unsafe { rig.0.cuMemHostRegister_v2(memory, 16, flags) })?;
        check(unsafe { rig.0.cuMemHostGetDevicePointer_v2(&mut at, memory, 0) })?;
        Ok(at)
    }

    fn unregister(&self, rig: &Rig) {
        check(unsafe { rig.0.cuMemHostUnregister(self.address()) }).unwrap();
    }
}

#[test]
fn devices_reach_registered_memory_at_its_own_address() {
    for rig in Rig::both() {
        let word = Word(Box::default());
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

fn rows(
    to: u64,
    to_pitch: usize,
    from: u64,
    from_pitch: usize,
    width: usize,
    count: usize,
) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: from_pitch,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: count,
        ..Default::default()
    }
}

#[test]
fn rows_are_copied_in_both_modes() {
    for rig in Rig::both() {
        let (address, _) = rig.block(2);
        let numbers: Vec<u8> = (0..32).collect();
        rig.write(address, &numbers).unwrap();
        let to = address + G as u64 - 4;
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 1,
            srcY: 1,
            ..rows(to, 5, address, 8, 3, 3)
        };
        let stream = rig.stream();
        check(unsafe { rig.0.cuMemcpy2DAsync_v2(&copy, stream) }).unwrap();
        let copied = [9, 10, 11, 0, 0, 17, 18, 19, 0, 0, 25, 26, 27];
        assert_eq!(rig.read(to, 13), Ok(copied.to_vec()));

        let unified = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            srcDevice: numbers.as_ptr() as u64,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            ..rows(to, 2, 0, 16, 2, 2)
        };
        check(unsafe { rig.0.cuMemcpy2DAsync_v2(&unified, stream) }).unwrap();
        assert_eq!(rig.read(to, 5), Ok(vec![0, 1, 16, 17, 0]));
    }
}

#[test]
fn numbers_of_rows_that_reach_nowhere() {
    for rig in Rig::both() {
        let (address, _) = rig.block(1);
        let stream = rig.stream();
        let refused = |copy: CUDA_MEMCPY2D| {
            let code = unsafe { rig.0.cuMemcpy2DAsync_v2(&copy, stream) };
            assert_eq!(code, INVALID, "{copy:?}");
        };
        let good = rows(address, 8, address + 64, 8, 8, 2);
        let huge = usize::MAX;
        refused(CUDA_MEMCPY2D {
            Height: huge,
            ..good
        });
        refused(CUDA_MEMCPY2D { srcY: huge, ..good });
        refused(CUDA_MEMCPY2D {
            dstY: huge / 8,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            srcXInBytes: huge,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            WidthInBytes: huge,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            srcPitch: huge,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            dstPitch: 1 << 31,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            dstDevice: u64::MAX - 8,
            ..good
        });
        let null = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            ..good
        };
        refused(null);
        let array = CUDA_MEMCPY2D {
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            ..good
        };
        let code = unsafe { rig.0.cuMemcpy2DAsync_v2(&array, stream) };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        let code = unsafe { rig.0.cuMemcpy2DAsync_v2(std::ptr::null(), stream) };
        assert_eq!(code, INVALID);
        assert_eq!(rig.read(address, 128), Ok(vec![0; 128]));
        assert_eq!(rig.0.misuses(), []);
    }
}

#[test]
fn the_calls_are_recorded_and_can_fail() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let (stream, event) = (rig.stream(), rig.event());
    let (word, calls) = (Word(Box::default()), AtomicU32::new(0));
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
