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
use crate::mapping::Mapping;

impl Reservation {
    /// Copies bytes from the host to `[offset, offset + bytes.len())`.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Hole`], [`Error::NoAccess`]. Else a driver failure.
    #[doc(alias = "cuMemcpyHtoD")]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let address = self.address(offset);
        let device = self.device_that(&[self
            .beneath(offset, bytes.len())?
            .needing(Access::ReadWrite)?])?;
        self.run(&device, |calls| calls.copy_to_device(address, bytes))
    }

    /// Copies `[offset, offset + bytes.len())` to the host.
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write).
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let address = self.address(offset);
        let device =
            self.device_that(&[self.beneath(offset, bytes.len())?.needing(Access::Read)?])?;
        self.run(&device, |calls| calls.copy_to_host(bytes, address))
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

    /// Copies `size` bytes from one place of this reservation to another that does not overlap it.
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write), [`Error::OverlappingCopy`], and [`Error::NoCommonDevice`].
    #[doc(alias = "cuMemcpyDtoD")]
    pub fn copy_within(&mut self, to: usize, from: usize, size: usize) -> Result<()> {
        let target = self.beneath(to, size)?.needing(Access::ReadWrite)?;
        let source = self.beneath(from, size)?.needing(Access::Read)?;
        if to.abs_diff(from) < size {
            return Err(Error::OverlappingCopy {
                to: target.range(),
                from: source.range(),
            });
        }
        let device = self.device_that(&[target, source])?;
        self.run(&device, |calls| {
            calls.copy_on_device(self.address(to), self.address(from), size)
        })
    }

    /// Copies `size` bytes from another reservation.
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write), [`Error::ForeignDriver`], and [`Error::NoCommonDevice`].
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
        let device = self.device_that(&[target, source])?;
        self.run(&device, |calls| {
            calls.copy_on_device(self.address(to), other.address(from), size)
        })
    }

    fn run(&self, device: &Device, operation: impl FnOnce(&Calls) -> Result<()>) -> Result<()> {
        self.driver.with_context(device, |calls| {
            operation(calls)?;
            calls.default_stream_synchronize()
        })
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
