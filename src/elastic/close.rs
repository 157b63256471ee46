//! The end of an elastic range: that of its reservation, and what is cached.

use super::ElasticRange;
use crate::fence::Fence;
use crate::reservation::{CloseError, Closing, Reservation};

impl ElasticRange {
    /// Unmaps and releases everything, cached blocks too, and frees the addresses. As [`Reservation::close`]; what was
    /// cached is the reservation's from then on.
    ///
    /// # Errors
    ///
    /// As [`Reservation::close`].
    #[doc(alias = "cuMemAddressFree")]
    pub fn close(self) -> Result<(), Box<CloseError>> {
        self.into_reservation().close()
    }

    /// [`close`](Self::close), once the fence is passed. As [`Reservation::close_after`].
    ///
    /// # Errors
    ///
    /// As [`Reservation::close_after`].
    #[doc(alias = "cuMemAddressFree")]
    pub fn close_after(self, fence: Fence<'_>) -> Result<(), Box<CloseError>> {
        self.into_reservation().close_after(fence)
    }

    /// Closes on a thread of its own, once the fence is passed. As [`Reservation::close_in_background`].
    ///
    /// # Errors
    ///
    /// As [`Reservation::close_in_background`].
    pub fn close_in_background(self, fence: Fence<'static>) -> Result<Closing, Box<CloseError>> {
        self.into_reservation().close_in_background(fence)
    }

    fn into_reservation(self) -> Reservation {
        let ElasticRange {
            mut reservation,
            mut cache,
            ..
        } = self;
        reservation.take_over(cache.drain());
        reservation
    }
}
