//! Streams and events.

use std::ptr;

use cuda_vmm::sys::{CUevent, CUevent_flags, CUstream, CUstream_flags};

use crate::busy::Busy;
use crate::case::{apart, case, Section};
use crate::codes::{call, demand, SUCCESS};
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::support::which::Which;

pub const SECTION: Section = Section {
    name: "streams",
    cases: &[
        case(
            "fresh_stream",
            "a stream to which nothing was given is done",
            |gpu| {
                let stream = Stream::new(gpu);
                call!(gpu, cuStreamQuery(stream.raw) => SUCCESS);
                call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
            },
        ),
        case(
            "default_streams",
            "the default streams have no handle of their own: null, 1 and 2",
            |gpu| {
                for number in 0..3_usize {
                    let stream = number as CUstream;
                    call!(gpu, cuStreamQuery(stream) => SUCCESS);
                    call!(gpu, cuStreamSynchronize(stream) => SUCCESS);
                }
            },
        ),
        case(
            "stream_flag_2",
            "flags that no stream has are refused",
            |gpu| {
                let mut stream: CUstream = ptr::null_mut();
                call!(gpu, cuStreamCreate(&mut stream, 2) => INVALID_VALUE);
                assert_eq!(stream, ptr::null_mut());
            },
        ),
        case(
            "fresh_event",
            "an event that was never recorded has happened",
            |gpu| {
                let event = Event::new(gpu);
                call!(gpu, cuEventQuery(event.raw) => SUCCESS);
                call!(gpu, cuEventSynchronize(event.raw) => SUCCESS);
            },
        ),
        case(
            "event_flag_8",
            "flags that no event has are refused",
            |gpu| {
                let mut event: CUevent = ptr::null_mut();
                call!(gpu, cuEventCreate(&mut event, 8) => INVALID_VALUE);
                assert_eq!(event, ptr::null_mut());
            },
        ),
        case(
            "event_interprocess_with_timing",
            "an event for other processes must be one without timing",
            |gpu| {
                let mut event: CUevent = ptr::null_mut();
                let flags = CUevent_flags::CU_EVENT_INTERPROCESS.0;
                call!(gpu, cuEventCreate(&mut event, flags) => INVALID_VALUE);
                assert_eq!(event, ptr::null_mut());
            },
        ),
        case("event_recorded_on_a_stream", RECORDED, |gpu| {
            let (stream, event) = (Stream::new(gpu), Event::new(gpu));
            call!(gpu, cuEventRecord(event.raw, stream.raw) => SUCCESS);
            call!(gpu, cuEventSynchronize(event.raw) => SUCCESS);
            call!(gpu, cuEventQuery(event.raw) => SUCCESS);
        }),
        case("event_recorded_on_the_default_stream", RECORDED, |gpu| {
            let event = Event::new(gpu);
            call!(gpu, cuEventRecord(event.raw, ptr::null_mut()) => SUCCESS);
            call!(gpu, cuEventSynchronize(event.raw) => SUCCESS);
            call!(gpu, cuEventQuery(event.raw) => SUCCESS);
        }),
        case("event_recorded_again", RECORDED, |gpu| {
            let (one, two, event) = (Stream::new(gpu), Stream::new(gpu), Event::new(gpu));
            call!(gpu, cuEventRecord(event.raw, one.raw) => SUCCESS);
            call!(gpu, cuEventRecord(event.raw, two.raw) => SUCCESS);
            call!(gpu, cuEventSynchronize(event.raw) => SUCCESS);
        }),
        case("event_outlives_its_stream", RECORDED, |gpu| {
            let event = Event::new(gpu);
            let stream = Stream::new(gpu);
            call!(gpu, cuEventRecord(event.raw, stream.raw) => SUCCESS);
            drop(stream);
            call!(gpu, cuEventSynchronize(event.raw) => SUCCESS);
            call!(gpu, cuEventQuery(event.raw) => SUCCESS);
        }),
        case(
            "copies_on_a_stream",
            "what was given to a stream is done when it was waited for",
            |gpu| {
                let stream = Stream::new(gpu);
                let range = gpu.reserve(2);
                let _memory = [gpu.back(range.base, 1), gpu.back(range.at(1), 1)];
                let at = range.at(1) - 5;
                let mut bytes = [0_u8; 10];
                call!(gpu, cuMemsetD8Async(at, 0x3c, 5, stream.raw) => SUCCESS);
                call!(gpu, cuMemcpyDtoDAsync_v2(range.at(1), at, 5, stream.raw) => SUCCESS);
                call!(gpu, cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), at, 10, stream.raw) => SUCCESS);
                call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
                assert_eq!(bytes, [0x3c; 10]);
            },
        ),
        case(
            "nothing_on_a_stream",
            "work of no bytes is accepted",
            |gpu| {
                let stream = Stream::new(gpu);
                let range = gpu.reserve(1);
                call!(gpu, cuMemsetD8Async(range.base, 1, 0, stream.raw) => SUCCESS);
                call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
            },
        ),
        apart(
            "event_behind_work",
            "an event behind work that runs has not happened; behind work that ended it has",
            event_behind_work,
        ),
        apart(
            "busy_beside_idle",
            "work on one stream does not make another busy",
            busy_beside_idle,
        ),
    ],
};

const RECORDED: &str = "an event that was recorded happens, whatever becomes of its stream";

/// A stream of its own, destroyed when dropped.
pub struct Stream<'g> {
    gpu: &'g Gpu,
    pub raw: CUstream,
}

impl<'g> Stream<'g> {
    pub fn new(gpu: &'g Gpu) -> Self {
        let mut raw = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        call!(gpu, cuStreamCreate(&mut raw, flags) => SUCCESS);
        Stream { gpu, raw }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let _ = unsafe { self.gpu.calls().cuStreamDestroy_v2(self.raw) };
    }
}

/// An event, destroyed when dropped.
pub struct Event<'g> {
    gpu: &'g Gpu,
    pub raw: CUevent,
}

impl<'g> Event<'g> {
    pub fn new(gpu: &'g Gpu) -> Self {
        let mut raw = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        call!(gpu, cuEventCreate(&mut raw, flags) => SUCCESS);
        Event { gpu, raw }
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        let _ = unsafe { self.gpu.calls().cuEventDestroy_v2(self.raw) };
    }
}

fn event_behind_work(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let event = Event::new(&gpu);
    let busy = Busy::start(&gpu);
    call!(gpu, cuEventRecord(event.raw, busy.stream) => SUCCESS);
    call!(gpu, cuEventQuery(event.raw) => NOT_READY);
    demand("cuStreamSynchronize", busy.finish(), SUCCESS);
    call!(gpu, cuEventQuery(event.raw) => SUCCESS);
}

fn busy_beside_idle(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let idle = Stream::new(&gpu);
    let busy = Busy::start(&gpu);
    call!(gpu, cuStreamQuery(busy.stream) => NOT_READY);
    call!(gpu, cuStreamQuery(idle.raw) => SUCCESS);
    demand("cuStreamSynchronize", busy.finish(), SUCCESS);
    call!(gpu, cuStreamQuery(busy.stream) => SUCCESS);
}
