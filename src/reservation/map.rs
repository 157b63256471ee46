//! Mapping: create, map, grant; all or nothing.

use super::{at_most, Reservation};
use crate::allocation::{is_partial_map, Allocation};
use crate::driver::Driver;
use crate::error::{Error, Result, What};
use crate::handle::{Handle, Memory, Origin};
use crate::mapping::{Backing, Mapping, MappingId, Place};
use crate::props::AllocationProps;
use crate::range::{aligned, within};

impl Reservation {
    /// Creates memory, maps it at `[offset, offset + size)` and grants what the policy says (`cuMemCreate`, `cuMemMap`,
    /// `cuMemSetAccess`).
    ///
    /// The mapping owns the handle. One large mapping is cheaper to make, to give back and to use than many small ones:
    /// the driver charges by the handle.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Misaligned`],
    /// [`Error::Overlap`], [`Error::ForeignDriver`]. From the driver: [`Error::OutOfMemory`] or another failure.
    /// Nothing is changed then.
    #[doc(alias = "cuMemMap")]
    pub fn map(
        &mut self,
        offset: usize,
        size: usize,
        props: &AllocationProps,
    ) -> Result<MappingId> {
        let granularity = || Ok(props.granularity()?.minimum());
        let granularity = self.vacant(offset, size, props.driver(), granularity)?;
        let raw = self.driver.calls().mem_create(size, props.recipe())?;
        let memory = Memory::of(props.recipe(), size, granularity);
        self.place(offset, memory, Backing::Owned(raw))
    }

    /// [`map`](Reservation::map), and gives the handle up afterwards (`cuMemRelease`): the driver keeps the memory for
    /// as long as it is mapped.
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
        match self
            .table
            .get_mut(offset / self.unit)
            .map_or(Ok(()), Mapping::give_handle_up)
        {
            Ok(()) => Ok(id),
            Err(error) => match self.table.remove(offset / self.unit) {
                Some(mapping) => Err(self.undo_mapping(mapping, error)),
                None => Err(error),
            },
        }
    }

    /// Maps an allocation of the caller's at `[offset, offset + its size)` and grants what the policy says.
    ///
    /// An allocation can be mapped any number of times, here and in other reservations: all see the same bytes. It may
    /// be dropped while it is mapped. The driver maps the whole of it or nothing, so there is no size to give:
    ///
    /// ```compile_fail,E0061
    /// # use cuda_vmm::{Allocation, Reservation};
    /// fn half(kv: &mut Reservation, page: &Allocation) {
    ///     kv.map_existing(0, page.size() / 2, page).unwrap();
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`map`](Reservation::map), [`Error::WrongSize`] where the size that was claimed for a raw handle is not its
    /// own, and [`Error::MoreThanOffered`] where the policy grants more than the maker of imported memory offers.
    #[doc(alias = "cuMemMap")]
    pub fn map_existing(&mut self, offset: usize, allocation: &Allocation) -> Result<MappingId> {
        let handle = allocation.share();
        let memory = handle.memory();
        self.vacant(offset, memory.size, handle.driver(), || {
            Ok(memory.granularity)
        })?;
        self.place(offset, memory, Backing::Shared(handle))
            .map_err(|error| match allocation.origin() {
                Origin::Raw | Origin::Imported if is_partial_map(&error) => {
                    let claimed = memory.size;
                    Error::WrongSize { claimed }.with_undo(error.into_parts().undo)
                }
                _ => error,
            })
    }

    /// Maps allocations at these offsets, or none of them.
    pub(crate) fn map_all(&mut self, pieces: &[(usize, &Allocation)]) -> Result<Vec<MappingId>> {
        for (offset, allocation) in pieces {
            let memory = allocation.share().memory();
            self.vacant(*offset, memory.size, allocation.driver(), || {
                Ok(memory.granularity)
            })?;
        }
        let mut made: Vec<MappingId> = Vec::with_capacity(pieces.len());
        for (offset, allocation) in pieces {
            match self.map_existing(*offset, allocation) {
                Ok(id) => made.push(id),
                Err(error) => {
                    let undone =
                        |error, id: MappingId| match self.table.remove(id.offset / self.unit) {
                            Some(mapping) => self.undo_mapping(mapping, error),
                            None => error,
                        };
                    return Err(made.into_iter().rev().fold(error, undone));
                }
            }
        }
        Ok(made)
    }

    /// Fails if `[offset, offset + size)` cannot be mapped, whatever the memory's own granularity.
    pub(crate) fn check_vacant(&self, offset: usize, size: usize) -> Result<()> {
        self.vacant(offset, size, &self.driver, || Ok(self.unit))
            .map(drop)
    }

    /// The range is one that can be mapped: within the reservation, aligned, and free. Gives the memory's granularity.
    fn vacant(
        &self,
        offset: usize,
        size: usize,
        driver: &Driver,
        granularity: impl FnOnce() -> Result<usize>,
    ) -> Result<usize> {
        if !driver.is_same(&self.driver) {
            return Err(Error::ForeignDriver);
        }
        let range = within(offset, size, self.size)?;
        let granularity = granularity()?;
        aligned(What::Offset, offset, granularity.max(self.unit))?;
        aligned(What::Size, size, granularity.max(self.unit))?;
        if granularity > self.unit {
            // The base is a multiple of the unit, and of more unless another was asked for.
            aligned(What::Address, self.address(offset) as usize, granularity)?;
        }
        match self.first_in(&range) {
            Some(existing) => Err(Error::Overlap {
                existing: self.bytes(existing),
                asked: range,
            }),
            None => Ok(granularity),
        }
    }

    /// Maps the backing at a vacant offset, grants, and notes it.
    fn place(&mut self, offset: usize, memory: Memory, backing: Backing) -> Result<MappingId> {
        if let Backing::Shared(handle) = &backing {
            at_most(self.policy.most, handle.offered())?;
        }
        let grants = self.policy.grants(memory.location);
        let serial = self.next_serial;
        let place = Place {
            address: self.address(offset),
            offset,
            serial,
            rights: grants.rights,
        };
        let mut mapping = Mapping::new(&self.driver, place, memory, backing);
        let made = mapping.map().and_then(|()| {
            self.driver
                .calls()
                .mem_set_access(place.address, memory.size, &grants.descriptors)
        });
        if let Err(error) = made {
            return Err(self.undo_mapping(mapping, error));
        }
        self.keep(mapping);
        Ok(MappingId {
            offset,
            serial,
            reservation: self.id,
        })
    }

    pub(super) fn keep(&mut self, mapping: Mapping) {
        self.next_serial = self.next_serial.max(mapping.serial() + 1);
        self.table.insert(
            mapping.offset() / self.unit,
            mapping.size() / self.unit,
            mapping,
        );
    }

    /// Undoes a mapping that is not in the table, because of an error in making it. What cannot be undone goes into
    /// quarantine.
    fn undo_mapping(&mut self, mut mapping: Mapping, error: Error) -> Error {
        if let Err(undo) = mapping.unmap() {
            mapping.quarantine();
            self.keep(mapping);
            return error.with_undo(vec![undo]);
        }
        let undo = mapping
            .take_handle()
            .and_then(|handle| self.release(handle).err());
        error.with_undo(undo.into_iter().collect())
    }

    /// Releases a handle that is mapped here no longer, or never was. If the driver does not, it is kept for `close`.
    pub(crate) fn release(&mut self, mut handle: Handle) -> Result<()> {
        let released = handle.release_count();
        if released.is_err() {
            self.stuck.push(handle);
        }
        released
    }
}
