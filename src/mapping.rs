//! One mapping: it unmaps first, then releases what backs it.

mod asleep;

use std::fmt;
use std::mem;
use std::sync::{Arc, OnceLock};

use crate::access::Access;
use crate::driver::{Driver, RawHandle};
use crate::error::{Error, Result};
use crate::handle::{Handle, Memory};
use crate::identity::{self, Identity};
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

/// What keeps a mapping's memory.
pub(crate) enum Backing {
    /// One count of a handle, of the mapping's own.
    Owned(RawHandle),
    /// A share of an allocation of the caller's.
    Shared(Arc<Handle>),
    /// The driver alone, until the unmap: the handle was given up.
    GivenUp,
    /// As `GivenUp`, but only for the length of an unmap: if that fails, this handle is taken back.
    Released(RawHandle),
    /// Nothing: the mapping is asleep, and its memory is to be made anew.
    Asleep,
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
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset()..self.end()
    }

    /// Where the memory lies.
    pub fn location(&self) -> Location {
        self.location
    }

    /// How the memory is held.
    pub fn backing(&self) -> BackingKind {
        match self.backing {
            Backing::Asleep if !self.gives_up => BackingKind::Owned,
            Backing::Owned(_) => BackingKind::Owned,
            Backing::Shared(_) => BackingKind::Shared,
            Backing::GivenUp | Backing::Released(_) | Backing::Asleep => BackingKind::GivenUp,
        }
    }

    /// Whether an earlier operation failed to undo this mapping. It is in the way until it is unmapped or the
    /// reservation is closed, and cannot be copied to or from.
    pub fn is_quarantined(&self) -> bool {
        self.quarantined
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

    /// The raw handle, where one is held.
    pub(crate) fn raw_handle(&self) -> Option<RawHandle> {
        match &self.backing {
            Backing::Owned(raw) => Some(*raw),
            Backing::Shared(handle) => Some(handle.raw()),
            Backing::GivenUp | Backing::Released(_) | Backing::Asleep => None,
        }
    }

    /// Takes the handle whose count is to be given back, if there is one: the mapping's own, or a share that is the
    /// last. The mapping is then without.
    #[inline]
    pub(crate) fn take_handle(&mut self) -> Option<Handle> {
        match mem::replace(&mut self.backing, Backing::GivenUp) {
            Backing::Owned(raw) => {
                let identity = mem::take(&mut self.identity);
                Some(Handle::created(&self.driver, raw, self.memory(), identity))
            }
            Backing::Shared(share) => Arc::into_inner(share).filter(Handle::is_owned),
            Backing::GivenUp | Backing::Released(_) | Backing::Asleep => None,
        }
    }

    /// Releases the mapping's own handle, or a share that is the last, while the memory is mapped. A share that is not
    /// the last stays.
    #[inline]
    pub(crate) fn release_handle(&mut self) -> Result<()> {
        match &mut self.backing {
            // Nobody else can come by a share of an allocation that only this mapping holds.
            Backing::Shared(share) => Arc::get_mut(share).map_or(Ok(()), Handle::release_count),
            _ => self.release_own_handle(),
        }
    }

    /// Releases the mapping's own handle, while the memory is mapped.
    #[inline]
    pub(crate) fn release_own_handle(&mut self) -> Result<()> {
        if let Backing::Owned(raw) = self.backing {
            self.driver.calls().mem_release(raw, self.size)?;
            self.backing = Backing::Released(raw);
        }
        Ok(())
    }

    /// Takes back the count that `release_handle` released: the driver gives it again for the mapped address. If it
    /// does not, nothing is lost: the driver keeps the memory until the unmap.
    pub(crate) fn retain_handle(&mut self) -> Result<()> {
        let (released, sole_share) = match &mut self.backing {
            Backing::Released(raw) => (*raw, None),
            Backing::Shared(share) => match Arc::get_mut(share).filter(|handle| !handle.is_owned())
            {
                Some(handle) => (handle.raw(), Some(handle)),
                None => return Ok(()),
            },
            Backing::Owned(_) | Backing::GivenUp | Backing::Asleep => return Ok(()),
        };
        let raw = match self.driver.calls().mem_retain(self.address) {
            Ok(raw) => raw,
            Err(error) => {
                let name = sole_share.and_then(|handle| handle.known_identity().cloned());
                if let Some(name) = name {
                    self.hold_identity(&name);
                }
                self.backing = Backing::GivenUp;
                let error = error.contradicting(|| self.is_mapped(released));
                self.quarantined |= error.is_disagreement();
                return Err(error);
            }
        };
        // Whichever it is, its count is to be given back.
        match sole_share {
            Some(handle) => handle.take_count(raw),
            None => self.backing = Backing::Owned(raw),
        }
        if raw == released {
            return Ok(());
        }
        self.quarantined = true;
        Err(Error::disagreement(
            self.is_mapped(released),
            format!("gives {raw:#x} for that address"),
        ))
    }

    fn is_mapped(&self, raw: RawHandle) -> String {
        format!("handle {raw:#x} is mapped at {:#x}", self.address)
    }

    /// Releases the handle for good: from now on the memory lives by being mapped.
    pub(crate) fn give_handle_up(&mut self) -> Result<()> {
        self.gives_up = true;
        self.release_handle()?;
        self.backing = Backing::GivenUp;
        Ok(())
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

    /// The caller's allocation that backs it, where it is one.
    pub(crate) fn shared_handle(&self) -> Option<&Arc<Handle>> {
        match &self.backing {
            Backing::Shared(handle) => Some(handle),
            _ => None,
        }
    }

    /// What the memory's maker lets others do with it.
    pub(crate) fn offered(&self) -> Access {
        match &self.backing {
            Backing::Shared(handle) => handle.offered(),
            _ => identity::offered(&self.identity),
        }
    }

    /// Whether others may have come by the memory: it was exported, or is held by somebody else here, by a count that
    /// was taken over or retained from the address, say.
    pub(crate) fn is_known_outside(&self) -> bool {
        match self.backing {
            Backing::Owned(raw) => {
                self.identity.get().is_some() || self.driver.known(raw).is_some()
            }
            _ => true,
        }
    }

    /// Holds the memory's name for as long as the memory is mapped, so that it stays the same.
    pub(crate) fn hold_identity(&self, identity: &Identity) {
        self.identity.get_or_init(|| identity.clone());
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
