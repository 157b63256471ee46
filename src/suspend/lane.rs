//! A stream for the copies of one operation, on one device.

use std::cell::Cell;

use crate::device::Device;
use crate::driver::{Calls, Driver, Stream};
use crate::error::{Error, Result};

/// A stream of an operation's own. The context of its device is current wherever it is used.
///
/// It is [ended](Lane::end) before anything that its copies use goes.
pub(super) struct Lane<'a> {
    calls: &'a Calls,
    stream: Stream,
    /// Whether all that was enqueued is done.
    done: Cell<bool>,
    destroyed: Cell<bool>,
}

impl<'a> Lane<'a> {
    pub(super) fn open(calls: &'a Calls) -> Result<Lane<'a>> {
        let stream = calls.stream_create()?;
        Ok(Lane {
            calls,
            stream,
            done: Cell::new(false),
            destroyed: Cell::new(false),
        })
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    /// Waits for all that was enqueued, and destroys the stream. Each is tried twice, as there is no later time for it;
    /// a failure is one all the same, since the copies are then in doubt.
    pub(super) fn end(&self) -> Result<()> {
        if self.destroyed.get() {
            return Ok(());
        }
        let mut failures = Vec::new();
        let wait = || self.calls.stream_wait(self.stream);
        let destroy = || self.calls.stream_destroy(self.stream);
        twice(&self.done, wait, &mut failures);
        twice(&self.destroyed, destroy, &mut failures);
        Error::first_of(failures)
    }
}

fn twice(done: &Cell<bool>, attempt: impl Fn() -> Result<()>, failures: &mut Vec<Error>) {
    for _ in 0..2 {
        if !done.get() {
            match attempt() {
                Ok(()) => done.set(true),
                Err(error) => failures.push(error),
            }
        }
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        // A driver of the caller's own making may panic: what was enqueued must not outlive what it uses.
        if std::thread::panicking() {
            let _ = self.end();
        }
    }
}

/// The streams of an operation that copies on several devices.
pub(super) struct Lanes<'a> {
    driver: &'a Driver,
    open: Vec<(Device, Option<Lane<'a>>)>,
}

impl<'a> Lanes<'a> {
    pub(super) fn new(driver: &'a Driver) -> Self {
        Lanes {
            driver,
            open: Vec::new(),
        }
    }

    /// Enqueues something on a device's stream, which is made when it is first needed.
    pub(super) fn enqueue(
        &mut self,
        ordinal: u32,
        work: impl FnOnce(&Calls, Stream) -> Result<()>,
    ) -> Result<()> {
        let is_it = |(device, _): &(Device, _)| device.ordinal() == ordinal;
        let at = match self.open.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.open.push((self.driver.device(ordinal)?, None));
                self.open.len() - 1
            }
        };
        let (device, lane) = &mut self.open[at];
        let calls = self.driver.calls();
        self.driver.with_context(device.raw(), |_| {
            let lane = match lane {
                Some(lane) => lane,
                None => lane.insert(Lane::open(calls)?),
            };
            lane.done.set(false);
            work(calls, lane.stream())
        })
    }

    /// [Ends](Lane::end) all streams. Afterwards nothing is copied any more.
    pub(super) fn end(&mut self) -> Result<()> {
        let mut failures: Vec<Error> = Vec::new();
        for (device, lane) in std::mem::take(&mut self.open) {
            let Some(lane) = lane else { continue };
            let end = || self.driver.with_context(device.raw(), |_| lane.end());
            failures.extend(end().err());
            // Where the context could not be had, the stream is still to be waited for.
            if !lane.destroyed.get() {
                failures.extend(end().err());
            }
        }
        Error::first_of(failures)
    }
}

impl Drop for Lanes<'_> {
    fn drop(&mut self) {
        // Empty, unless a driver of the caller's own making has panicked.
        let _ = self.end();
    }
}
