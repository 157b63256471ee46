//! Streams and events, and work in the order of a stream.
//!
//! # Safety
//!
//! An asynchronous copy uses the slice, and a host function its data, until the stream has passed it. The caller waits
//! for the stream before the slice, the data, or the mapping at the other end goes.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::{driver_call, Calls};
use crate::driver::answers;
use crate::error::{Attempt, Result};
use crate::sys::{
    CUevent, CUevent_flags, CUevent_wait_flags, CUmemorytype, CUstream, CUstreamWriteValue_flags,
    CUstream_flags, Call, CUDA_MEMCPY2D,
};

/// A stream that was created here. The driver lets every thread use it; the pointer is never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream(usize);

/// An event that was created here. The driver lets every thread use it; the pointer is never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event(usize);

impl Stream {
    /// The pointer that the driver knows it by.
    pub(crate) fn raw(self) -> CUstream {
        self.0 as CUstream
    }
}

impl Event {
    /// The pointer that the driver knows it by.
    pub(crate) fn raw(self) -> CUevent {
        self.0 as CUevent
    }
}

impl Calls {
    /// Creates a stream that waits for no other one.
    pub(crate) fn stream_create(&self) -> Result<Stream> {
        let mut stream: CUstream = null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        driver_call!(self.cuStreamCreate(&mut stream, flags), Attempt::Plain)?;
        answers::stream(stream).map(|stream| Stream(stream as usize))
    }

    pub(crate) fn stream_destroy(&self, stream: Stream) -> Result<()> {
        driver_call!(self.cuStreamDestroy_v2(stream.raw()), Attempt::Plain)
    }

    pub(crate) fn stream_wait(&self, stream: Stream) -> Result<()> {
        self.stream_synchronize(stream.raw())
    }
}

#[allow(dead_code)]
impl Calls {
    /// Creates an event without a time. Needs a current context.
    pub(crate) fn event_create(&self) -> Result<Event> {
        let mut event: CUevent = null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        driver_call!(self.cuEventCreate(&mut event, flags), Attempt::Plain)?;
        answers::event(event).map(|event| Event(event as usize))
    }

    /// Destroys an event, whether it was passed or not.
    pub(crate) fn event_destroy(&self, event: Event) -> Result<()> {
        driver_call!(self.cuEventDestroy_v2(event.raw()), Attempt::Plain)
    }

    /// Records the event behind what the stream has been given until now.
    pub(crate) fn event_record(&self, event: Event, stream: CUstream) -> Result<()> {
        driver_call!(self.cuEventRecord(event.raw(), stream), Attempt::Plain)
    }

    /// Waits until the event's last record is passed.
    pub(crate) fn event_wait(&self, event: Event) -> Result<()> {
        self.event_synchronize(event.raw())
    }

    /// Whether the event's last record is passed.
    pub(crate) fn event_is_passed(&self, event: Event) -> Result<bool> {
        self.event_is_done(event.raw())
    }

    /// Has the stream wait for the event's last record before it goes on. Needs a current context.
    pub(crate) fn stream_wait_event(&self, stream: CUstream, event: Event) -> Result<()> {
        let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT.0;
        driver_call!(
            self.cuStreamWaitEvent(stream, event.raw(), flags),
            Attempt::Plain
        )
    }

    /// Writes a word behind all earlier writes of the stream.
    pub(crate) fn stream_write_value(
        &self,
        stream: CUstream,
        address: u64,
        value: u32,
    ) -> Result<()> {
        let flags = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT.0;
        let size = size_of::<u32>();
        driver_call!(
            self.cuStreamWriteValue32_v2(stream, address, value, flags),
            Attempt::Range { address, size }
        )
    }

    /// Has the driver call a function when the stream comes to it. The function must not call the driver. It is not
    /// called if the context is lost.
    pub(crate) fn launch_host_function(
        &self,
        stream: CUstream,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Result<()> {
        driver_call!(
            self.cuLaunchHostFunc(stream, Some(function), data),
            Attempt::Plain
        )
    }

    /// Copies between addresses of devices when the stream comes to it.
    pub(crate) fn enqueue_copy(
        &self,
        to: u64,
        from: u64,
        size: usize,
        stream: CUstream,
    ) -> Result<()> {
        driver_call!(
            self.cuMemcpyDtoDAsync_v2(to, from, size, stream),
            Attempt::Range { address: to, size }
        )
    }

    /// Copies rows of `width` bytes between addresses of devices when the stream comes to it. A pitch is the number of
    /// bytes from one row to the next.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn enqueue_copy_rows(
        &self,
        to: u64,
        to_pitch: usize,
        from: u64,
        from_pitch: usize,
        width: usize,
        rows: usize,
        stream: CUstream,
    ) -> Result<()> {
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from,
            srcPitch: from_pitch,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to,
            dstPitch: to_pitch,
            WidthInBytes: width,
            Height: rows,
            ..Default::default()
        };
        driver_call!(
            self.cuMemcpy2DAsync_v2(&copy, stream),
            Attempt::Range {
                address: to,
                size: width.saturating_mul(rows)
            }
        )
    }

    /// Copies a slice to a device when the stream comes to it. The caller waits for the stream before the slice goes.
    pub(crate) fn enqueue_from_slice(&self, to: u64, from: &[u8], stream: CUstream) -> Result<()> {
        let size = from.len();
        driver_call!(
            self.cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), size, stream),
            Attempt::Range { address: to, size }
        )
    }

    /// Copies from a device to a slice when the stream comes to it. The caller waits for the stream before it reads the
    /// slice, and before the slice goes.
    pub(crate) fn enqueue_to_slice(
        &self,
        to: &mut [u8],
        from: u64,
        stream: CUstream,
    ) -> Result<()> {
        let size = to.len();
        driver_call!(
            self.cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, size, stream),
            Attempt::Range {
                address: from,
                size
            }
        )
    }
}

#[cfg(all(test, not(shuttle), feature = "sim"))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::driver::Driver;
    use crate::error::Error;
    use crate::sim::Simulation;
    use crate::{Access, AllocationProps, Reservation};

    const G: usize = 2 << 20;

    /// # Safety
    ///
    /// The data is an `AtomicU32`.
    unsafe extern "C" fn count(data: *mut c_void) {
        // SAFETY: as above.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn work_is_done_in_the_order_of_streams_that_wait() {
        let sim = Simulation::new();
        let driver = Driver::simulated(&sim).unwrap();
        let device = driver.device(0).unwrap();
        let mut range = Reservation::builder(2 * G)
            .access(&device, Access::ReadWrite)
            .reserve(&driver)
            .unwrap();
        range.map(0, 2 * G, &AllocationProps::on(&device)).unwrap();
        let (base, other) = (range.base(), range.base() + G as u64);
        let word = Box::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let memory: *mut c_void = word.as_ptr().cast_mut().cast();
        let calls_made = AtomicU32::new(0);
        let data = (&raw const calls_made).cast_mut().cast();
        let numbers: Vec<u8> = (0..16).collect();
        let mut back = [0_u8; 8];

        let work = |calls: &Calls| {
            calls.register_shared(memory, 8)?;
            let at = calls.host_device_pointer(memory)?;
            assert_eq!(at, memory as u64);
            let (one, two) = (calls.stream_create()?, calls.stream_create()?);
            let event = calls.event_create()?;
            assert!(sim.hold_stream(one.raw()));
            calls.enqueue_from_slice(base, &numbers, one.raw())?;
            calls.enqueue_copy(base + 16, base, 16, one.raw())?;
            calls.event_record(event, one.raw())?;
            calls.stream_wait_event(two.raw(), event)?;
            calls.enqueue_copy_rows(other, 4, base + 1, 16, 4, 2, two.raw())?;
            calls.enqueue_to_slice(&mut back, other, two.raw())?;
            calls.launch_host_function(two.raw(), count, data)?;
            calls.stream_write_value(two.raw(), at + 4, 7)?;
            assert!(!calls.event_is_passed(event)?);
            assert_eq!(calls_made.load(Ordering::SeqCst), 0);
            assert!(sim.release_stream(one.raw()));
            calls.event_wait(event)?;
            assert!(calls.event_is_passed(event)?);
            calls.stream_wait(two)?;
            assert_eq!(calls_made.load(Ordering::SeqCst), 1);
            assert_eq!(word[1].load(Ordering::Acquire), 7);
            calls.event_destroy(event)?;
            calls.stream_destroy(one)?;
            calls.stream_destroy(two)?;
            calls.unregister_shared(memory)
        };
        driver.with_context(device.raw(), work).unwrap();
        assert_eq!(back, [1, 2, 3, 4, 1, 2, 3, 4]);
        range.close().unwrap();
        let left = sim.snapshot();
        assert!(left.holds_no_memory(), "{left}");
        assert_eq!((left.streams, left.events), (0, 0));
        assert_eq!(sim.misuses(), []);
    }

    #[test]
    fn answers_that_cannot_be_so() {
        let error = answers::event(null_mut()).unwrap_err();
        assert!(matches!(error, Error::Disagreement { .. }), "{error}");
        let error = answers::device_pointer(0).unwrap_err();
        assert!(matches!(error, Error::Disagreement { .. }), "{error}");
        assert_eq!(answers::device_pointer(8).unwrap(), 8);
    }
}
