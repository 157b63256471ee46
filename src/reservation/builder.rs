//! How a reservation is asked for.

use super::table::MAX_UNITS;
use super::Reservation;
use crate::access::{Access, Rights};
use crate::driver::Driver;
use crate::error::{Error, Result, What};
use crate::location::Location;
use crate::range::aligned;

/// What to reserve. Made by [`Reservation::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder reserves nothing before `reserve`"]
pub struct ReservationBuilder {
    size: usize,
    alignment: usize,
    address: Place,
    policy: Vec<(Location, Access)>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Anywhere,
    Hint(u64),
    Exactly(u64),
}

impl ReservationBuilder {
    pub(super) fn new(size: usize) -> Self {
        ReservationBuilder {
            size,
            alignment: 0,
            address: Place::Anywhere,
            policy: Vec::new(),
        }
    }

    /// The base is to be a multiple of this: a power of two in bytes, or 0 for the driver's choice (which is also the
    /// default).
    pub fn alignment(mut self, alignment: usize) -> Self {
        self.alignment = alignment;
        self
    }

    /// An address to try first. The driver may place the reservation elsewhere, and does so when the range is taken.
    pub fn hint(mut self, address: u64) -> Self {
        self.address = Place::Hint(address);
        self
    }

    /// The address it has to be. Placed elsewhere, the reservation is freed again and refused with
    /// [`Error::HintNotHonoured`].
    pub fn exact_address(mut self, address: u64) -> Self {
        self.address = Place::Exactly(address);
        self
    }

    /// Who may do what with everything that is mapped in the reservation: granted with every map.
    ///
    /// Of a device only its ordinal counts, as the driver of [`reserve`](Self::reserve) numbers devices.
    ///
    /// A host location's rights hold for host memory only: the driver has none to give on a device's. Without any call
    /// of this, mappings are accessible to nobody until [`set_access`](Reservation::set_access) or
    /// [`set_policy`](Reservation::set_policy).
    pub fn access(mut self, location: impl Into<Location>, access: Access) -> Self {
        self.policy.push((location.into(), access));
        self
    }

    /// Reserves the addresses. No memory is taken.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Misaligned`] (the size, and an address asked for, must be
    /// multiples of the granularity), [`Error::BadAlignment`], [`Error::Overflow`], [`Error::NoSuchDevice`],
    /// [`Error::NoSuchPlace`], [`Error::DuplicateAccess`]. From the driver: [`Error::OutOfAddressSpace`],
    /// [`Error::HintNotHonoured`], or another failure.
    #[doc(alias = "cuMemAddressReserve")]
    pub fn reserve(self, driver: &Driver) -> Result<Reservation> {
        let rights = self.rights(driver)?;
        let unit = self.check(driver)?;
        let alignment = self.base_alignment(driver)?;
        let (asked, exactly) = match self.address {
            Place::Anywhere => (0, None),
            Place::Hint(address) => (address, None),
            Place::Exactly(address) => (address, Some(address)),
        };
        let base = driver.reserve(self.size, alignment, asked)?;
        match exactly {
            Some(wanted) if wanted != base => {
                let undo = driver.unreserve(base, self.size).err();
                Err(Error::HintNotHonoured { wanted, got: base }
                    .with_undo(undo.into_iter().collect()))
            }
            _ => Ok(Reservation::new(
                driver.clone(),
                base,
                self.size,
                unit,
                rights,
            )),
        }
    }

    fn rights(&self, driver: &Driver) -> Result<Rights> {
        let mut rights = Rights::default();
        for &(location, access) in &self.policy {
            driver.check_location(location)?;
            if rights.contains(location) {
                return Err(Error::DuplicateAccess { location });
            }
            rights.set(location, access);
        }
        Ok(rights)
    }

    /// What is asked of the driver: its own choice will not do for the coarser of devices whose granularities differ.
    /// An address that was asked for stays what it is.
    fn base_alignment(&self, driver: &Driver) -> Result<usize> {
        let units = driver.units()?;
        let asked = match self.address {
            Place::Anywhere => 0,
            Place::Hint(address) | Place::Exactly(address) => address,
        };
        let can = asked % units.greatest as u64 == 0;
        Ok(match can && units.greatest > units.least {
            true => self.alignment.max(units.greatest),
            false => self.alignment,
        })
    }

    /// Gives the unit: what sizes and offsets in the reservation are multiples of at least.
    fn check(&self, driver: &Driver) -> Result<usize> {
        if self.size == 0 {
            return Err(Error::ZeroSize {
                what: What::ReservationSize,
            });
        }
        if self.alignment != 0 && !self.alignment.is_power_of_two() {
            return Err(Error::BadAlignment {
                alignment: self.alignment,
            });
        }
        let unit = driver.units()?.least;
        aligned(What::ReservationSize, self.size, unit)?;
        if let Place::Hint(address) | Place::Exactly(address) = self.address {
            let address = usize::try_from(address).map_err(|_| Error::Overflow {
                offset: usize::MAX,
                size: self.size,
            })?;
            aligned(What::Address, address, unit)?;
            if address.checked_add(self.size).is_none() {
                return Err(Error::Overflow {
                    offset: address,
                    size: self.size,
                });
            }
        }
        // Reservations of thousands of millions of granules are mapped in coarser steps.
        Ok(unit.max((self.size / MAX_UNITS + 1).next_power_of_two()))
    }
}
