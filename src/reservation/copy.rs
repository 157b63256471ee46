//! Copies and fills, checked against what is mapped and granted, across the seams of mappings.
//!
//! Each runs in the primary context of a device that may do it, on that device's default stream, and is done when it returns.

use std::ops::Range;

use super::{Beneath, Reservation};
use crate::access::Access;
use crate::device::Device;
use crate::driver::Calls;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::mapping::{BackingKind, Mapping};

impl Reservation {
    /// Copies bytes from the host to `[offset, offset + bytes.len())`.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Hole`], [`Error::NoAccess`]. Else a driver failure.
    #[doc(alias = "cuMemcpyHtoD")]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let device = self.device_that(&[self
            .beneath(offset, bytes.len())?
            .needing(Access::ReadWrite)?])?;
        self.run(&device, |calls| {
            calls.copy_to_device(self.address(offset), bytes)
        })
    }

    /// Copies `[offset, offset + bytes.len())` to the host.
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write).
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let device =
            self.device_that(&[self.beneath(offset, bytes.len())?.needing(Access::Read)?])?;
        self.run(&device, |calls| {
            calls.copy_to_host(bytes, self.address(offset))
        })
    }

    /// Sets every byte of `[offset, offset + size)`.
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write).
    #[doc(alias = "cuMemsetD8")]
    pub fn fill(&mut self, offset: usize, size: usize, value: u8) -> Result<()> {
        let device =
            self.device_that(&[self.beneath(offset, size)?.needing(Access::ReadWrite)?])?;
        self.run(&device, |calls| {
            calls.fill(self.address(offset), value, size)
        })
    }

    /// Copies `size` bytes from one place of this reservation to another that shares no memory with it, neither by its addresses
    /// nor by way of a mirror (as far as the handles of both are held).
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write), [`Error::OverlappingCopy`], and [`Error::NoCommonDevice`].
    #[doc(alias = "cuMemcpyDtoD")]
    pub fn copy_within(&mut self, to: usize, from: usize, size: usize) -> Result<()> {
        let target = self.beneath(to, size)?.needing(Access::ReadWrite)?;
        let source = self.beneath(from, size)?.needing(Access::Read)?;
        let device = self.device_that_copies(target, source)?;
        self.run(&device, |calls| {
            calls.copy_on_device(self.address(to), self.address(from), size)
        })
    }

    /// Copies `size` bytes from another reservation.
    ///
    /// # Errors
    ///
    /// As [`copy_within`](Reservation::copy_within), and [`Error::ForeignDriver`].
    #[doc(alias = "cuMemcpyDtoD")]
    pub fn copy_from(
        &mut self,
        to: usize,
        other: &Reservation,
        from: usize,
        size: usize,
    ) -> Result<()> {
        if !other.driver.is_same(&self.driver) {
            return Err(Error::ForeignDriver);
        }
        let target = self.beneath(to, size)?.needing(Access::ReadWrite)?;
        let source = other.beneath(from, size)?.needing(Access::Read)?;
        let device = self.device_that_copies(target, source)?;
        self.run(&device, |calls| {
            calls.copy_on_device(self.address(to), other.address(from), size)
        })
    }

    fn run(&self, device: &Device, operation: impl FnOnce(&Calls) -> Result<()>) -> Result<()> {
        self.driver.with_context(device.raw(), |calls| {
            operation(calls)?;
            calls.default_stream_synchronize()
        })
    }

    fn device_that_copies(&self, target: Need<'_>, source: Need<'_>) -> Result<Device> {
        if target.overlaps(&source) {
            return Err(Error::OverlappingCopy {
                to: target.range(),
                from: source.range(),
            });
        }
        self.device_that(&[target, source])
    }

    /// A device that has what the range needs, or what both the target and the source of a copy need.
    fn device_that(&self, needs: &[Need<'_>]) -> Result<Device> {
        let devices = || {
            let locations = needs.iter().flat_map(Need::locations);
            locations.filter_map(Location::device)
        };
        let may = |need: &Need<'_>, ordinal| need.met_by(Location::Device(ordinal));
        let may_all = |ordinal: &u32| needs.iter().all(|need| may(need, *ordinal));
        if let Some(ordinal) = devices().find(may_all) {
            return self.driver.device(ordinal);
        }
        let unmet = needs
            .iter()
            .find(|need| !devices().any(|ordinal| may(need, ordinal)));
        Err(match (unmet, needs) {
            (None, [to, .., from]) => Error::NoCommonDevice {
                to: to.range(),
                from: from.range(),
            },
            _ => unmet
                .or(needs.first())
                .map_or(Error::ForeignDriver, Need::refusal),
        })
    }
}

/// A range, and the access that an operation needs to all of it.
struct Need<'a> {
    reservation: &'a Reservation,
    asked: Range<usize>,
    access: Access,
}

impl<'a> Beneath<'a> {
    /// The range with the access that is needed, unless a part of it is quarantined.
    fn needing(self, access: Access) -> Result<Need<'a>> {
        let need = Need {
            reservation: self.reservation,
            asked: self.asked,
            access,
        };
        let quarantined = need.mappings().find(|mapping| mapping.is_quarantined());
        match quarantined.map(Mapping::range) {
            Some(mapping) => Err(Error::Quarantined { mapping }),
            None => Ok(need),
        }
    }
}

impl Need<'_> {
    fn mappings(&self) -> Beneath<'_> {
        Beneath {
            reservation: self.reservation,
            next: self.asked.start,
            asked: self.asked.clone(),
        }
    }

    fn range(&self) -> Range<usize> {
        self.asked.clone()
    }

    /// Everybody that has some right to the first mapping.
    fn locations(&self) -> impl Iterator<Item = Location> + '_ {
        let first = self.mappings().next();
        first
            .into_iter()
            .flat_map(|mapping| self.reservation.rights(mapping))
            .map(|(location, _)| location)
    }

    fn met_by(&self, location: Location) -> bool {
        let mut mappings = self.mappings();
        mappings.all(|mapping| self.reservation.rights_of(mapping, location) >= self.access)
    }

    /// Whether the two ranges share memory.
    fn overlaps(&self, other: &Need<'_>) -> bool {
        let (here, there) = (self.addresses(), other.addresses());
        if here.start < there.end && there.start < here.end {
            return true;
        }
        // Memory that two mappings share was mapped from an allocation in one of them at least.
        let shared = |mapping: &&Mapping| mapping.backing() == BackingKind::Shared;
        let mirrors = |mine: &Mapping, theirs: &Mapping| {
            let (mine_part, their_part) = (self.part_of(mine), other.part_of(theirs));
            mine.raw_handle().is_some()
                && mine.raw_handle() == theirs.raw_handle()
                && mine_part.start < their_part.end
                && their_part.start < mine_part.end
        };
        self.mappings()
            .filter(shared)
            .any(|mine| other.mappings().any(|theirs| mirrors(mine, theirs)))
            || other
                .mappings()
                .filter(shared)
                .any(|theirs| self.mappings().any(|mine| mirrors(mine, theirs)))
    }

    fn addresses(&self) -> Range<u64> {
        self.reservation.address(self.asked.start)..self.reservation.address(self.asked.end)
    }

    /// Which bytes of the mapping's memory the range covers.
    fn part_of(&self, mapping: &Mapping) -> Range<usize> {
        let range = mapping.range();
        let part = self.asked.start.max(range.start)..self.asked.end.min(range.end);
        part.start - range.start..part.end - range.start
    }

    fn refusal(&self) -> Error {
        let verb = if self.access.writes() {
            "write"
        } else {
            "read"
        };
        Error::NoAccess {
            range: self.asked.clone(),
            verb,
        }
    }
}
