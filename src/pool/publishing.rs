//! Slices whose copies still run.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use super::control::Signal;
use super::copier::Flight;
use super::error::PoolError;
use super::published::{publish, Filled, Published};
use super::shared::Inside;

/// Slices that are being published: their copies were enqueued and may still run.
///
/// Dropping it before it is [finished](Self::finish) cancels them; their room is used again once the copies are done.
/// The pool does not close while one of these exists.
#[must_use = "dropping it cancels the publish: finish it"]
pub struct Publishing<'a> {
    inside: Inside,
    /// None once it was finished.
    flight: Option<Flight>,
    slices: Vec<Filled>,
    signal: Option<Arc<Signal>>,
    sources: PhantomData<&'a [u8]>,
}

impl<'a> Publishing<'a> {
    pub(super) fn new(inside: Inside, flight: Flight, slices: Vec<Filled>) -> Publishing<'a> {
        Publishing {
            inside,
            flight: Some(flight),
            slices,
            signal: None,
            sources: PhantomData,
        }
    }

    /// Whether the copies are done. Does not wait.
    ///
    /// # Errors
    ///
    /// [`PoolError::Memory`]: the copies failed, or the driver could not be asked.
    #[doc(alias = "cuEventQuery")]
    pub fn is_done(&self) -> Result<bool, PoolError> {
        match &self.flight {
            Some(flight) => Ok(self.inside.shared().copier.is_done(flight)?),
            None => Ok(true),
        }
    }

    /// Waits for the copies, until the deadline at the latest.
    ///
    /// # Errors
    ///
    /// [`PoolError::NotDone`] at the deadline; [`PoolError::Memory`] where the copies failed. This can be called again.
    #[doc(alias = "cuEventSynchronize")]
    pub fn wait_until(&self, deadline: Instant) -> Result<(), PoolError> {
        let Some(flight) = &self.flight else {
            return Ok(());
        };
        let waited = self.inside.shared().copier.wait(flight, Some(deadline));
        waited.map_err(|error| match error {
            crate::Error::DeadlinePassed { waited } => PoolError::NotDone { waited },
            error => PoolError::Memory(error),
        })
    }

    /// A descriptor that becomes readable when the copies are done, for an event loop. It is made by the first call.
    ///
    /// If the context is lost, it never becomes readable: use a time limit, then call [`is_done`](Self::is_done).
    ///
    /// # Errors
    ///
    /// [`PoolError::ControlMemory`] without a free descriptor, or a driver failure.
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, PoolError> {
        let signal = match self.signal.take() {
            Some(signal) => signal,
            None => self.notified()?,
        };
        Ok(self.signal.insert(signal).fd())
    }

    fn notified(&mut self) -> Result<Arc<Signal>, PoolError> {
        let signal = Arc::new(Signal::new().map_err(PoolError::ControlMemory)?);
        let Some(flight) = &mut self.flight else {
            return Err(PoolError::Closing);
        };
        let passed = Arc::into_raw(signal.clone());
        let mut taken = false;
        let copier = &self.inside.shared().copier;
        let went = copier.notify(flight, |calls, stream| {
            calls.launch_host_function(stream.raw(), raise, passed.cast_mut().cast())?;
            taken = true;
            Ok(())
        });
        if !taken {
            reclaim(passed.cast());
        }
        went?;
        Ok(signal)
    }

    /// Waits for the copies and publishes the slices.
    ///
    /// # Errors
    ///
    /// [`PoolError::Memory`] where the copies failed: their slices are quarantined, and the pool goes on without them.
    /// [`PoolError::NoConsumer`].
    pub fn finish(mut self) -> Result<Vec<Published>, PoolError> {
        let slices = std::mem::take(&mut self.slices);
        if let Some(flight) = self.flight.take() {
            let copier = &self.inside.shared().copier;
            if let Err(error) = copier.wait(&flight, None) {
                copier.quarantine(flight, slices.iter().map(|slice| slice.at).collect());
                return Err(error.into());
            }
            copier.finish(flight);
        }
        publish(&self.inside, slices)
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        let copier = &self.inside.shared().copier;
        if let Some(flight) = self.flight.take() {
            let slices = std::mem::take(&mut self.slices);
            copier.quarantine(flight, slices.iter().map(|slice| slice.at).collect());
        }
    }
}

/// Called by the driver when the copies are done.
extern "C" fn raise(signal: *mut c_void) {
    reclaim(signal);
}

/// Takes over the reference that was passed to the driver, which raises the signal.
#[allow(unsafe_code)]
fn reclaim(signal: *const c_void) {
    // SAFETY: made by `Arc::into_raw` in `notified`, which passes it on once: to the driver, or here.
    let signal = unsafe { Arc::from_raw(signal.cast::<Signal>()) };
    signal.raise();
}

impl fmt::Debug for Publishing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publishing")
            .field("slices", &self.slices)
            .finish_non_exhaustive()
    }
}
