//! One mapping: it unmaps first, then releases what backs it.

mod asleep;
mod backing;

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

pub(crate) use backing::Backing;

use crate::driver::Driver;
use crate::error::Result;
use crate::handle::Memory;
use crate::identity::Identity;
use crate::location::Location;
use crate::recipe::HandleTypes;
use crate::report::{self, Leak};

/// Physical memory mapped at a range of a reservation.
///
/// It lives in its [`Reservation`](crate::Reservation), which lends it out by reference, and owns what backs it: a
/// handle of its own, or a share of the caller's allocation. When it goes it unmaps, then releases. The reservation
/// does not go before it:
///
/// ```compile_fail,E0505
/// # use cuda_vmm::Reservation;
/// fn late(kv: Reservation) -> u64 {
///     let mapping = kv.mapping_at(0).unwrap();
///     kv.close().unwrap();
///     mapping.address()
/// }
/// ```
///
/// It can be neither copied nor cloned:
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
pub struct Mapping {
    driver: Driver,
    address: u64,
    offset: usize,
    size: usize,
    /// Creation order within the reservation.
    serial: u64,
    backing: Backing,
    location: Location,
    /// The kinds of sharing that the memory was created for.
    handle_types: HandleTypes,
    /// What is known of the memory, once it was exported, or when the handle is lost.
    identity: OnceLock<Identity>,
    /// Index of its rights among the reservation's sets.
    rights: u32,
    /// Base-two logarithm of the memory's granularity.
    granularity: u8,
    rdma: bool,
    compression: bool,
    /// Whether the memory was made for this mapping, so that other memory can be made in its place.
    own: bool,
    /// Whether its handle was given up after mapping, and is to be again.
    gives_up: bool,
    mapped: bool,
    quarantined: bool,
}

/// Where and as which a reservation has memory mapped.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) address: u64,
    pub(crate) offset: usize,
    pub(crate) serial: u64,
    pub(crate) rights: u32,
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

impl Mapping {
    /// Takes charge of the backing. Nothing is mapped yet.
    #[inline]
    pub(crate) fn new(driver: &Driver, place: Place, memory: Memory, backing: Backing) -> Mapping {
        let Memory {
            size,
            granularity,
            location,
            handle_types,
            rdma,
            compression,
        } = memory;
        Mapping {
            driver: driver.clone(),
            address: place.address,
            offset: place.offset,
            size,
            serial: place.serial,
            own: matches!(backing, Backing::Owned(_)),
            backing,
            location,
            handle_types,
            identity: OnceLock::new(),
            rights: place.rights,
            granularity: granularity.trailing_zeros() as u8,
            rdma,
            compression,
            gives_up: false,
            mapped: false,
            quarantined: false,
        }
    }

    /// Maps the backing's memory, whole. A backing without a handle has nothing to map.
    #[inline]
    pub(crate) fn map(&mut self) -> Result<()> {
        if let Some(raw) = self.raw_handle() {
            self.driver.calls().mem_map(self.address, self.size, raw)?;
            self.mapped = true;
        }
        Ok(())
    }

    /// Unmaps, if that was not done before.
    #[inline]
    pub(crate) fn unmap(&mut self) -> Result<()> {
        if self.mapped {
            self.driver
                .calls()
                .mem_unmap(self.address, self.size)
                .inspect_err(|error| self.quarantined |= error.is_disagreement())?;
            self.mapped = false;
        }
        Ok(())
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// First byte, counted from the start of the reservation.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The bytes, as offsets in the reservation.
    pub fn range(&self) -> Range<usize> {
        self.offset()..self.end()
    }

    /// Where the memory lies.
    pub fn location(&self) -> Location {
        self.location
    }

    /// Whether an earlier operation failed to undo this mapping. It is in the way until it is unmapped or the
    /// reservation is closed, and cannot be copied to or from.
    pub fn is_quarantined(&self) -> bool {
        self.quarantined
    }

    /// Whether its memory is mapped: not where it sleeps.
    pub(crate) fn has_memory(&self) -> bool {
        self.mapped
    }

    pub(crate) fn end(&self) -> usize {
        self.offset + self.size
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn rights(&self) -> u32 {
        self.rights
    }

    pub(crate) fn set_rights(&mut self, rights: u32) {
        self.rights = rights;
    }

    /// Leaves the mapping to the driver for good: an unmap has failed, and was reported. Its handle is still released.
    pub(crate) fn abandon(&mut self) {
        self.mapped = false;
    }

    pub(crate) fn quarantine(&mut self) {
        self.quarantined = true;
    }

    /// Notes that the driver has unmapped the pages, by a call over a longer range.
    #[inline]
    pub(crate) fn set_unmapped(&mut self) {
        self.mapped = false;
    }

    /// The memory beneath.
    pub(crate) fn memory(&self) -> Memory {
        Memory {
            size: self.size,
            granularity: 1 << self.granularity,
            location: self.location,
            handle_types: self.handle_types,
            rdma: self.rdma,
            compression: self.compression,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Never panics. A mapping that cannot be undone stays, and its reservation keeps the addresses beneath it.
        if let Err(error) = self.unmap() {
            report::leaked(Leak::Mapping {
                address: self.address,
                size: self.size,
                error,
            });
        }
        // Dropping the handle, if there is one, releases it.
        self.take_handle();
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("address", &format_args!("{:#x}", self.address))
            .field("range", &self.range())
            .field("location", &self.location)
            .field("backing", &self.backing())
            .field("quarantined", &self.quarantined)
            .finish_non_exhaustive()
    }
}

/// Names a mapping to the reservation it was made in.
///
/// Made by the `map` operations and used up by [`Reservation::unmap`](crate::Reservation::unmap), so that unmapping
/// twice does not compile:
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
