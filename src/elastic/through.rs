//! What is the reservation's to do, where it is committed: copies, views, rights.

use super::ElasticRange;
use crate::access::Access;
use crate::error::Result;
use crate::location::Location;
use crate::reservation::{Reservation, View};

impl ElasticRange {
    /// The address of `[offset, offset + size)`, all of it committed. Nothing can be decommitted while the view is in
    /// use:
    ///
    /// ```compile_fail,E0502
    /// # use cuda_vmm::ElasticRange;
    /// fn late(kv: &mut ElasticRange) -> u64 {
    ///     let view = kv.view(0, 2 << 20).unwrap();
    ///     kv.decommit(0, 2 << 20).unwrap();
    ///     view.address()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`](crate::Error::ZeroSize), [`Error::Overflow`](crate::Error::Overflow),
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::NotCommitted`](crate::Error::NotCommitted).
    pub fn view(&self, offset: usize, size: usize) -> Result<View<'_>> {
        self.committed(offset, size)?;
        self.reservation.view(offset, size)
    }

    /// [`Reservation::write`], where everything is committed.
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view) before any driver call, else as [`Reservation::write`].
    #[doc(alias = "cuMemcpyHtoD")]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.committed(offset, bytes.len())?;
        self.reservation.write(offset, bytes)
    }

    /// [`Reservation::read`], where everything is committed.
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view) before any driver call, else as [`Reservation::read`].
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.committed(offset, bytes.len())?;
        self.reservation.read(offset, bytes)
    }

    /// [`Reservation::fill`], where everything is committed.
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view) before any driver call, else as [`Reservation::fill`].
    #[doc(alias = "cuMemsetD8")]
    pub fn fill(&mut self, offset: usize, size: usize, value: u8) -> Result<()> {
        self.committed(offset, size)?;
        self.reservation.fill(offset, size, value)
    }

    /// [`Reservation::copy_within`], where everything is committed.
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view) before any driver call, else as [`Reservation::copy_within`].
    #[doc(alias = "cuMemcpyDtoD")]
    pub fn copy_within(&mut self, to: usize, from: usize, size: usize) -> Result<()> {
        self.committed(to, size)?;
        self.committed(from, size)?;
        self.reservation.copy_within(to, from, size)
    }

    /// [`Reservation::copy_from`], where everything is committed here. Another elastic range is copied from by its
    /// [`reservation`](Self::reservation).
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view) before any driver call, else as [`Reservation::copy_from`].
    #[doc(alias = "cuMemcpyDtoD")]
    pub fn copy_from(
        &mut self,
        to: usize,
        other: &Reservation,
        from: usize,
        size: usize,
    ) -> Result<()> {
        self.committed(to, size)?;
        self.reservation.copy_from(to, other, from, size)
    }

    /// Changes the policy: what the location may do with every block, now and later, as [`Reservation::set_policy`].
    ///
    /// # Errors
    ///
    /// As [`Reservation::set_policy`].
    #[doc(alias = "cuMemSetAccess")]
    pub fn set_policy(&mut self, location: impl Into<Location>, access: Access) -> Result<()> {
        self.reservation.set_policy(location, access)
    }

    /// The access policy: what every block is granted.
    pub fn policy(&self) -> impl Iterator<Item = (Location, Access)> + '_ {
        self.reservation.policy()
    }

    /// What a location may do with a committed byte, as the driver says. As [`Reservation::access_of`].
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view) before any driver call, else as [`Reservation::access_of`].
    #[doc(alias = "cuMemGetAccess")]
    pub fn access_of(&self, offset: usize, location: impl Into<Location>) -> Result<Access> {
        self.committed(offset, 1)?;
        self.reservation.access_of(offset, location)
    }
}
