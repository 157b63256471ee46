//! Acknowledgements: by the CPU where nothing runs, else by the GPU behind what runs.

use std::ffi::c_void;
use std::sync::Arc;

use super::stream::wait_for;
use super::Attached;
use crate::device::Device;
use crate::driver::Calls;
use crate::error::Result;
use crate::pool::control::ControlMemory;
use crate::pool::entry::{done_word, Entry, Scope, DONE_OFFSET};
use crate::sync::lock;
use crate::sys::CUstream;

/// An acknowledgement, and the streams whose work comes before it.
pub(super) struct Pending {
    pub(super) slot: u32,
    pub(super) generation: u64,
    pub(super) scope: Scope,
    pub(super) streams: Vec<(Device, usize)>,
}

/// One for the driver to make.
struct ByHost {
    lane: Arc<ControlMemory>,
    slot: u32,
    generation: u64,
    scope: Scope,
}

impl Attached {
    /// Acknowledges behind the work of the streams, in one of these ways, the first that works: a word that the device
    /// writes in stream order; a host function in stream order; waiting here. Where even waiting fails the slice stays
    /// held, and it is tried again with the next acknowledgement, until the session ends.
    pub(super) fn acknowledge(&self, pending: Pending) {
        let late = std::mem::take(&mut *lock(&self.late));
        for pending in late.into_iter().chain([pending]) {
            self.entry(pending.slot).close(pending.generation);
            if let Some(still) = self.try_acknowledge(pending) {
                lock(&self.late).push(still);
            }
        }
    }

    fn try_acknowledge(&self, mut pending: Pending) -> Option<Pending> {
        // The last stream carries the word; work of others is waited for here.
        while pending.streams.len() > 1 {
            let (device, stream) = pending.streams.remove(0);
            if !is_over(wait_for(&device, stream, None)) {
                pending.streams.push((device, stream));
                return Some(pending);
            }
        }
        if let Some((device, stream)) = pending.streams.first() {
            if self.enqueue(device, *stream, &pending).is_ok() {
                return None;
            }
            if !is_over(wait_for(device, *stream, None)) {
                return Some(pending);
            }
        }
        let entry = self.entry(pending.slot);
        entry.finish(pending.generation, pending.scope);
        None
    }

    /// Enqueues the acknowledgement. Where this fails, nothing will be written by the device.
    fn enqueue(&self, device: &Device, stream: usize, pending: &Pending) -> Result<()> {
        self.streams.note(device);
        let stream = stream as CUstream;
        let mut enqueued = false;
        let went = self.driver().with_context(device.raw(), |calls| {
            let written = match self.streams.writes_words() {
                true => self.write_word(calls, device, stream, pending),
                false => Ok(false),
            };
            enqueued = match written {
                Ok(true) => true,
                _ => self.call_host(calls, stream, pending).map(|()| true)?,
            };
            Ok(())
        });
        match enqueued {
            true => Ok(()),
            false => went,
        }
    }

    /// `false` where the device cannot.
    fn write_word(
        &self,
        calls: &Calls,
        device: &Device,
        stream: CUstream,
        pending: &Pending,
    ) -> Result<bool> {
        let words = self.streams.words(calls, device)?;
        let entry = pending.slot as usize * size_of::<Entry>();
        let address = words + (entry + DONE_OFFSET) as u64;
        let word = done_word(pending.generation, pending.scope);
        match calls.stream_write_value(stream, address, word) {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_supported() => {
                self.streams.writes_no_words();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn call_host(&self, calls: &Calls, stream: CUstream, pending: &Pending) -> Result<()> {
        let by_host = Box::new(ByHost {
            lane: self.streams.lane().clone(),
            slot: pending.slot,
            generation: pending.generation,
            scope: pending.scope,
        });
        let by_host = Box::into_raw(by_host);
        let launched = calls.launch_host_function(stream, finish_by_host, by_host.cast());
        if launched.is_err() {
            // The driver did not take it.
            drop(taken_back(by_host.cast()));
        }
        launched
    }
}

/// Whether no work of a stream is left: it was waited for, or its context is lost.
fn is_over(waited: Result<()>) -> bool {
    match waited {
        Ok(()) => true,
        Err(error) => error.is_context_lost() || error.driver_is_gone(),
    }
}

/// Called by the driver, once, when the stream comes to it.
extern "C" fn finish_by_host(by_host: *mut c_void) {
    let by_host = taken_back(by_host);
    let entry = &(*by_host.lane).as_ref()[by_host.slot as usize];
    entry.finish(by_host.generation, by_host.scope);
}

#[allow(unsafe_code)]
fn taken_back(by_host: *mut c_void) -> Box<ByHost> {
    // SAFETY: made by `Box::into_raw` in `call_host`, which passes it on once: to the driver, or here.
    unsafe { Box::from_raw(by_host.cast()) }
}
