//! Work in the order of a stream: waits for events, words, functions of the host.
//!
//! None of this was measured yet, but for the words that four kinds of memory take. Where the documentation leaves the
//! answer open, the case says that it is assumed.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::Mutex;

use cuda_vmm::sys::{CUdeviceptr, CUevent, CUresult, CUstream, DriverCalls};

use crate::busy::Busy;
use crate::case::{alone, apart, case, Section};
use crate::codes::{call, demand, SUCCESS};
use crate::driver::Driver;
use crate::gpu::{Gpu, UNRESERVED};
use crate::props::{READ, READ_WRITE};
use crate::registered::{Memfd, MAPPED, PORTABLE};
use crate::streams::{Event, Stream};
use crate::support::which::Which;

pub const SECTION: Section = Section {
    name: "stream_work",
    cases: &[
        case(
            "wait_for_an_event_never_recorded",
            "an event that was never recorded holds up nothing",
            |gpu| {
                let (stream, event) = (Stream::new(gpu), Event::new(gpu));
                call!(gpu, cuStreamWaitEvent(stream.raw, event.raw, 0) => SUCCESS);
                call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
            },
        ),
        case(
            "wait_with_flags",
            "the flag for captured streams is refused on another (documented), unknown ones too (assumed)",
            |gpu| {
                let (stream, event) = (Stream::new(gpu), Event::new(gpu));
                call!(gpu, cuStreamWaitEvent(stream.raw, event.raw, 1) => INVALID_VALUE);
                call!(gpu, cuStreamWaitEvent(stream.raw, event.raw, 2) => INVALID_VALUE);
            },
        ),
        apart("wait_behind_work", WAIT, wait_behind_work),
        apart("wait_for_a_wait", WAIT, wait_for_a_wait),
        apart(
            "wait_for_an_earlier_record",
            "a wait is for the last record before it, whatever is recorded later",
            wait_for_an_earlier_record,
        ),
        apart(
            "wait_for_a_destroyed_event",
            "a wait outlives its event",
            wait_for_a_destroyed_event,
        ),
        case("word_to_a_mapping", WORD, |gpu| {
            let range = gpu.reserve(1);
            let _memory = gpu.back(range.base, 1);
            words_arrive(gpu, range.base);
            words_arrive(gpu, range.end() - 8);
        }),
        case("word_to_imported_memory", WORD, |gpu| {
            let (range, view) = (gpu.reserve(1), gpu.reserve(1));
            let memory = gpu.create_exportable(1);
            gpu.map(range.base, &memory);
            gpu.grant(range.base, range.size, READ_WRITE);
            let import = gpu.import(&gpu.export(&memory), 1);
            gpu.map(view.base, &import);
            gpu.grant(view.base, view.size, READ_WRITE);
            words_arrive(gpu, view.base);
            assert_eq!(gpu.bytes(range.base, 8), PATTERN);
        }),
        case("word_to_ordinary_memory", WORD, |gpu| {
            let mut address = 0;
            call!(gpu, cuMemAlloc_v2(&mut address, 4096) => SUCCESS);
            words_arrive(gpu, address);
            call!(gpu, cuMemFree_v2(address) => SUCCESS);
        }),
        case("word_to_a_registered_memfd", WORD, |gpu| {
            let stream = Stream::new(gpu);
            let memfd = Memfd::new();
            let at = memfd.register(gpu, PORTABLE | MAPPED);
            call!(gpu, cuStreamWriteValue32_v2(stream.raw, at + 8, 0x1234_5678, 0) => SUCCESS);
            call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
            assert_eq!(memfd.other_view().word(2).load(Ordering::Acquire), 0x1234_5678);
            assert_eq!(memfd.word(1).load(Ordering::Acquire), 0);
            memfd.unregister(gpu);
        }),
        case(
            "word_without_a_fence",
            "the order of earlier writes can be given up; there are no other flags (assumed)",
            |gpu| {
                let stream = Stream::new(gpu);
                let range = gpu.reserve(1);
                let _memory = gpu.back(range.base, 1);
                call!(gpu, cuStreamWriteValue32_v2(stream.raw, range.base, 7, 1) => SUCCESS);
                call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
                assert_eq!(gpu.byte(range.base), 7);
                call!(gpu, cuStreamWriteValue32_v2(stream.raw, range.base, 8, 2) => INVALID_VALUE);
                assert_eq!(gpu.byte(range.base), 7);
            },
        ),
        // A driver that does not check these would fault, and lose the context: each in a process of its own.
        alone("word_off_a_multiple_of_4", REFUSED, |gpu| {
            let range = gpu.reserve(1);
            let _memory = gpu.back(range.base, 1);
            word_refused(gpu, range.base + 2);
            assert_eq!(gpu.bytes(range.base, 8), [0; 8]);
        }),
        alone("word_to_unmapped_addresses", REFUSED, |gpu| {
            let range = gpu.reserve(2);
            let _memory = gpu.back(range.base, 1);
            word_refused(gpu, range.at(1));
            word_refused(gpu, UNRESERVED);
        }),
        alone("word_without_access", REFUSED, |gpu| {
            let range = gpu.reserve(1);
            let memory = gpu.create(1);
            gpu.map(range.base, &memory);
            word_refused(gpu, range.base);
        }),
        alone("word_to_a_read_only_mapping", REFUSED, |gpu| {
            let range = gpu.reserve(1);
            let _memory = gpu.back(range.base, 1);
            gpu.grant(range.base, range.size, READ);
            word_refused(gpu, range.base);
            assert_eq!(gpu.byte(range.base), 0);
        }),
        alone("word_to_memory_not_registered", REFUSED, |gpu| {
            let memfd = Memfd::new();
            word_refused(gpu, memfd.address());
            assert_eq!(memfd.word(0).load(Ordering::Acquire), 0);
        }),
        apart(
            "word_behind_work",
            "a word is written when the stream comes to it",
            word_behind_work,
        ),
        case(
            "functions_in_order",
            "functions of the host are called in the order of the stream, behind its copies",
            functions_in_order,
        ),
        case(
            "no_function",
            "a null function is refused (assumed)",
            |gpu| {
                let stream = Stream::new(gpu);
                call!(gpu, cuLaunchHostFunc(stream.raw, None, ptr::null_mut()) => INVALID_VALUE);
                call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
            },
        ),
        apart(
            "function_behind_work",
            "a function of the host is called when the stream comes to it, and what is behind it waits for it",
            function_behind_work,
        ),
        alone(
            "function_that_calls_the_driver",
            "a function of the host may not call the driver (documented, not guaranteed)",
            function_that_calls_the_driver,
        ),
    ],
};

const WAIT: &str =
    "a stream that waits for an event goes on when what was before the record is done";
const WORD: &str = "a stream writes words to any memory that its device may write";
const REFUSED: &str = "a word that cannot be written is refused before anything runs (assumed)";

/// What [`words_arrive`] leaves.
const PATTERN: [u8; 8] = [0x78, 0x56, 0x34, 0x12, 0xef, 0xcd, 0xab, 0x89];

/// Two words are written, and read back.
fn words_arrive(gpu: &Gpu, at: CUdeviceptr) {
    let stream = Stream::new(gpu);
    call!(gpu, cuStreamWriteValue32_v2(stream.raw, at, 0x1234_5678, 0) => SUCCESS);
    call!(gpu, cuStreamWriteValue32_v2(stream.raw, at + 4, 0x89ab_cdef, 0) => SUCCESS);
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
    assert_eq!(gpu.bytes(at, 8), PATTERN);
}

/// A word there is refused, and the context stays sound.
fn word_refused(gpu: &Gpu, at: CUdeviceptr) {
    let stream = Stream::new(gpu);
    call!(gpu, cuStreamWriteValue32_v2(stream.raw, at, 7, 0) => INVALID_VALUE);
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
    call!(gpu, cuCtxSynchronize() => SUCCESS);
}

fn wait_behind_work(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let (stream, event) = (Stream::new(&gpu), Event::new(&gpu));
    let busy = Busy::start(&gpu);
    call!(gpu, cuEventRecord(event.raw, busy.stream) => SUCCESS);
    call!(gpu, cuStreamWaitEvent(stream.raw, event.raw, 0) => SUCCESS);
    call!(gpu, cuMemsetD8Async(busy.range.base, 0x77, 4, stream.raw) => SUCCESS);
    call!(gpu, cuStreamQuery(stream.raw) => NOT_READY);
    demand("cuStreamSynchronize", busy.finish(), SUCCESS);
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
    assert_eq!(gpu.bytes(busy.range.base, 5), [0x77, 0x77, 0x77, 0x77, 9]);
}

fn wait_for_a_wait(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let (one, other) = (Stream::new(&gpu), Stream::new(&gpu));
    let (first, second) = (Event::new(&gpu), Event::new(&gpu));
    let busy = Busy::start(&gpu);
    let base = busy.range.base;
    call!(gpu, cuEventRecord(first.raw, busy.stream) => SUCCESS);
    call!(gpu, cuStreamWaitEvent(one.raw, first.raw, 0) => SUCCESS);
    call!(gpu, cuMemsetD8Async(base, 0x77, 4, one.raw) => SUCCESS);
    call!(gpu, cuEventRecord(second.raw, one.raw) => SUCCESS);
    call!(gpu, cuStreamWaitEvent(other.raw, second.raw, 0) => SUCCESS);
    call!(gpu, cuMemcpyDtoDAsync_v2(base + 8, base, 4, other.raw) => SUCCESS);
    call!(gpu, cuEventQuery(second.raw) => NOT_READY);
    call!(gpu, cuStreamQuery(other.raw) => NOT_READY);
    demand("cuStreamSynchronize", busy.finish(), SUCCESS);
    call!(gpu, cuStreamSynchronize(other.raw) => SUCCESS);
    call!(gpu, cuEventQuery(second.raw) => SUCCESS);
    assert_eq!(gpu.bytes(base + 7, 6), [9, 0x77, 0x77, 0x77, 0x77, 9]);
}

fn wait_for_an_earlier_record(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let (idle, stream) = (Stream::new(&gpu), Stream::new(&gpu));
    let event = Event::new(&gpu);
    let busy = Busy::start(&gpu);
    call!(gpu, cuEventRecord(event.raw, idle.raw) => SUCCESS);
    call!(gpu, cuStreamWaitEvent(stream.raw, event.raw, 0) => SUCCESS);
    call!(gpu, cuEventRecord(event.raw, busy.stream) => SUCCESS);
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
    call!(gpu, cuEventQuery(event.raw) => NOT_READY);
    demand("cuStreamSynchronize", busy.finish(), SUCCESS);
    call!(gpu, cuEventQuery(event.raw) => SUCCESS);
}

fn wait_for_a_destroyed_event(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let stream = Stream::new(&gpu);
    let busy = Busy::start(&gpu);
    let mut event: CUevent = ptr::null_mut();
    call!(gpu, cuEventCreate(&mut event, 2) => SUCCESS);
    call!(gpu, cuEventRecord(event, busy.stream) => SUCCESS);
    call!(gpu, cuStreamWaitEvent(stream.raw, event, 0) => SUCCESS);
    call!(gpu, cuEventDestroy_v2(event) => SUCCESS);
    call!(gpu, cuStreamQuery(stream.raw) => NOT_READY);
    demand("cuStreamSynchronize", busy.finish(), SUCCESS);
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
}

fn word_behind_work(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let memfd = Memfd::new();
    let at = memfd.register(&gpu, PORTABLE | MAPPED);
    let busy = Busy::start(&gpu);
    call!(gpu, cuStreamWriteValue32_v2(busy.stream, at, 7, 0) => SUCCESS);
    assert_eq!(memfd.word(0).load(Ordering::Acquire), 0);
    call!(gpu, cuStreamQuery(busy.stream) => NOT_READY);
    demand("cuStreamSynchronize", busy.finish(), SUCCESS);
    assert_eq!(memfd.word(0).load(Ordering::Acquire), 7);
    memfd.unregister(&gpu);
}

/// What a host function notes: the bytes that it finds.
struct Notes {
    look_at: *const u8,
    seen: Mutex<Vec<u8>>,
}

/// # Safety
///
/// The data is a `Notes`.
unsafe extern "C" fn note(data: *mut c_void) {
    let notes = unsafe { &*data.cast::<Notes>() };
    let byte = unsafe { notes.look_at.read_volatile() };
    notes.seen.lock().expect("no function panics").push(byte);
}

fn functions_in_order(gpu: &Gpu) {
    let stream = Stream::new(gpu);
    let range = gpu.reserve(1);
    let _memory = gpu.back(range.base, 1);
    let mut byte = 0_u8;
    let to = (&raw mut byte).cast::<c_void>();
    let notes = Notes {
        look_at: to.cast(),
        seen: Mutex::default(),
    };
    let data = (&raw const notes).cast_mut().cast();
    for value in 1..4 {
        call!(gpu, cuMemsetD8Async(range.base, value, 1, stream.raw) => SUCCESS);
        call!(gpu, cuMemcpyDtoHAsync_v2(to, range.base, 1, stream.raw) => SUCCESS);
        call!(gpu, cuLaunchHostFunc(stream.raw, Some(note), data) => SUCCESS);
    }
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
    assert_eq!(*notes.seen.lock().expect("no function panics"), [1, 2, 3]);
}

fn function_behind_work(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let busy = Busy::start(&gpu);
    let memfd = Memfd::new();
    let at = memfd.register(&gpu, PORTABLE | MAPPED);
    let notes = Notes {
        look_at: memfd.at(0).cast(),
        seen: Mutex::default(),
    };
    let data = (&raw const notes).cast_mut().cast();
    call!(gpu, cuLaunchHostFunc(busy.stream, Some(note), data) => SUCCESS);
    call!(gpu, cuStreamWriteValue32_v2(busy.stream, at, 5, 0) => SUCCESS);
    call!(gpu, cuLaunchHostFunc(busy.stream, Some(note), data) => SUCCESS);
    assert_eq!(*notes.seen.lock().expect("no function panics"), []);
    call!(gpu, cuStreamQuery(busy.stream) => NOT_READY);
    demand("cuStreamSynchronize", busy.finish(), SUCCESS);
    assert_eq!(*notes.seen.lock().expect("no function panics"), [0, 5]);
    memfd.unregister(&gpu);
}

/// What a host function asks the driver, and is answered.
struct Question<'g> {
    calls: &'g dyn DriverCalls,
    stream: CUstream,
    answer: Mutex<Option<CUresult>>,
}

/// # Safety
///
/// The data is a `Question`.
unsafe extern "C" fn ask(data: *mut c_void) {
    let question = unsafe { &*data.cast::<Question<'_>>() };
    let answer = unsafe { question.calls.cuStreamQuery(question.stream) };
    *question.answer.lock().expect("no function panics") = Some(answer);
}

fn function_that_calls_the_driver(gpu: &Gpu) {
    let stream = Stream::new(gpu);
    let question = Question {
        calls: gpu.calls(),
        stream: stream.raw,
        answer: Mutex::default(),
    };
    let data = (&raw const question).cast_mut().cast();
    call!(gpu, cuLaunchHostFunc(stream.raw, Some(ask), data) => SUCCESS);
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
    let answer = question.answer.lock().expect("no function panics").take();
    let answer = answer.expect("the function was called");
    demand("cuStreamQuery", answer, crate::codes::NOT_PERMITTED);
    call!(gpu, cuStreamQuery(stream.raw) => SUCCESS);
}
