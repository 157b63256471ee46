//! Exporting one allocation, as a file descriptor or a fabric handle.

use std::os::fd::OwnedFd;

use crate::allocation::Allocation;
use crate::error::{Error, Result};
use crate::handle::Origin;
use crate::handle_type::{FabricHandle, HandleType};
use crate::recipe::HandleTypes;

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
