//! Importing: one allocation, by a file descriptor or a fabric handle.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use crate::allocation::{describe, is_partial_map, Allocation};
use crate::code::Code;
use crate::driver::{Driver, Piece};
use crate::error::{BadFd, Error, Result, What};
use crate::handle::{Handle, Memory};
use crate::handle_type::FabricHandle;
use crate::identity::Known;
use crate::range::aligned;

impl Allocation {
    /// The memory that another process exported as this file descriptor (`cuMemImportFromShareableHandle`).
    ///
    /// The descriptor stays the caller's and can be closed afterwards. `size` is what the other process says; that it
    /// is true is found out by mapping the memory, for a moment, at addresses of its own. The
    /// [location](Allocation::location) is as this process numbers devices.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::Misaligned`], [`Error::WrongSize`], [`Error::NotAnExport`] with what is wrong with
    /// the descriptor, as far as can be seen, or another driver failure. Nothing is imported then.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub fn import_fd(driver: &Driver, fd: BorrowedFd<'_>, size: usize) -> Result<Allocation> {
        Allocation::import_sized(driver, Source::Fd(fd), size)
    }

    /// The memory that another process, of this machine or of another on the fabric, exported as this handle
    /// (`cuMemImportFromShareableHandle`).
    ///
    /// # Errors
    ///
    /// As [`import_fd`](Self::import_fd); NOT_SUPPORTED or INVALID_HANDLE, among others, where the handle names
    /// nothing.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub fn import_fabric(
        driver: &Driver,
        handle: &FabricHandle,
        size: usize,
    ) -> Result<Allocation> {
        Allocation::import_sized(driver, Source::Fabric(handle), size)
    }

    fn import_sized(driver: &Driver, from: Source<'_>, size: usize) -> Result<Allocation> {
        if size == 0 {
            return Err(Error::ZeroSize {
                what: What::AllocationSize,
            });
        }
        let allocation = import(driver, from, size, None)?;
        match check_size(driver, &allocation) {
            Ok(()) => Ok(allocation),
            Err(error) => allocation.settle(Err(error)),
        }
    }
}

/// What names the memory to be imported.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Fd(BorrowedFd<'a>),
    Fabric(&'a FabricHandle),
}

/// Imports memory, of which the size has yet to be proved by mapping it.
pub(super) fn import(
    driver: &Driver,
    from: Source<'_>,
    size: usize,
    known: Option<Known>,
) -> Result<Allocation> {
    let calls = driver.calls();
    let raw = match from {
        Source::Fabric(handle) => calls.mem_import_fabric(handle, size)?,
        Source::Fd(fd) => calls
            .mem_import_fd(fd, size)
            .map_err(|error| match error.code() {
                Some(Code::ERROR_UNKNOWN) => Error::NotAnExport {
                    fd: fd.as_raw_fd(),
                    why: diagnose(fd),
                },
                _ => error,
            })?,
    };
    let described = describe(driver, raw).and_then(|recipe| {
        let granularity = driver.granularity(&recipe)?.minimum();
        aligned(What::AllocationSize, size, granularity)?;
        Ok(Memory::of(&recipe, size, granularity))
    });
    match described {
        Ok(memory) => {
            let handle = Handle::imported(driver, raw, memory, known);
            Ok(Allocation::from_handle(handle))
        }
        Err(error) => driver.settle(Piece::Handle { raw, size }, Err(error)),
    }
}

/// Finds out whether an import has the size that was claimed. The driver will not say how large it is, but maps a handle
/// whole or not at all: so it is mapped for a moment, at addresses of its own. What cannot be undone is left with the
/// driver.
fn check_size(driver: &Driver, allocation: &Allocation) -> Result<()> {
    let size = allocation.size();
    let alignment = allocation.share().memory().granularity;
    let base = driver.reserve(size, alignment, 0)?;
    driver.disown(base);
    match driver.calls().mem_map(base, size, allocation.raw()) {
        Ok(()) => {
            let mapped = vec![(base, size)];
            driver.settle(Piece::Mapped { base, size, mapped }, Ok(()))
        }
        Err(error) => {
            let error = match is_partial_map(&error) {
                true => Error::WrongSize { claimed: size },
                false => error,
            };
            driver.settle(Piece::Addresses { base, size }, Err(error))
        }
    }
}

/// What is wrong with a descriptor that the driver did not know.
fn diagnose(fd: BorrowedFd<'_>) -> BadFd {
    const EBADF: Option<i32> = Some(libc::EBADF);
    // A copy can be made of whatever is open.
    if fd
        .try_clone_to_owned()
        .is_err_and(|error| error.raw_os_error() == EBADF)
    {
        return BadFd::Closed;
    }
    match leads_to(fd) {
        Ok(leads_to) if !looks_like_an_export(&leads_to) => BadFd::Other { leads_to },
        leads_to => BadFd::Unknown {
            leads_to: leads_to.ok(),
        },
    }
}

fn leads_to(fd: BorrowedFd<'_>) -> io::Result<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// The driver's exports lead to its control device, the simulated driver's to its memory.
fn looks_like_an_export(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.starts_with("/dev/nvidia")
        || cfg!(feature = "sim") && path.starts_with("/memfd:cuda-vmm-sim:")
}
