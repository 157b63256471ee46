//! Unmapping and closing when work is done: now, by a deadline, or in the background.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::{CloseError, Reservation};
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::mapping::MappingId;
use crate::sync::{lock, Mutex};

impl Reservation {
    /// [`unmap`](Reservation::unmap), once the fence is passed.
    ///
    /// # Errors
    ///
    /// As `unmap`, whose checks come before the wait; [`Error::DeadlinePassed`], [`Error::WaitFailed`] or a driver
    /// failure of the wait itself. In every case everything stays mapped and owned, and [`id_at`](Reservation::id_at)
    /// names the mapping again.
    #[doc(alias = "cuMemUnmap")]
    pub fn unmap_after(&mut self, id: MappingId, fence: Fence<'_>) -> Result<()> {
        if self.mapping(&id).is_none() {
            return Err(Error::NotMapped { offset: id.offset });
        }
        fence.wait()?;
        self.unmap(id)
    }

    /// [`unmap_range`](Reservation::unmap_range), once the fence is passed.
    ///
    /// # Errors
    ///
    /// As `unmap_range`, whose checks come before the wait; else as [`unmap_after`](Reservation::unmap_after).
    #[doc(alias = "cuMemUnmap")]
    pub fn unmap_range_after(
        &mut self,
        offset: usize,
        size: usize,
        fence: Fence<'_>,
    ) -> Result<()> {
        self.whole(offset, size)?;
        fence.wait()?;
        self.unmap_range(offset, size)
    }

    /// [`close`](Reservation::close), once the fence is passed.
    ///
    /// # Errors
    ///
    /// As `close`. Where the wait failed, the reservation is in the error with everything still mapped, and stays so
    /// if the error is dropped: see [`StillHeld`](crate::StillHeld).
    #[doc(alias = "cuMemAddressFree")]
    pub fn close_after(self, fence: Fence<'_>) -> Result<(), Box<CloseError>> {
        match fence.wait() {
            Ok(()) => self.close(),
            Err(error) => Err(CloseError::in_use(self, error)),
        }
    }

    /// Closes on a thread of its own, once the fence is passed.
    ///
    /// # Errors
    ///
    /// The reservation, untouched, where no thread could be started; it was not waited for, so the error is as that of
    /// [`close_after`](Reservation::close_after) after a failed wait.
    pub fn close_in_background(self, fence: Fence<'static>) -> Result<Closing, Box<CloseError>> {
        // The reservation goes over by way of a slot, so that it is not lost with a thread that never came to be.
        let slot = Arc::new(Mutex::new(Some(self)));
        let theirs = slot.clone();
        let work = move || {
            // Bound, so that the lock is not held over the wait.
            let reservation = lock(&theirs).take();
            match reservation.map(|reservation| reservation.close_after(fence)) {
                None | Some(Ok(())) => Ok(()),
                Some(Err(error)) => Err(Unclaimed(Some(error))),
            }
        };
        match Builder::new().name("cuda-vmm-close".into()).spawn(work) {
            Ok(thread) => Ok(Closing { thread }),
            Err(error) => match lock(&slot).take() {
                Some(reservation) => Err(CloseError::in_use(
                    reservation,
                    Error::WaitFailed(error.into()),
                )),
                None => unreachable!("a closure that was never run has taken nothing"),
            },
        }
    }
}

/// A reservation that is being closed on another thread. Made by [`Reservation::close_in_background`].
///
/// Dropping it lets the thread go on by itself. If the wait fails then, nobody is left who could decide: the
/// reservation stays mapped until the process ends, and [`set_leak_hook`](crate::set_leak_hook)'s hook is told.
#[derive(Debug)]
pub struct Closing {
    thread: JoinHandle<Result<(), Unclaimed>>,
}

impl Closing {
    /// Whether the thread has come to an end, one way or the other.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread.
    ///
    /// # Errors
    ///
    /// As [`Reservation::close_after`].
    pub fn join(self) -> Result<(), Box<CloseError>> {
        match self.thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(unclaimed)) => unclaimed.claim(),
            // A closure of the caller's panicked while it was waited for; the panic is the caller's to see.
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// What a background thread could not close.
///
/// Dropped unclaimed, a reservation that work may still use is leaked and reported, as it is with any [`CloseError`]; the
/// report has the very error here, as nobody else wants it.
#[derive(Debug)]
struct Unclaimed(Option<Box<CloseError>>);

impl Unclaimed {
    fn claim(mut self) -> Result<(), Box<CloseError>> {
        self.0.take().map_or(Ok(()), Err)
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(unclosed) = self.0.take() {
            let CloseError {
                error, reservation, ..
            } = *unclosed;
            reservation.leak(error);
        }
    }
}
