//! Rebuilding a span from what was received: one reservation, or a place in one.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use super::import::{import, Source};
use super::read_only::ReadOnlySpan;
use crate::access::Access;
use crate::allocation::Allocation;
use crate::descriptor::{Descriptor, Home, SharedAllocation};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::handle_type::HandleType;
use crate::identity::Known;
use crate::location::Location;
use crate::mapping::MappingId;
use crate::reservation::{at_most, Reservation};

/// A span as it was received from its maker, to be attached.
///
/// Attaching takes it, and with it the file descriptors: they are closed when the memory is imported, or could not be.
#[derive(Debug)]
pub struct SpanImport {
    descriptor: Descriptor,
    fds: Vec<OwnedFd>,
}

impl SpanImport {
    /// What an [`ExportedSpan`](super::ExportedSpan) was taken apart into. Nothing in it is trusted.
    ///
    /// # Errors
    ///
    /// [`Error::Descriptor`] for bytes that describe no span, [`Error::WrongFdCount`]. The descriptors are closed then.
    pub fn new(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<SpanImport> {
        let descriptor = Descriptor::decode(bytes)?;
        match (descriptor.fd_count(), fds.len()) {
            (needed, got) if needed != got => Err(Error::WrongFdCount { needed, got }),
            _ => Ok(SpanImport { descriptor, fds }),
        }
    }

    /// What is in it. [`Descriptor::is_of_this_process`] recognises one's own export, which can be attached like any
    /// other.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Reserves addresses for the span, and maps every piece at its offset, with these rights for these devices.
    ///
    /// # Errors
    ///
    /// Before anything is imported: [`Error::MoreThanOffered`], [`Error::NoSuchUuid`] where this process does not see a
    /// device of the span, and what [`reserve`](crate::ReservationBuilder::reserve) answers. Then [`Error::WrongSize`]
    /// or [`Error::WrongPlace`] for a description that is not true, [`Error::NotAnExport`], or a driver failure.
    /// Nothing is left of it then.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub fn attach<L: Into<Location>>(
        self,
        driver: &Driver,
        policy: impl IntoIterator<Item = (L, Access)>,
    ) -> Result<Reservation> {
        let offered = self.descriptor.offered;
        self.attach_offering(offered, driver, policy)
    }

    /// [`attach`](Self::attach), to read only, for these devices. The type has nothing that writes.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub fn attach_read_only<L: Into<Location>>(
        self,
        driver: &Driver,
        readers: impl IntoIterator<Item = L>,
    ) -> Result<ReadOnlySpan> {
        let policy = readers.into_iter().map(|reader| (reader, Access::Read));
        self.attach_offering(Access::Read, driver, policy)
            .map(ReadOnlySpan::new)
    }

    /// Maps every piece into a reservation, at its offset behind this one, with what the reservation's policy grants.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach), and what [`map_existing`](Reservation::map_existing) answers to a range that cannot
    /// be mapped. The reservation is then as before, unless the error says that undoing failed too.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub fn attach_into(self, kv: &mut Reservation, offset: usize) -> Result<Vec<MappingId>> {
        let offered = self.descriptor.offered;
        for (_, access) in kv.policy() {
            at_most(access, offered)?;
        }
        let places = self.places(offset)?;
        for (index, at) in &places {
            kv.check_vacant(*at, self.size_of(*index))?;
        }
        let homes = self.homes(kv.driver())?;
        self.map_into(kv, &places, &homes, offered)
    }

    fn attach_offering<L: Into<Location>>(
        self,
        offered: Access,
        driver: &Driver,
        policy: impl IntoIterator<Item = (L, Access)>,
    ) -> Result<Reservation> {
        let mut builder = Reservation::builder(self.descriptor.size as usize);
        for (location, access) in policy {
            at_most(access, offered)?;
            builder = builder.access(location, access);
        }
        let places = self.places(0)?;
        let homes = self.homes(driver)?;
        let mut span = builder.reserve(driver)?;
        match self.map_into(&mut span, &places, &homes, offered) {
            Ok(_) => Ok(span),
            Err(error) => Err(span.surrender(error)),
        }
    }

    /// Which allocation goes where, with the span at this offset.
    fn places(&self, offset: usize) -> Result<Vec<(usize, usize)>> {
        let size = self.descriptor.size as usize;
        if offset.checked_add(size).is_none() {
            return Err(Error::Overflow { offset, size });
        }
        let place = |piece: &crate::descriptor::Piece| {
            (piece.allocation as usize, offset + piece.offset as usize)
        };
        Ok(self.descriptor.pieces.iter().map(place).collect())
    }

    fn size_of(&self, allocation: usize) -> usize {
        self.descriptor.allocations[allocation].size as usize
    }

    /// Where this process has each allocation's place.
    fn homes(&self, driver: &Driver) -> Result<Vec<Location>> {
        let mut known = HashMap::new();
        let mut resolve = |home| {
            if let Some(location) = known.get(&home) {
                return Ok(*location);
            }
            let location = match home {
                Home::Host => Location::Host,
                Home::HostNuma(node) => Location::HostNuma(node),
                Home::Device(uuid) => Location::from(&driver.device_by_uuid(uuid)?),
            };
            known.insert(home, location);
            Ok(location)
        };
        let allocations = self.descriptor.allocations.iter();
        allocations.map(|shared| resolve(shared.home)).collect()
    }

    /// Imports all and maps all, or neither.
    fn map_into(
        self,
        kv: &mut Reservation,
        places: &[(usize, usize)],
        homes: &[Location],
        offered: Access,
    ) -> Result<Vec<MappingId>> {
        let mut imported = Vec::with_capacity(homes.len());
        let mapped = self
            .import_all(kv.driver(), homes, offered, &mut imported)
            .and_then(|()| {
                let place = |(index, at): &(usize, usize)| (*at, &imported[*index]);
                kv.map_all(&places.iter().map(place).collect::<Vec<_>>())
            });
        match mapped {
            // The mappings hold them now.
            Ok(ids) => Ok(ids),
            Err(error) => Allocation::settle_all(imported.into_iter(), Err(error)),
        }
    }

    fn import_all(
        &self,
        driver: &Driver,
        homes: &[Location],
        offered: Access,
        imported: &mut Vec<Allocation>,
    ) -> Result<()> {
        for (index, shared) in self.descriptor.allocations.iter().enumerate() {
            let source = self.source(index, shared)?;
            let known = Known {
                id: shared.id,
                offered,
            };
            let allocation = import(driver, source, shared.size as usize, Some(known))?;
            let (claimed, actual) = (homes[index], allocation.location());
            imported.push(allocation);
            if claimed != actual {
                return Err(Error::WrongPlace { claimed, actual });
            }
        }
        Ok(())
    }

    fn source<'a>(&'a self, index: usize, shared: &'a SharedAllocation) -> Result<Source<'a>> {
        let source = match self.descriptor.handle_type {
            HandleType::PosixFd => self.fds.get(index).map(|fd| Source::Fd(fd.as_fd())),
            HandleType::Fabric => shared.fabric.as_ref().map(Source::Fabric),
        };
        source.ok_or(Error::WrongFdCount {
            needed: self.descriptor.fd_count(),
            got: self.fds.len(),
        })
    }
}
