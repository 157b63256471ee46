//! A reservation inside the error of its closing: what becomes of it if nobody takes it out.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};

use super::Reservation;
use crate::error::Error;
use crate::report::{self, Leak};

/// The reservation that a [`CloseError`](crate::CloseError) gives back. It can be looked at and used as it is, and
/// [taken out](StillHeld::into_inner).
///
/// Dropped in here, alone or with its error, it is dropped as any reservation is: what is left is undone once more.
/// That would unmap memory under work that still runs where it was the wait for that work that failed. Then it stays
/// mapped until the process ends, and [`set_leak_hook`](crate::set_leak_hook)'s hook is told.
///
/// ```
/// # use cuda_vmm::{sim::Simulation, Driver, Fence, Reservation};
/// # let driver = Driver::simulated(&Simulation::new())?;
/// # let kv = Reservation::builder(2 << 20).reserve(&driver)?;
/// let not_yet = Fence::closure(|_| Err("still running"));
/// if let Err(unclosed) = kv.close_after(not_yet) {
///     let kv = unclosed.reservation.into_inner(); // from here on it is the caller's to know when the work is done
///     kv.close()?;
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct StillHeld {
    /// Empty only while it is taken out or dropped.
    reservation: Option<Reservation>,
    /// Why it may be in use: the failure of the wait, told again.
    in_use: Option<Error>,
}

impl StillHeld {
    /// One that nothing uses any more.
    pub(super) fn at_rest(reservation: Reservation) -> Self {
        StillHeld {
            reservation: Some(reservation),
            in_use: None,
        }
    }

    /// One whose work may still run, because waiting for it failed like this.
    pub(super) fn in_use(reservation: Reservation, error: &Error) -> Self {
        StillHeld {
            reservation: Some(reservation),
            in_use: Some(error.told_again()),
        }
    }

    /// The reservation, which unmaps what is mapped when it is dropped or closed, as ever: where a wait has failed, the
    /// caller has to know first that the work is done.
    pub fn into_inner(mut self) -> Reservation {
        match self.reservation.take() {
            Some(reservation) => reservation,
            None => unreachable!("it is taken out once, by value"),
        }
    }

    /// Leaves it as it is for good if it may be in use, and reports that with this error.
    pub(super) fn leak(mut self, error: Error) {
        self.end(|_| error);
    }

    fn end(&mut self, why: impl FnOnce(Error) -> Error) {
        let Some(reservation) = self.reservation.take() else {
            return;
        };
        let Some(error) = self.in_use.take() else {
            return;
        };
        // In a forked child it is the parent's, and leaked by nobody.
        if !reservation.driver.calls().forked() {
            report::leaked(Leak::Reservation {
                base: reservation.base,
                size: reservation.size,
                error: why(error),
            });
        }
        mem::forget(reservation);
    }
}

impl Drop for StillHeld {
    fn drop(&mut self) {
        self.end(|error| error);
    }
}

impl Deref for StillHeld {
    type Target = Reservation;

    fn deref(&self) -> &Reservation {
        match &self.reservation {
            Some(reservation) => reservation,
            None => unreachable!("it is taken out by value"),
        }
    }
}

impl DerefMut for StillHeld {
    fn deref_mut(&mut self) -> &mut Reservation {
        match &mut self.reservation {
            Some(reservation) => reservation,
            None => unreachable!("it is taken out by value"),
        }
    }
}

impl From<StillHeld> for Reservation {
    fn from(unclosed: StillHeld) -> Reservation {
        unclosed.into_inner()
    }
}

impl fmt::Debug for StillHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for StillHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
