//! One mapping: pages that are unmapped first, then the backing that is released.

use std::sync::Arc;

use crate::allocation::Handle;
use crate::driver::{Driver, RawHandle};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::report::{self, Leak};

/// Physical memory mapped at a range of a reservation.
///
/// It lives in its [`Reservation`](crate::Reservation), which lends it out by reference, and owns what backs it: a handle of its own, or a
/// share of the caller's allocation. When it goes it unmaps, then releases. It can be neither copied nor cloned:
///
/// ```compile_fail,E0599
/// # use cuda_vmm::Mapping;
/// fn twice(mapping: Mapping) -> (Mapping, Mapping) {
///     (mapping.clone(), mapping)
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use cuda_vmm::Mapping;
/// fn twice(mapping: Mapping) -> (Mapping, Mapping) {
///     (mapping, mapping)
/// }
/// ```
#[derive(Debug)]
pub struct Mapping {
    // Fields are dropped in this order: unmapped, then released.
    pages: Pages,
    backing: Backing,
    place: Place,
}

/// What a reservation notes of a mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    /// Creation order within the reservation.
    pub(crate) serial: u64,
    /// Index of its rights among the reservation's sets.
    pub(crate) rights: u32,
    pub(crate) location: Location,
    pub(crate) quarantined: bool,
}

/// What keeps a mapping's memory.
#[derive(Debug)]
pub(crate) enum Backing {
    /// The mapping's own handle.
    Owned(Handle),
    /// A share of an allocation of the caller's.
    Shared(Arc<Handle>),
    /// The driver alone, until the unmap: the handle was given up.
    GivenUp,
    /// As `GivenUp`, but only for the length of an unmap: if that fails, the handle is taken back.
    Released,
}

/// How a mapping's memory is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackingKind {
    /// By a handle that belongs to the mapping.
    Owned,
    /// By a share of an allocation that was mapped with `map_existing`.
    Shared,
    /// By being mapped: the handle was given up after mapping.
    GivenUp,
}

/// Mapped addresses. Dropping them unmaps.
#[derive(Debug)]
struct Pages {
    driver: Driver,
    address: u64,
    size: usize,
    mapped: bool,
}

impl Pages {
    #[inline]
    fn unmap(&mut self) -> Result<()> {
        if self.mapped {
            self.driver.calls().mem_unmap(self.address, self.size)?;
            self.mapped = false;
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // Never panics; a mapping that cannot be undone stays, and its reservation keeps the addresses beneath it.
        if let Err(error) = self.unmap() {
            report::leaked(Leak::Mapping {
                address: self.address,
                size: self.size,
                error,
            });
        }
    }
}

impl Mapping {
    /// Maps the memory of a handle that backs it, whole, at the address. The backing comes back if that fails.
    #[inline]
    pub(crate) fn make(
        driver: &Driver,
        address: u64,
        (raw, size): (RawHandle, usize),
        backing: Backing,
        place: Place,
    ) -> Result<Mapping, (Backing, Error)> {
        match driver.calls().mem_map(address, size, raw) {
            Ok(()) => Ok(Mapping {
                pages: Pages {
                    driver: driver.clone(),
                    address,
                    size,
                    mapped: true,
                },
                backing,
                place,
            }),
            Err(error) => Err((backing, error)),
        }
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.pages.address
    }

    /// First byte, counted from the start of the reservation.
    pub fn offset(&self) -> usize {
        self.place.offset
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.pages.size
    }

    /// The bytes, as offsets in the reservation.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset()..self.end()
    }

    /// Where the memory lies.
    pub fn location(&self) -> Location {
        self.place.location
    }

    /// How the memory is held.
    pub fn backing(&self) -> BackingKind {
        match self.backing {
            Backing::Owned(_) => BackingKind::Owned,
            Backing::Shared(_) => BackingKind::Shared,
            Backing::GivenUp | Backing::Released => BackingKind::GivenUp,
        }
    }

    /// Whether an earlier operation failed to undo this mapping. It is in the way until it is unmapped or the reservation is
    /// closed, and cannot be copied to or from.
    pub fn is_quarantined(&self) -> bool {
        self.place.quarantined
    }

    pub(crate) fn end(&self) -> usize {
        self.place.offset + self.pages.size
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn place_mut(&mut self) -> &mut Place {
        &mut self.place
    }

    /// The raw handle, where one is held.
    pub(crate) fn raw_handle(&self) -> Option<u64> {
        match &self.backing {
            Backing::Owned(handle) => Some(handle.raw()),
            Backing::Shared(handle) => Some(handle.raw()),
            Backing::GivenUp | Backing::Released => None,
        }
    }

    pub(crate) fn backing_mut(&mut self) -> &mut Backing {
        &mut self.backing
    }

    #[inline]
    pub(crate) fn unmap(&mut self) -> Result<()> {
        self.pages.unmap()
    }

    /// Notes that the driver has unmapped the pages already, by a call over a longer range.
    #[inline]
    pub(crate) fn set_unmapped(&mut self) {
        self.pages.mapped = false;
    }

    /// What backs the mapping, once it is unmapped.
    #[inline]
    pub(crate) fn into_backing(self) -> Backing {
        debug_assert!(!self.pages.mapped);
        self.backing
    }
}

/// Names a mapping to the reservation it was made in.
///
/// Made by the `map` operations and used up by [`Reservation::unmap`](crate::Reservation::unmap), so that unmapping twice does not compile:
///
/// ```compile_fail,E0382
/// # use cuda_vmm::{MappingId, Reservation};
/// fn twice(kv: &mut Reservation, block: MappingId) {
///     kv.unmap(block).unwrap();
///     kv.unmap(block).unwrap();
/// }
/// ```
///
/// Dropping it leaves the mapping where it is: the reservation owns it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct MappingId {
    pub(crate) offset: usize,
    pub(crate) serial: u64,
    pub(crate) reservation: u64,
}

impl MappingId {
    /// First byte, counted from the start of the reservation.
    pub fn offset(&self) -> usize {
        self.offset
    }
}
