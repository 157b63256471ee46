//! Mapping: create, map, grant; all or nothing.

use std::mem;
use std::ops::Range;

use super::Reservation;
use crate::allocation::{is_partial_map, Allocation, Handle, Origin};
use crate::driver::{Driver, RawHandle};
use crate::error::{Error, Result, What};
use crate::location::Location;
use crate::mapping::{Backing, Mapping, MappingId, Place};
use crate::props::AllocationProps;
use crate::range::{aligned, within};

impl Reservation {
    /// Creates memory, maps it at `[offset, offset + size)` and grants what the policy says (`cuMemCreate`, `cuMemMap`,
    /// `cuMemSetAccess`).
    ///
    /// The mapping owns the handle. One large mapping is cheaper to make, to give back and to use than many small ones: the
    /// driver charges by the handle.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Misaligned`], [`Error::Overlap`],
    /// [`Error::ForeignDriver`]. From the driver: [`Error::OutOfMemory`] or another failure. Nothing is changed then.
    #[doc(alias = "cuMemMap")]
    pub fn map(
        &mut self,
        offset: usize,
        size: usize,
        props: &AllocationProps,
    ) -> Result<MappingId> {
        self.vacant(offset, size, props.driver(), || {
            Ok(props.granularity()?.minimum())
        })?;
        let handle = Handle::create(props, size)?;
        self.place(
            offset,
            (handle.raw(), size),
            props.location(),
            Backing::Owned(handle),
        )
    }

    /// [`map`](Reservation::map), and gives the handle up afterwards (`cuMemRelease`): the driver keeps the memory for as long as it
    /// is mapped.
    ///
    /// # Errors
    ///
    /// As [`map`](Reservation::map).
    #[doc(alias = "cuMemRelease")]
    pub fn map_releasing(
        &mut self,
        offset: usize,
        size: usize,
        props: &AllocationProps,
    ) -> Result<MappingId> {
        let id = self.map(offset, size, props)?;
        let Some(mapping) = self.table.get_mut(offset / self.unit) else {
            return Ok(id);
        };
        let Backing::Owned(handle) = mem::replace(mapping.backing_mut(), Backing::GivenUp) else {
            return Ok(id);
        };
        match handle.release() {
            Ok(()) => Ok(id),
            Err((handle, error)) => {
                *mapping.backing_mut() = Backing::Owned(handle);
                match self.table.remove(offset / self.unit) {
                    Some(mapping) => Err(self.undo_mapping(mapping, error)),
                    None => Err(error),
                }
            }
        }
    }

    /// Maps an allocation of the caller's at `[offset, offset + its size)` and grants what the policy says.
    ///
    /// An allocation can be mapped any number of times, here and in other reservations: all see the same bytes. It may be
    /// dropped while it is mapped.
    ///
    /// # Errors
    ///
    /// As [`map`](Reservation::map), and [`Error::WrongSize`] where the size that was claimed for a raw handle is not its own.
    #[doc(alias = "cuMemMap")]
    pub fn map_existing(&mut self, offset: usize, allocation: &Allocation) -> Result<MappingId> {
        let handle = allocation.share();
        self.vacant(offset, handle.size(), handle.driver(), || {
            Ok(handle.granularity())
        })?;
        let (location, claimed) = (handle.location(), handle.size());
        self.place(
            offset,
            (handle.raw(), claimed),
            location,
            Backing::Shared(handle),
        )
        .map_err(|error| match allocation.origin() {
            Origin::Raw if is_partial_map(&error) => Error::WrongSize { claimed },
            _ => error,
        })
    }

    /// The range is one that can be mapped: within the reservation, aligned, and free.
    fn vacant(
        &self,
        offset: usize,
        size: usize,
        driver: &Driver,
        granularity: impl FnOnce() -> Result<usize>,
    ) -> Result<Range<usize>> {
        if !driver.is_same(&self.driver) {
            return Err(Error::ForeignDriver);
        }
        let range = within(offset, size, self.size)?;
        let granularity = granularity()?.max(self.unit);
        aligned(What::Offset, offset, granularity)?;
        aligned(What::Size, size, granularity)?;
        match self.first_in(&range) {
            Some(existing) => Err(Error::Overlap {
                existing: self.bytes(existing),
                asked: range,
            }),
            None => Ok(range),
        }
    }

    /// Maps the backing at a vacant offset, grants, and notes it.
    fn place(
        &mut self,
        offset: usize,
        memory: (RawHandle, usize),
        location: Location,
        backing: Backing,
    ) -> Result<MappingId> {
        let grants = self.policy.grants(location);
        let place = Place {
            offset,
            serial: self.next_serial,
            rights: grants.rights,
            location,
            quarantined: false,
        };
        let mapping =
            match Mapping::make(&self.driver, self.address(offset), memory, backing, place) {
                Ok(mapping) => mapping,
                Err((backing, error)) => {
                    let undo = self.release(backing).err();
                    return Err(error.with_undo(undo.into_iter().collect()));
                }
            };
        if let Err(error) = self.driver.calls().mem_set_access(
            mapping.address(),
            mapping.size(),
            &grants.descriptors,
        ) {
            return Err(self.undo_mapping(mapping, error));
        }
        self.next_serial += 1;
        self.table
            .insert(offset / self.unit, memory.1 / self.unit, mapping);
        Ok(MappingId {
            offset,
            serial: place.serial,
            reservation: self.id,
        })
    }

    /// Undoes a mapping that is not in the table, because of an error that came after it was made. What cannot be undone goes
    /// into quarantine.
    fn undo_mapping(&mut self, mut mapping: Mapping, error: Error) -> Error {
        if let Err(undo) = mapping.unmap() {
            mapping.place_mut().quarantined = true;
            self.next_serial = self.next_serial.max(mapping.place().serial + 1);
            self.table.insert(
                mapping.offset() / self.unit,
                mapping.size() / self.unit,
                mapping,
            );
            return error.with_undo(vec![undo]);
        }
        let undo = self.release(mapping.into_backing()).err();
        error.with_undo(undo.into_iter().collect())
    }

    /// Gives a backing back that is mapped here no longer. A handle that the driver does not release is kept in `stuck`.
    pub(super) fn release(&mut self, backing: Backing) -> Result<()> {
        let handle = match backing {
            Backing::Owned(handle) => Some(handle),
            Backing::Shared(handle) => std::sync::Arc::into_inner(handle),
            Backing::GivenUp | Backing::Released => None,
        };
        match handle.map(Handle::release) {
            None | Some(Ok(())) => Ok(()),
            Some(Err((handle, error))) => {
                self.stuck.push(handle);
                Err(error)
            }
        }
    }
}
