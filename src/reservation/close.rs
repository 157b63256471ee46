//! The end of a reservation: mappings in reverse order of their making, then the addresses.

use std::fmt;

use super::{Reservation, StillHeld};
use crate::allocation::Allocation;
use crate::driver::Piece;
use crate::error::{Error, NotUndone};
use crate::handle::Handle;
use crate::mapping::Mapping;
use crate::report::{self, Leak};

/// Closing failed in part. What is still held is in here, and can be closed again.
///
/// Where it was the wait of [`close_after`](Reservation::close_after) or
/// [`close_in_background`](Reservation::close_in_background) that failed, nothing was undone, and work may still use
/// the memory. Dropping this error, or what `?` made of it, then unmaps nothing: the reservation stays mapped until the
/// process ends, and [`set_leak_hook`](crate::set_leak_hook)'s hook is told. To go on with it, take it out: see
/// [`StillHeld`].
#[non_exhaustive]
pub struct CloseError {
    /// The first failure.
    pub error: Error,
    /// Every further failure, in the order it happened.
    pub further: Vec<Error>,
    /// The reservation, with exactly what is still mapped.
    pub reservation: StillHeld,
    /// What [`close_keeping`](Reservation::close_keeping) had already taken out: each allocation with the offset it was
    /// mapped at.
    pub kept: Vec<(usize, Allocation)>,
}

impl CloseError {
    /// For a reservation whose closing did not begin, because its work was not waited for.
    pub(super) fn in_use(reservation: Reservation, error: Error) -> Box<CloseError> {
        let NotUndone {
            error,
            undo: further,
        } = error.into_parts();
        Box::new(CloseError {
            reservation: StillHeld::in_use(reservation, &error),
            error,
            further,
            kept: Vec::new(),
        })
    }

    /// The first failure with the further ones attached, for a caller that gives the reservation up: it is dropped,
    /// which tries once more, waits for nothing, and reports what it has to leak. After a wait that failed it is not
    /// tried: the reservation stays mapped, and that is reported.
    ///
    /// ```
    /// # use cuda_vmm::{sim::Simulation, Driver, Reservation};
    /// fn end(kv: Reservation) -> cuda_vmm::Result<()> {
    ///     kv.close().map_err(|unclosed| unclosed.into_error())
    /// }
    /// # let driver = Driver::simulated(&Simulation::new())?;
    /// # end(Reservation::builder(2 << 20).reserve(&driver)?)?;
    /// # Ok::<_, cuda_vmm::Error>(())
    /// ```
    pub fn into_error(self) -> Error {
        self.error.with_undo(self.further)
    }
}

impl fmt::Debug for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError")
            .field("error", &self.error)
            .field("further", &self.further)
            .field("reservation", &self.reservation)
            .field("kept", &self.kept)
            .finish()
    }
}

/// `the reservation is not closed (still held: 2 mappings, 1 handle, the addresses): cuMemUnmap ...`
impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reservation { table, stuck, .. } = &*self.reservation;
        f.write_str("the reservation is not closed (still held: ")?;
        match table.len() {
            0 => {}
            1 => f.write_str("1 mapping, ")?,
            count => write!(f, "{count} mappings, ")?,
        }
        match stuck.len() {
            0 => {}
            1 => f.write_str("1 handle, ")?,
            count => write!(f, "{count} handles, ")?,
        }
        write!(f, "the addresses): {}", self.error)?;
        self.further
            .iter()
            .try_for_each(|error| write!(f, "; {error}"))
    }
}

/// The message holds every failure, so there is no further source.
impl std::error::Error for CloseError {}

/// What is to become of the memory of a mapping that was undone.
enum Disposal<'a> {
    Release,
    Keep(&'a mut Vec<(usize, Allocation)>),
}

impl Reservation {
    /// Unmaps everything in reverse order of mapping, releases what backed it, and frees the addresses.
    ///
    /// Does not wait for work that uses the memory: see [work in flight](Reservation#work-in-flight).
    ///
    /// # Errors
    ///
    /// Every failure, and the reservation with what is still mapped. One failure does not stop the rest; the addresses
    /// are freed only when nothing is mapped in them.
    #[doc(alias = "cuMemAddressFree")]
    pub fn close(mut self) -> Result<(), Box<CloseError>> {
        let leaks = self.teardown(Disposal::Release);
        self.finish(leaks, Vec::new()).map(drop)
    }

    /// [`close`](Reservation::close), but hands over the memory that the mappings owned instead of releasing it: each
    /// allocation with the offset it was mapped at, by order of mapping. Contents are kept.
    ///
    /// Memory whose handle was given up goes with its mapping, and an allocation that the caller still holds is not
    /// handed over a second time.
    ///
    /// # Errors
    ///
    /// As [`close`](Reservation::close); what was taken out already is in the error.
    #[doc(alias = "cuMemAddressFree")]
    pub fn close_keeping(mut self) -> Result<Vec<(usize, Allocation)>, Box<CloseError>> {
        let mut kept = Vec::new();
        let leaks = self.teardown(Disposal::Keep(&mut kept));
        kept.reverse();
        self.finish(leaks, kept)
    }

    fn finish(
        mut self,
        mut leaks: Vec<Leak>,
        kept: Vec<(usize, Allocation)>,
    ) -> Result<Vec<(usize, Allocation)>, Box<CloseError>> {
        // Kept while anything else is: the reservation that is given back is whole.
        if leaks.is_empty() {
            self.free_addresses(&mut leaks);
        }
        let mut errors = leaks.into_iter().map(Leak::into_error);
        match errors.next() {
            None => Ok(kept),
            Some(error) => Err(Box::new(CloseError {
                error,
                further: errors.collect(),
                reservation: StillHeld::at_rest(self),
                kept,
            })),
        }
    }

    /// Ends a reservation that an operation had made before it failed. What is left in it are mappings that could not
    /// be undone: they stay with the driver, and so do then the addresses.
    pub(crate) fn surrender(mut self, error: Error) -> Error {
        let (base, size) = (self.base, self.size);
        for mut handle in std::mem::take(&mut self.stuck) {
            let (raw, size) = (handle.give_up(), handle.memory().size);
            self.driver.keep(Piece::Handle { raw, size });
        }
        let mut mapped = Vec::new();
        let mut undo = Vec::new();
        for mapping in self.table.iter_mut() {
            mapped.push((mapping.address(), mapping.size()));
            mapping.abandon();
            if let Some(mut handle) = mapping.take_handle() {
                let (raw, size) = (handle.give_up(), handle.memory().size);
                undo.extend(self.driver.give_back(Piece::Handle { raw, size }).err());
            }
        }
        self.driver.disown(base);
        match mapped.is_empty() {
            false => self.driver.keep(Piece::Mapped { base, size, mapped }),
            true => undo.extend(self.driver.give_back(Piece::Addresses { base, size }).err()),
        }
        self.closed = true;
        error.with_undo(undo)
    }

    /// Undoes all that can be undone, and tells what could not.
    fn teardown(&mut self, mut disposal: Disposal<'_>) -> Vec<Leak> {
        let mut leaks = Vec::new();
        let stuck = std::mem::take(&mut self.stuck);
        let mut order: Vec<(u64, usize)> = self
            .mappings()
            .map(|mapping| (mapping.serial(), mapping.offset() / self.unit))
            .collect();
        order.sort_unstable();
        for (_, unit) in order.into_iter().rev() {
            self.undo(unit, &mut disposal, &mut leaks);
        }
        for handle in stuck {
            self.release_or_keep(handle, &mut leaks);
        }
        leaks
    }

    fn free_addresses(&mut self, leaks: &mut Vec<Leak>) {
        match self.driver.free(self.base, self.size) {
            Ok(()) => self.closed = true,
            Err(error) => leaks.push(Leak::Addresses {
                base: self.base,
                size: self.size,
                error,
            }),
        }
    }

    fn undo(&mut self, unit: usize, disposal: &mut Disposal<'_>, leaks: &mut Vec<Leak>) {
        let Some(mapping) = self.table.get_mut(unit) else {
            return;
        };
        if let Err(error) = mapping.unmap() {
            leaks.push(Leak::Mapping {
                address: mapping.address(),
                size: mapping.size(),
                error,
            });
            return;
        }
        let Some(mut mapping) = self.table.remove(unit) else {
            return;
        };
        match (mapping.take_handle(), disposal) {
            (None, _) => {}
            (Some(handle), Disposal::Keep(kept)) => {
                kept.push((mapping.offset(), Allocation::from_handle(handle)));
            }
            (Some(handle), Disposal::Release) => self.release_or_keep(handle, leaks),
        }
    }

    fn release_or_keep(&mut self, handle: Handle, leaks: &mut Vec<Leak>) {
        let size = handle.memory().size;
        leaks.extend(
            self.release(handle)
                .err()
                .map(|error| Leak::Memory { size, error }),
        );
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.closed || self.driver.calls().forked() {
            return;
        }
        let mut leaks = self.teardown(Disposal::Release);
        // Nobody can try again, so a handle that is stuck keeps no addresses; a live mapping does.
        if self.table.len() == 0 {
            self.free_addresses(&mut leaks);
        }
        leaks.into_iter().for_each(report::leaked);
        // Reported once: the fields that are dropped now must not try, and report, again.
        self.table.iter_mut().for_each(Mapping::abandon);
        for handle in &mut self.stuck {
            handle.give_up();
        }
    }
}
