//! Exports and imports.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{driver_call, Calls, RawHandle};
use crate::driver::answers;
use crate::error::{Attempt, Result};
use crate::handle_type::{FabricHandle, HandleType};
use crate::sys::{CUmemFabricHandle, Call};

impl Calls {
    /// Each export is a descriptor of its own, which is closed on exec.
    pub(crate) fn mem_export_fd(&self, handle: RawHandle, size: usize) -> Result<OwnedFd> {
        let mut fd: c_int = -1;
        let kind = HandleType::PosixFd;
        driver_call!(
            self.cuMemExportToShareableHandle((&raw mut fd).cast(), handle, kind.to_raw(), 0),
            Attempt::Share {
                handle_type: kind,
                size
            }
        )?;
        let fd = answers::descriptor(fd)?;
        // SAFETY: the driver made the descriptor for the caller, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub(crate) fn mem_export_fabric(&self, handle: RawHandle, size: usize) -> Result<FabricHandle> {
        let mut name = CUmemFabricHandle { data: [0; 64] };
        let kind = HandleType::Fabric;
        driver_call!(
            self.cuMemExportToShareableHandle((&raw mut name).cast(), handle, kind.to_raw(), 0),
            Attempt::Share {
                handle_type: kind,
                size
            }
        )?;
        Ok(FabricHandle(name.data))
    }

    /// The descriptor stays the caller's, and is not needed for the handle to live.
    pub(crate) fn mem_import_fd(&self, fd: BorrowedFd<'_>, size: usize) -> Result<RawHandle> {
        let mut handle = 0;
        let kind = HandleType::PosixFd;
        // Passed by value, in the pointer's place.
        let shareable = fd.as_raw_fd() as isize as *mut c_void;
        driver_call!(
            self.cuMemImportFromShareableHandle(&mut handle, shareable, kind.to_raw()),
            Attempt::Share {
                handle_type: kind,
                size
            }
        )?;
        answers::handle(Call::cuMemImportFromShareableHandle, handle)
    }

    pub(crate) fn mem_import_fabric(&self, name: &FabricHandle, size: usize) -> Result<RawHandle> {
        let mut handle = 0;
        let kind = HandleType::Fabric;
        let mut shareable = CUmemFabricHandle { data: name.0 };
        driver_call!(
            self.cuMemImportFromShareableHandle(
                &mut handle,
                (&raw mut shareable).cast(),
                kind.to_raw()
            ),
            Attempt::Share {
                handle_type: kind,
                size
            }
        )?;
        answers::handle(Call::cuMemImportFromShareableHandle, handle)
    }
}
