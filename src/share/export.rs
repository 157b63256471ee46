//! Exporting: an allocation, or a span of a reservation.

use std::fmt;
use std::os::fd::OwnedFd;

use super::source::SpanSource;
use crate::access::Access;
use crate::allocation::Allocation;
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};
use crate::handle::Origin;
use crate::handle_type::{FabricHandle, HandleType};
use crate::recipe::HandleTypes;
use crate::reservation::Reservation;

impl Allocation {
    /// A file descriptor that names this memory to whichever process on this machine it is passed to
    /// (`cuMemExportToShareableHandle`).
    ///
    /// It keeps the memory until it, and every copy of it, is closed; its number means nothing elsewhere. It is closed
    /// on exec. Each call makes another one.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::NotExportable`] where the allocation was not created for it,
    /// [`Error::ImportNotExportable`]. Else a driver failure.
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export_fd(&self) -> Result<OwnedFd> {
        exportable(self.origin(), self.handle_types(), HandleType::PosixFd)?;
        let calls = self.driver().calls();
        calls.mem_export_fd(self.raw(), self.size())
    }

    /// A fabric handle for this memory (`cuMemExportToShareableHandle`), and a hold on the memory, which the handle by
    /// itself has not.
    ///
    /// # Errors
    ///
    /// As [`export_fd`](Self::export_fd).
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export_fabric(&self) -> Result<FabricExport> {
        exportable(self.origin(), self.handle_types(), HandleType::Fabric)?;
        let calls = self.driver().calls();
        let handle = calls.mem_export_fabric(self.raw(), self.size())?;
        Ok(FabricExport {
            handle,
            allocation: self.another_hold(),
        })
    }
}

/// Whether memory can be exported in this way at all.
pub(super) fn exportable(
    origin: Origin,
    asked: HandleTypes,
    handle_type: HandleType,
) -> Result<()> {
    let needed = HandleTypes::from(handle_type);
    match origin {
        Origin::Imported => Err(Error::ImportNotExportable),
        _ if !asked.contains(needed) => Err(Error::NotExportable { asked, needed }),
        _ => Ok(()),
    }
}

/// An allocation's fabric handle. The memory stays as long as this does; nothing else of an export holds it.
#[derive(Debug)]
#[must_use = "the handle names nothing once the memory is gone: keep this until every importer has it"]
pub struct FabricExport {
    handle: FabricHandle,
    allocation: Allocation,
}

impl FabricExport {
    /// The handle, whose 64 bytes travel by whatever the application has.
    pub fn handle(&self) -> &FabricHandle {
        &self.handle
    }

    /// Bytes of the memory. The importer is to be told: the handle does not say.
    pub fn size(&self) -> usize {
        self.allocation.size()
    }
}

/// A span, exported: what describes it, and what goes with that.
#[derive(Debug)]
#[must_use = "dropping it closes its file descriptors"]
pub struct ExportedSpan {
    pub(super) descriptor: Descriptor,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) kept: Kept,
}

/// What keeps the memory of a span that was exported by fabric handles. Of a span exported by fds it is empty: they
/// keep it themselves.
#[derive(Default)]
#[must_use = "memory shared by fabric handles goes with this"]
pub struct Kept(pub(super) Vec<Allocation>);

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
