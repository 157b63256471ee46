//! Unmapping: of one mapping, or of a range of whole ones; all or nothing.
//!
//! The handles are released first and the range is unmapped last, by one call. That order is what makes a range of many mappings all or
//! nothing: a release of mapped memory frees nothing and can be taken back (the driver gives the count again for the mapped address),
//! while the unmap, after which nothing can be taken back, is a single call that happens or does not. The memory is never out of place in
//! between, so that a failed unmap disturbs no work that uses it.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::Reservation;
use crate::allocation::Handle;
use crate::error::{Error, NotUndone, Result};
use crate::mapping::{Backing, Mapping, MappingId};

impl Reservation {
    /// Unmaps a mapping and releases what backs it (`cuMemUnmap`, `cuMemRelease`).
    ///
    /// Does not wait for work that uses the memory: see [work in flight](Reservation#work-in-flight).
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`] where the mapping was unmapped by range before, or is another reservation's. A driver failure leaves everything mapped.
    #[doc(alias = "cuMemUnmap")]
    pub fn unmap(&mut self, id: MappingId) -> Result<()> {
        match self.mapping(&id).map(Mapping::range) {
            Some(range) => self.unmap_whole(range),
            None => Err(Error::NotMapped { offset: id.offset }),
        }
    }

    /// Unmaps every mapping in `[offset, offset + size)`, a range that consists of whole mappings.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Hole`], [`Error::PartialMapping`] (the driver itself would say
    /// SUCCESS to holes). A driver failure leaves everything mapped.
    #[doc(alias = "cuMemUnmap")]
    pub fn unmap_range(&mut self, offset: usize, size: usize) -> Result<()> {
        let range = self.whole(offset, size)?.asked;
        self.unmap_whole(range)
    }

    fn unmap_whole(&mut self, range: Range<usize>) -> Result<()> {
        let mut at = range.start;
        while let Some(mapping) = self
            .table
            .get_mut(at / self.unit)
            .filter(|_| at < range.end)
        {
            if let Err(error) = give_up(mapping) {
                return Err(self.take_back(range.start..at, error));
            }
            at = mapping.end();
        }
        if let Err(error) = self
            .driver
            .calls()
            .mem_unmap(self.address(range.start), range.len())
        {
            return Err(self.take_back(range, error));
        }
        let mut late = Vec::new();
        let mut at = range.start;
        while let Some(mut mapping) = (at < range.end)
            .then(|| self.table.remove(at / self.unit))
            .flatten()
        {
            at = mapping.end();
            mapping.set_unmapped();
            // Only a share can be left here; it is the last one if the caller's allocation went a moment ago.
            late.extend(self.release(mapping.into_backing()).err());
        }
        match late.is_empty() {
            true => Ok(()),
            false => Err(Error::NotUndone(Box::new(NotUndone {
                error: late.remove(0),
                undo: late,
            }))),
        }
    }

    /// Takes released counts back after a failure, so that every mapping in the range owns its handle again.
    fn take_back(&mut self, range: Range<usize>, error: Error) -> Error {
        let mut undo = Vec::new();
        let mut at = range.start;
        while let Some(mapping) = self
            .table
            .get_mut(at / self.unit)
            .filter(|_| at < range.end)
        {
            at = mapping.end();
            if !matches!(mapping.backing_mut(), Backing::Released) {
                continue;
            }
            *mapping.backing_mut() = match self.driver.calls().mem_retain(mapping.address()) {
                Ok(raw) => Backing::Owned(Handle::retained(
                    &self.driver,
                    raw,
                    mapping.size(),
                    self.unit,
                    mapping.location(),
                )),
                Err(failure) => {
                    // Nothing is lost: the driver keeps the memory until the unmap.
                    undo.push(failure);
                    Backing::GivenUp
                }
            };
        }
        error.with_undo(undo)
    }
}

/// Releases the mapping's own handle, if it has one, while it is mapped.
fn give_up(mapping: &mut Mapping) -> Result<()> {
    let handle = match mem::replace(mapping.backing_mut(), Backing::Released) {
        Backing::Owned(handle) => handle,
        Backing::Shared(share) => match Arc::try_unwrap(share) {
            Ok(handle) => handle,
            Err(share) => {
                *mapping.backing_mut() = Backing::Shared(share);
                return Ok(());
            }
        },
        given_up @ (Backing::GivenUp | Backing::Released) => {
            *mapping.backing_mut() = given_up;
            return Ok(());
        }
    };
    handle.release().map_err(|(handle, error)| {
        *mapping.backing_mut() = Backing::Owned(handle);
        error
    })
}
