//! A ticket that was decoded and not opened.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::lease::Lease;
use super::Attached;
use crate::pool::entry::NotOpened;
use crate::pool::error::PoolError;
use crate::pool::ticket::{Part, TicketData};

/// A ticket, decoded and not opened: [open](Self::open) it, [pass it on](Self::pass_on), or drop it.
///
/// Dropping it acknowledges the slice for this consumer, unless another copy of the ticket was opened here.
#[must_use = "dropping it acknowledges the slice for this consumer"]
pub struct Ticket {
    /// Does not keep the consumer: one that is closed lets go of the pool, whatever tickets are left.
    attached: Weak<Attached>,
    data: TicketData,
    bytes: Vec<u8>,
    /// Dropping it gives the slice back.
    armed: bool,
}

impl Ticket {
    pub(super) fn new(attached: &Arc<Attached>, data: TicketData, bytes: &[u8]) -> Ticket {
        Ticket {
            attached: Arc::downgrade(attached),
            data,
            bytes: bytes.to_vec(),
            armed: true,
        }
    }

    /// What is in the slice.
    pub fn parts(&self) -> &[Part] {
        &self.data.parts
    }

    /// Bytes of the slice, with the gaps between packed parts.
    pub fn size(&self) -> usize {
        self.data.length as usize
    }

    /// Opens it for reading. Makes one system call, and no driver call.
    ///
    /// # Errors
    ///
    /// [`PoolError::TakenBack`] where it expired, was cancelled, or another consumer acknowledged for this one;
    /// [`PoolError::Stale`], [`PoolError::NotPublished`], [`PoolError::AlreadyOpen`],
    /// [`PoolError::AlreadyAcknowledged`]; [`PoolError::ProducerGone`], [`PoolError::Ended`]; [`PoolError::Detached`]
    /// where the consumer was closed or dropped.
    pub fn open(mut self) -> Result<Lease, PoolError> {
        let (slot, generation) = (self.data.slot, self.data.generation);
        let attached = self.attached.upgrade().ok_or(PoolError::Detached)?;
        attached.check_session()?;
        let opened = attached.entry(slot).open(generation);
        opened.map_err(|why| match why {
            NotOpened::Open => PoolError::AlreadyOpen { slot },
            NotOpened::Closed => PoolError::AlreadyAcknowledged { slot },
            NotOpened::Taken(why) => PoolError::TakenBack { slot, why },
            NotOpened::Stale { current } => PoolError::Stale {
                slot,
                generation,
                current,
            },
            NotOpened::Never => PoolError::NotPublished { slot, generation },
        })?;
        self.armed = false;
        attached.leases.fetch_add(1, Ordering::Relaxed);
        let parts = std::mem::take(&mut self.data.parts);
        let place = (self.data.offset as usize, self.data.length as usize);
        Ok(Lease::new(attached, slot, generation, place, parts))
    }

    /// The bytes, to be opened elsewhere or later. Nothing is acknowledged.
    pub fn pass_on(mut self) -> Vec<u8> {
        self.armed = false;
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        if let Some(attached) = self.attached.upgrade().filter(|it| !it.is_foreign()) {
            let entry = attached.entry(self.data.slot);
            entry.decline(self.data.generation);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("slot", &self.data.slot)
            .field("generation", &self.data.generation)
            .field("parts", &self.data.parts)
            .finish_non_exhaustive()
    }
}
