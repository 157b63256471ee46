//! Memory laid into a reservation and lifted out of it block by block, for the layers above, which say which handle
//! lies where and what becomes of it.

use std::ops::Range;

use super::Reservation;
use crate::access::Access;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::location::Location;
use crate::mapping::{Backing, Mapping, Place};

/// A handle that could not be mapped, and why.
pub(crate) struct Refused {
    pub(crate) error: Error,
    pub(crate) handle: Option<Handle>,
}

impl Reservation {
    /// The first bytes of a range that are not mapped.
    pub(crate) fn first_gap(&self, range: Range<usize>) -> Option<Range<usize>> {
        let mut rest = range;
        while !rest.is_empty() {
            let Some(span) = self.first_in(&rest) else {
                return Some(rest);
            };
            let mapped = self.bytes(span);
            if mapped.start > rest.start {
                return Some(rest.start..mapped.start);
            }
            rest.start = mapped.end;
        }
        None
    }

    /// The first mapping that has bytes in a range.
    pub(crate) fn first_mapping_in(&self, range: &Range<usize>) -> Option<&Mapping> {
        self.table
            .at(self.first_in(range).filter(|_| !range.is_empty())?)
    }

    /// Whether the policy lets a device write.
    pub(crate) fn policy_writes(&self) -> bool {
        self.policy()
            .any(|(location, access)| location.device().is_some() && access.writes())
    }

    /// Maps a handle, created here and known to nobody else, at a vacant offset. Nobody may use it yet.
    pub(crate) fn lay(&mut self, offset: usize, mut handle: Handle) -> Result<(), Box<Refused>> {
        let memory = handle.memory();
        let place = Place {
            address: self.address(offset),
            offset,
            serial: self.next_serial,
            rights: self.policy.grants(memory.location).rights,
        };
        let backing = Backing::Owned(handle.give_up());
        let mut mapping = Mapping::new(&self.driver, place, memory, backing);
        match mapping.map() {
            Ok(()) => {
                self.keep(mapping);
                Ok(())
            }
            Err(error) => Err(Box::new(Refused {
                error,
                handle: mapping.take_handle(),
            })),
        }
    }

    /// Grants what the policy says over a row of mappings of memory at this location.
    pub(crate) fn grant_policy(&self, row: &Range<usize>, location: Location) -> Result<()> {
        let descriptors = &self.policy.grants(location).descriptors;
        self.driver
            .calls()
            .mem_set_access(self.address(row.start), row.len(), descriptors)
    }

    /// Grants over a row of mappings, fresh ones, the rights that another mapping had.
    pub(crate) fn grant_as(&mut self, row: &Range<usize>, like: &Mapping) -> Result<()> {
        let rights = like.rights();
        let descriptors = self.rights[rights as usize].descriptors();
        self.driver
            .calls()
            .mem_set_access(self.address(row.start), row.len(), &descriptors)?;
        self.each(row.clone(), |mapping| {
            mapping.set_rights(rights);
            Ok(())
        })
        .map_err(|(_, error)| error)
    }

    /// Undoes a `lay`, and gives the handle. If the driver does not unmap, the mapping is in quarantine.
    pub(crate) fn unlay(&mut self, offset: usize) -> Result<Option<Handle>> {
        let Some(mut mapping) = self.table.remove(offset / self.unit) else {
            return Ok(None);
        };
        if let Err(error) = mapping.unmap() {
            mapping.quarantine();
            self.keep(mapping);
            return Err(error);
        }
        Ok(mapping.take_handle())
    }

    /// Unmaps all that is mapped in a range that cuts no mapping, whatever holes it has, by one call. The handles that
    /// `keeps` picks are given to `kept`, the others are released before.
    ///
    /// All or nothing, as [`unmap_range`](Reservation::unmap_range) is.
    pub(crate) fn lift(
        &mut self,
        range: Range<usize>,
        mut keeps: impl FnMut(&Mapping) -> bool,
        mut kept: impl FnMut(Handle),
    ) -> Result<()> {
        let Some(hull) = self.hull(&range) else {
            return Ok(());
        };
        self.release_and_unmap(hull.clone(), |mapping| {
            if keeps(mapping) {
                return Ok(());
            }
            mapping.release_handle()
        })?;
        let mut rest = hull;
        while let Some(span) = self.first_in(&rest).filter(|_| !rest.is_empty()) {
            rest.start = self.bytes(span).end;
            if let Some(mut mapping) = self.table.remove(span.start) {
                mapping.set_unmapped();
                mapping.take_handle().into_iter().for_each(&mut kept);
            }
        }
        Ok(())
    }

    /// From the first mapping that starts in a range to the end of the last one.
    pub(super) fn hull(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let first = self.first_mapping_in(range)?.offset();
        let last = self.table.last_up_to((range.end - 1) / self.unit)?;
        Some(first..self.bytes(last).end)
    }

    /// Takes a mapping out: unmapped, its handle held, to be [put in](Self::put_in) again or dropped.
    pub(crate) fn take_out(&mut self, offset: usize) -> Result<Option<Mapping>> {
        let Some(mut mapping) = self.table.remove(offset / self.unit) else {
            return Ok(None);
        };
        match mapping.unmap() {
            Ok(()) => Ok(Some(mapping)),
            Err(error) => {
                self.keep(mapping);
                Err(error)
            }
        }
    }

    /// Puts a mapping in again that was taken out, with the rights it had. If the driver refuses, it is in quarantine.
    pub(crate) fn put_in(&mut self, mut mapping: Mapping) -> Result<()> {
        let descriptors = self.rights[mapping.rights() as usize].descriptors();
        let put = mapping.map().and_then(|()| {
            self.driver
                .calls()
                .mem_set_access(mapping.address(), mapping.size(), &descriptors)
        });
        if put.is_err() {
            mapping.quarantine();
        }
        self.keep(mapping);
        put
    }

    /// Takes handles over, which are released when the reservation ends.
    pub(crate) fn take_over(&mut self, handles: impl Iterator<Item = Handle>) {
        self.stuck.extend(handles);
    }

    /// Who may do at least this with a mapping.
    pub(crate) fn who_may(&self, mapping: &Mapping, least: Access) -> Vec<Location> {
        let able = self.rights(mapping).filter(|(_, access)| *access >= least);
        able.map(|(location, _)| location).collect()
    }
}
