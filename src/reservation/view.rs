//! Where mapped bytes are: an address and a length, never a slice.

use std::marker::PhantomData;

use super::Reservation;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::location::Location;

/// Address and length of a mapped range, in bytes.
///
/// It borrows its reservation, so that it cannot be used when the memory is gone:
///
/// ```compile_fail,E0505
/// # use cuda_vmm::Reservation;
/// fn late(kv: Reservation) -> u64 {
///     let view = kv.view(0, 2 << 20).unwrap();
///     kv.close().unwrap();
///     view.address()
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    address: u64,
    offset: usize,
    size: usize,
    reservation: &'a Reservation,
}

/// Address and length of a mapped range, in elements of a type.
#[derive(Debug, Clone, Copy)]
pub struct Elements<'a, T> {
    view: View<'a>,
    element: PhantomData<fn() -> T>,
}

impl Reservation {
    /// The address of `[offset, offset + size)`, a range that is mapped throughout.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Hole`].
    pub fn view(&self, offset: usize, size: usize) -> Result<View<'_>> {
        self.beneath(offset, size)?;
        Ok(View {
            address: self.address(offset),
            offset,
            size,
            reservation: self,
        })
    }
}

impl<'a> View<'a> {
    /// First address (`CUdeviceptr`).
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether work of the device can read all of it. The rights that were granted say so; no driver call is made.
    ///
    /// Not where the state of a mapping is not certain, nor of another driver's reservation: its ordinals and addresses
    /// are not those of the device.
    pub(crate) fn is_readable_by(&self, device: &Device) -> bool {
        let reservation = self.reservation;
        let location = Location::Device(device.ordinal());
        let Ok(mut beneath) = reservation.beneath(self.offset, self.size) else {
            return false;
        };
        reservation.driver.is_alike(device.driver())
            && beneath.all(|mapping| {
                let certain = mapping.has_memory() && !mapping.is_quarantined();
                certain && reservation.rights_of(mapping, location).reads()
            })
    }

    /// The same range, counted in elements.
    ///
    /// # Errors
    ///
    /// [`Error::Elements`] where the address is not aligned for the type or the size is no multiple of its size.
    pub fn elements<T: Copy>(&self) -> Result<Elements<'a, T>> {
        let size = size_of::<T>();
        let fits = size != 0 && self.size % size == 0 && self.address % align_of::<T>() as u64 == 0;
        match fits {
            true => Ok(Elements {
                view: *self,
                element: PhantomData,
            }),
            false => Err(Error::Elements {
                range: self.offset..self.offset + self.size,
                size,
            }),
        }
    }
}

impl<T> Elements<'_, T> {
    /// First address (`CUdeviceptr`).
    pub fn address(&self) -> u64 {
        self.view.address
    }

    /// Elements.
    pub fn count(&self) -> usize {
        self.view.size / size_of::<T>()
    }
}
