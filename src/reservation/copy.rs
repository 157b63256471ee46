//! Copies and fills, checked against what is mapped and granted, across the seams of mappings.
//!
//! Each runs in the primary context of a device that may do it, on that device's default stream, and is done when it
//! returns.

use std::ops::Range;

use super::{Beneath, Reservation};
use crate::access::Access;
use crate::device::Device;
use crate::driver::Calls;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::mapping::{BackingKind, Mapping};
use crate::sys::CUstream;

impl Reservation {
    /// Copies bytes from the host to `[offset, offset + bytes.len())`.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Hole`],
    /// [`Error::NoAccess`]. Else a driver failure.
    #[doc(alias = "cuMemcpyHtoD")]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let target = self
            .beneath(offset, bytes.len())?
            .needing(Access::ReadWrite)?;
        self.in_pieces(&[target], |calls, at, size| {
            calls.copy_to_device(self.address(offset + at), &bytes[at..at + size])
        })
    }

    /// Copies `[offset, offset + bytes.len())` to the host.
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write).
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let source = self.beneath(offset, bytes.len())?.needing(Access::Read)?;
        self.in_pieces(&[source], |calls, at, size| {
            calls.copy_to_host(&mut bytes[at..at + size], self.address(offset + at))
        })
    }

    /// Sets every byte of `[offset, offset + size)`.
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write).
    #[doc(alias = "cuMemsetD8")]
    pub fn fill(&mut self, offset: usize, size: usize, value: u8) -> Result<()> {
        let target = self.beneath(offset, size)?.needing(Access::ReadWrite)?;
        self.in_pieces(&[target], |calls, at, size| {
            calls.fill(self.address(offset + at), value, size)
        })
    }

    /// Copies `size` bytes from one place of this reservation to another that shares no memory with it, neither by its
    /// addresses nor by way of a mirror (as far as the handles of both are held).
    ///
    /// # Errors
    ///
    /// As [`write`](Reservation::write), [`Error::OverlappingCopy`], and [`Error::NoCommonDevice`].
    #[doc(alias = "cuMemcpyDtoD")]
    pub fn copy_within(&mut self, to: usize, from: usize, size: usize) -> Result<()> {
        let target = self.beneath(to, size)?.needing(Access::ReadWrite)?;
        let source = self.beneath(from, size)?.needing(Access::Read)?;
        self.in_pieces(&apart(target, source)?, |calls, at, size| {
            calls.copy_on_device(self.address(to + at), self.address(from + at), size)
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
        let needs = self.copy_needs(to, other, from, size)?;
        self.in_pieces(&needs, |calls, at, size| {
            calls.copy_on_device(self.address(to + at), other.address(from + at), size)
        })
    }

    /// Both ends of a copy from another reservation, checked.
    fn copy_needs<'a>(
        &'a self,
        to: usize,
        other: &'a Reservation,
        from: usize,
        size: usize,
    ) -> Result<[Need<'a>; 2]> {
        if !other.driver.is_same(&self.driver) {
            return Err(Error::ForeignDriver);
        }
        let target = self.beneath(to, size)?.needing(Access::ReadWrite)?;
        let source = other.beneath(from, size)?.needing(Access::Read)?;
        apart(target, source)
    }

    /// [`copy_from`](Reservation::copy_from) in the order of a stream, which is asked for with the device that copies.
    /// Returns when the copy is enqueued.
    pub(crate) fn enqueue_copy_from(
        &mut self,
        to: usize,
        other: &Reservation,
        from: usize,
        size: usize,
        stream: impl FnOnce(&Device) -> Result<CUstream>,
    ) -> Result<()> {
        let needs = self.copy_needs(to, other, from, size)?;
        let device = self.device_that(&needs)?;
        let stream = stream(&device)?;
        self.driver.with_context(device.raw(), |calls| {
            let (to, from) = (self.address(to), other.address(from));
            pieces(&needs).into_iter().try_for_each(|piece| {
                let at = piece.start as u64;
                calls.enqueue_copy(to + at, from + at, piece.len(), stream)
            })
        })
    }

    /// Does the operation to the ranges, from an offset for a size, and waits for it.
    fn in_pieces(
        &self,
        needs: &[Need<'_>],
        mut operation: impl FnMut(&Calls, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let device = self.device_that(needs)?;
        self.driver.with_context(device.raw(), |calls| {
            for piece in pieces(needs) {
                operation(calls, piece.start, piece.len())?;
            }
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

/// The pieces that an operation on the ranges is made in: all at once, or, where the host has rights, from seam to seam.
/// There the driver copies through the host's own mapping, and a copy over the end of one ends the process (seen on an
/// H200 with driver 580.159).
fn pieces(needs: &[Need<'_>]) -> Vec<Range<usize>> {
    let size = needs.first().map_or(0, |need| need.asked.len());
    let mut ends: Vec<usize> = needs.iter().flat_map(Need::seams).collect();
    ends.sort_unstable();
    ends.retain(|end| *end < size);
    ends.push(size);
    let mut at = 0;
    ends.dedup();
    let piece = |end| std::mem::replace(&mut at, end)..end;
    ends.into_iter().map(piece).collect()
}

/// The two ends of a copy, if they share no memory.
fn apart<'a>(target: Need<'a>, source: Need<'a>) -> Result<[Need<'a>; 2]> {
    match target.overlaps(&source) {
        true => Err(Error::OverlappingCopy {
            to: target.range(),
            from: source.range(),
        }),
        false => Ok([target, source]),
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
        if let Some(mapping) = quarantined.map(Mapping::range) {
            return Err(Error::Quarantined { mapping });
        }
        let by_host = |mapping: &&Mapping| need.reservation.host_access(mapping);
        let read_only = need
            .mappings()
            .find(|mapping| access.writes() && by_host(mapping) == Access::Read);
        match read_only.map(Mapping::range) {
            Some(mapping) => Err(Error::HostReadOnly { mapping }),
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

    /// Where a copy has to be cut, counted from the start of the range: at the end of every mapping, if the host has
    /// rights to one.
    fn seams(&self) -> impl Iterator<Item = usize> + '_ {
        let host = |mapping: &Mapping| self.reservation.host_access(mapping).reads();
        let cut = self.mappings().any(host);
        let ends = self.mappings().map(|mapping| mapping.end());
        ends.filter(move |_| cut).map(|end| end - self.asked.start)
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
