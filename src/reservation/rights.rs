//! Access rights are state: the policy's and each mapping's, applied with every map, and asked back from the driver.

use std::ops::Range;

use super::{at_most, intern, Policy, Reservation};
use crate::access::{descriptor, Access, Rights};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::mapping::Mapping;

impl Reservation {
    /// Says what a location may do with the whole mappings in `[offset, offset + size)` (`cuMemSetAccess`), for as long
    /// as they are mapped. Other locations' rights stay as they are, and so does the policy, which later maps go by:
    /// that is [`set_policy`](Self::set_policy).
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`],
    /// [`Error::NoSuchDevice`], [`Error::NoSuchPlace`], [`Error::PartialMapping`], [`Error::Hole`] (the driver would
    /// skip a hole silently), [`Error::MoreThanOffered`] of imported memory. After a driver failure all rights are as
    /// before, unless the error says that undoing failed too: then the mappings that it names no longer have their old
    /// rights.
    #[doc(alias = "cuMemSetAccess")]
    pub fn set_access(
        &mut self,
        offset: usize,
        size: usize,
        location: impl Into<Location>,
        access: Access,
    ) -> Result<()> {
        let location = location.into();
        self.driver.check_location(location)?;
        let range = self.whole(offset, size)?.asked;
        for mapping in self.beneath(offset, size)? {
            at_most(access, mapping.offered())?;
        }
        let descriptors = [descriptor(location, access)];
        let address = self.address(range.start);
        let set = self
            .driver
            .calls()
            .mem_set_access(address, range.len(), &descriptors);
        if let Err(error) = set {
            return Err(self.take_rights_back(range, location, access, error));
        }
        self.note(range, location, access);
        Ok(())
    }

    /// Undoes what a refused call granted: the driver goes from mapping to mapping, and where it comes to device memory
    /// that the host cannot have rights of, the host memory before it has them already.
    fn take_rights_back(
        &mut self,
        range: Range<usize>,
        location: Location,
        access: Access,
        error: Error,
    ) -> Error {
        let Ok(beneath) = self.whole(range.start, range.len()) else {
            return error;
        };
        if !location.is_host() {
            return error;
        }
        let granted: Vec<_> = beneath
            .take_while(|mapping| mapping.location().is_host())
            .map(|mapping| (mapping.range(), self.rights_of(mapping, location)))
            .collect();
        let undo: Vec<_> = granted
            .into_iter()
            .rev()
            .filter_map(|(range, old)| self.restore(range, location, old, access))
            .collect();
        for (range, _) in &undo {
            self.note(range.clone(), location, access);
        }
        error.with_undo(undo.into_iter().map(|(_, error)| error).collect())
    }

    /// Changes the [policy](Self::policy): what the location may do with everything that is mapped here, now
    /// (`cuMemSetAccess`) and later. What [`set_access`](Self::set_access) said of single mappings for this location
    /// holds no longer. A host location's rights hold for host memory only, and a quarantined mapping keeps the rights it
    /// has.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`], [`Error::NoSuchPlace`], [`Error::MoreThanOffered`] of imported memory, or a driver
    /// failure. The policy and all rights are then as before, unless the error says that undoing failed too: then the
    /// mappings that it names no longer have their old rights.
    #[doc(alias = "cuMemSetAccess")]
    pub fn set_policy(&mut self, location: impl Into<Location>, access: Access) -> Result<()> {
        let location = location.into();
        self.driver.check_location(location)?;
        let applies = |mapping: &&Mapping| {
            !mapping.is_quarantined() && (mapping.location().is_host() || !location.is_host())
        };
        for mapping in self.mappings().filter(applies) {
            at_most(access, mapping.offered())?;
        }
        let before: Vec<_> = self
            .mappings()
            .filter(applies)
            .map(|mapping| (mapping.range(), self.rights_of(mapping, location)))
            .collect();
        let descriptors = [descriptor(location, access)];
        for (done, (range, _)) in before.iter().enumerate() {
            if let Err(error) = self.driver.calls().mem_set_access(
                self.address(range.start),
                range.len(),
                &descriptors,
            ) {
                let undo = before[..done]
                    .iter()
                    .rev()
                    .filter_map(|(range, old)| self.restore(range.clone(), location, *old, access));
                let undo: Vec<(Range<usize>, Error)> = undo.collect();
                for (range, _) in &undo {
                    self.note(range.clone(), location, access);
                }
                return Err(error.with_undo(undo.into_iter().map(|(_, error)| error).collect()));
            }
        }
        for (range, _) in before {
            self.note(range, location, access);
        }
        let mut rights = self.policy.rights.clone();
        rights.set(location, access);
        self.policy = Policy::new(rights, &mut self.rights);
        Ok(())
    }

    /// What a location may do with the byte at this offset, as the driver says (`cuMemGetAccess`).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::NoSuchDevice`], [`Error::NoSuchPlace`], [`Error::Hole`] where nothing is mapped,
    /// [`Error::Disagreement`] where the driver's answer is not what was granted, or a driver failure.
    #[doc(alias = "cuMemGetAccess")]
    pub fn access_of(&self, offset: usize, location: impl Into<Location>) -> Result<Access> {
        let location = location.into();
        self.driver.check_location(location)?;
        let mapping = self.beneath(offset, 1)?.next();
        if location == Location::Host
            && mapping.is_some_and(|mapping| !mapping.location().is_host())
        {
            // The driver would name the rights of the first device.
            return Ok(Access::None);
        }
        let flags = self
            .driver
            .calls()
            .mem_get_access(self.address(offset), location)?;
        let ours = mapping.map(|mapping| self.rights_of(mapping, location));
        match (Access::from_flags(flags), ours) {
            (Some(access), Some(ours)) if access == ours => Ok(access),
            (theirs, ours) => Err(Error::disagreement(
                format!(
                    "{location} was granted {} at offset {offset:#x}",
                    ours.unwrap_or_default()
                ),
                theirs.map_or(format!("reports access flags {flags}"), |access| {
                    format!("reports {access}")
                }),
            )),
        }
    }

    /// What was granted with a mapping, by location.
    pub fn rights(&self, mapping: &Mapping) -> impl Iterator<Item = (Location, Access)> + '_ {
        self.rights[mapping.rights() as usize].iter()
    }

    /// The most that any place of the host may do with a mapping.
    pub(super) fn host_access(&self, mapping: &Mapping) -> Access {
        let of_host = self
            .rights(mapping)
            .filter(|(location, _)| location.is_host());
        of_host.map(|(_, access)| access).max().unwrap_or_default()
    }

    pub(super) fn rights_of(&self, mapping: &Mapping, location: Location) -> Access {
        self.rights[mapping.rights() as usize].of(location)
    }

    fn restore(
        &self,
        range: Range<usize>,
        location: Location,
        old: Access,
        now: Access,
    ) -> Option<(Range<usize>, Error)> {
        if old == now {
            return None;
        }
        let descriptors = [descriptor(location, old)];
        let failed = self
            .driver
            .calls()
            .mem_set_access(self.address(range.start), range.len(), &descriptors)
            .err()?;
        Some((range, failed))
    }

    /// Notes the rights of the whole mappings in the range.
    fn note(&mut self, range: Range<usize>, location: Location, access: Access) {
        let mut last: Option<(u32, u32)> = None;
        let mut at = range.start;
        while let Some(mapping) = self
            .table
            .get_mut(at / self.unit)
            .filter(|_| at < range.end)
        {
            at = mapping.end();
            let old = mapping.rights();
            let new = match last {
                Some((from, to)) if from == old => to,
                _ => {
                    let mut rights: Rights = self.rights[old as usize].clone();
                    rights.set(location, access);
                    intern(&mut self.rights, rights)
                }
            };
            last = Some((old, new));
            mapping.set_rights(new);
        }
    }
}
