//! Exporting a span: allocations, held, the offsets at which they lie, and what becomes of that.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;

use super::export::exportable;
use crate::access::Access;
use crate::allocation::Allocation;
use crate::descriptor::{Descriptor, Home, Piece, SharedAllocation};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::handle::Origin;
use crate::handle_type::HandleType;
use crate::location::Location;
use crate::reservation::Reservation;

/// Allocations and where they lie in a span, whoever mapped them there; made by [`SpanSource::of_addresses`].
///
/// It holds one more count of each allocation, so that what was found stays what it is while this lives.
#[derive(Debug)]
pub struct SpanSource {
    driver: Driver,
    size: usize,
    /// From the first byte of the span to the first that was asked for.
    pub(super) lead: usize,
    /// Distinct, in the order in which they first appear.
    allocations: Vec<Allocation>,
    /// Offset in the span, and which allocation.
    pieces: Vec<(usize, usize)>,
    /// Further counts of allocations that were met more than once.
    spare: Vec<Allocation>,
}

impl SpanSource {
    /// Allocations at their offsets in a span of this size, in ascending order.
    pub(super) fn of(driver: &Driver, size: usize, held: Vec<(usize, Allocation)>) -> SpanSource {
        let mut source = SpanSource {
            driver: driver.clone(),
            size,
            lead: 0,
            allocations: Vec::new(),
            pieces: Vec::with_capacity(held.len()),
            spare: Vec::new(),
        };
        let mut known = HashMap::new();
        for (offset, allocation) in held {
            let next = source.allocations.len();
            let index = *known.entry(allocation.raw()).or_insert(next);
            source.pieces.push((offset, index));
            match index == next {
                true => source.allocations.push(allocation),
                false => source.spare.push(allocation),
            }
        }
        source
    }

    /// Bytes from the start of the first allocation to the end of the last.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where in the span the first address lies that was asked for: not at its start, if that cuts an allocation.
    pub fn lead(&self) -> usize {
        self.lead
    }

    /// What lies where: offsets in the span, and the whole allocation that lies there.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, &Allocation)> + '_ {
        self.pieces
            .iter()
            .map(|(offset, index)| (*offset, &self.allocations[*index]))
    }

    /// Exports the span, for others to read, or to read and write. What is exported does not need this source.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::NotExportable`], [`Error::ImportNotExportable`], [`Error::NothingOffered`].
    /// After a driver failure nothing is exported.
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export(&self, handle_type: HandleType, offered: Access) -> Result<ExportedSpan> {
        if !offered.reads() {
            return Err(Error::NothingOffered);
        }
        for allocation in &self.allocations {
            exportable(allocation.origin(), allocation.handle_types(), handle_type)?;
        }
        let mut homes = Homes::default();
        let mut fds = Vec::new();
        let mut shared = Vec::with_capacity(self.allocations.len());
        for allocation in &self.allocations {
            let home = homes.of(&self.driver, allocation.location())?;
            let fabric = match handle_type {
                HandleType::PosixFd => {
                    fds.push(allocation.export_fd()?);
                    None
                }
                // `kept` holds the memory below.
                HandleType::Fabric => Some(*allocation.export_fabric()?.handle()),
            };
            shared.push(SharedAllocation {
                id: allocation.id(),
                size: allocation.size() as u64,
                home,
                fabric,
            });
        }
        let keeps = handle_type == HandleType::Fabric;
        let held = self.allocations.iter().filter(|_| keeps);
        Ok(ExportedSpan {
            descriptor: Descriptor {
                size: self.size as u64,
                handle_type,
                offered,
                allocations: shared,
                pieces: self.described_pieces(),
            },
            fds,
            kept: Kept(held.map(Allocation::another_hold).collect()),
        })
    }

    /// Lets go of the allocations, with the driver's answer. Dropping does the same, and reports what the driver
    /// refuses.
    ///
    /// # Errors
    ///
    /// A driver failure; what was not given back is with the driver ([`Driver::reclaim`]).
    #[doc(alias = "cuMemRelease")]
    pub fn release(self) -> Result<()> {
        self.settle(Ok(()))
    }

    /// Ends an operation that needed this source.
    pub(super) fn settle<T>(self, result: Result<T>) -> Result<T> {
        let held = self.allocations.into_iter().chain(self.spare);
        Allocation::settle_all(held, result)
    }

    fn described_pieces(&self) -> Vec<Piece> {
        let described = |(offset, index): &(usize, usize)| Piece {
            offset: *offset as u64,
            // No more allocations than the address space has granules.
            allocation: *index as u32,
        };
        self.pieces.iter().map(described).collect()
    }
}

impl Reservation {
    /// Exports what is mapped in `[offset, offset + size)`, a range that cuts no mapping and may have holes, for others
    /// to read, or to read and write.
    ///
    /// Memory that is mapped several times is exported once. A mapping whose handle was given up is exported all the
    /// same.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`],
    /// [`Error::PartialMapping`], [`Error::Hole`] (nothing is mapped there at all), [`Error::Quarantined`],
    /// [`Error::NotExportable`], [`Error::ImportNotExportable`], [`Error::NothingOffered`]. After a driver failure
    /// nothing is exported.
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export_span(
        &self,
        offset: usize,
        size: usize,
        handle_type: HandleType,
        offered: Access,
    ) -> Result<ExportedSpan> {
        if !offered.reads() {
            return Err(Error::NothingOffered);
        }
        for mapping in self.whole_mappings_in(offset, size)? {
            let origin = mapping.shared_handle().map(|handle| handle.origin());
            let asked = mapping.memory().handle_types;
            exportable(origin.unwrap_or(Origin::Created), asked, handle_type)?;
        }
        let held = self.hold(offset, size)?;
        let source = SpanSource::of(self.driver(), size, held);
        let exported = source.export(handle_type, offered);
        source.settle(exported)
    }
}

/// A span, exported: what describes it, and what goes with that.
#[derive(Debug)]
#[must_use = "dropping it closes its file descriptors"]
pub struct ExportedSpan {
    descriptor: Descriptor,
    fds: Vec<OwnedFd>,
    kept: Kept,
}

/// What keeps the memory of a span that was exported by fabric handles. Of a span exported by fds it is empty: they
/// keep it themselves.
#[derive(Default)]
#[must_use = "memory shared by fabric handles goes with this"]
pub struct Kept(Vec<Allocation>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl ExportedSpan {
    /// What lies where.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The descriptors that go with it, one for each allocation, in their order. They can be passed on any number of
    /// times.
    pub fn fds(&self) -> &[OwnedFd] {
        &self.fds
    }

    /// The bytes to send, the descriptors to send with them, and what must be kept until the importers have attached.
    pub fn into_parts(self) -> (Vec<u8>, Vec<OwnedFd>, Kept) {
        (self.descriptor.encode(), self.fds, self.kept)
    }
}

/// The devices' UUIDs, each asked for once.
#[derive(Default)]
struct Homes(HashMap<u32, [u8; 16]>);

impl Homes {
    fn of(&mut self, driver: &Driver, location: Location) -> Result<Home> {
        match location {
            Location::Host => Ok(Home::Host),
            Location::HostNuma(node) => Ok(Home::HostNuma(node)),
            Location::Device(ordinal) => {
                if let Some(uuid) = self.0.get(&ordinal) {
                    return Ok(Home::Device(*uuid));
                }
                let uuid = driver.device(ordinal)?.uuid()?;
                self.0.insert(ordinal, uuid);
                Ok(Home::Device(uuid))
            }
            Location::Other { .. } => Err(Error::NoSuchPlace { location }),
        }
    }
}
