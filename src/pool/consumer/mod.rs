//! The consumer's end of a pool: attached once, it decodes tickets and opens them into leases.

mod acknowledge;
mod attach;
mod lease;
mod stream;
mod ticket;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

pub use attach::Attach;
pub use lease::{Lease, StillReading};
pub use ticket::Ticket;

use super::control::ControlMemory;
use super::entry::{Entry, Scope};
use super::error::PoolError;
use super::ticket::{self as form, PoolId, TicketKey};
use crate::device::Device;
use crate::driver::Driver;
use crate::fence::Fence;
use crate::fork;
use crate::share::ReadOnlySpan;
use crate::sync::Mutex;
use crate::wire::{Name, Session, WireError};
use acknowledge::Pending;
use stream::Streams;

/// A process's attachment to a pool, as one of its consumers.
///
/// Attach once for each pool and rank; threads share it by reference. It makes no context on the producer's device
/// unless that is its own, and none at all before the first copy.
///
/// The producer detects the end of this process by the connection: then all that the consumer holds goes back to the pool
/// at once. [`close`](Self::close) does the same in an orderly way.
pub struct Consumer {
    attached: Arc<Attached>,
}

/// What a consumer's leases and tickets share.
struct Attached {
    pool: PoolId,
    key: TicketKey,
    rank: usize,
    consumers: usize,
    group: Range<usize>,
    widest: Scope,
    size: usize,
    lane: Arc<ControlMemory>,
    session: Session,
    /// None only while this is dropped.
    span: Option<ReadOnlySpan>,
    streams: Streams,
    /// Acknowledgements that could not be enqueued, and whose work could not be waited for.
    late: Mutex<Vec<Pending>>,
    /// Leases that were not acknowledged.
    leases: AtomicUsize,
    generation: u32,
}

impl Consumer {
    /// Attaches to the pool that is served under this name, to read with this device. [`Attach`] has what can be chosen.
    ///
    /// # Errors
    ///
    /// As [`Attach::attach`]. A producer that does not answer within 30 seconds is an error.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub fn attach(device: &Device, name: &Name, rank: usize) -> Result<Consumer, PoolError> {
        Attach::new(name, rank).attach(device)
    }

    /// Which pool this is.
    pub fn pool(&self) -> PoolId {
        self.attached.pool
    }

    /// This consumer's rank.
    pub fn rank(&self) -> usize {
        self.attached.rank
    }

    /// How many consumers the pool has.
    pub fn consumers(&self) -> usize {
        self.attached.consumers
    }

    /// The consumers that [`Scope::Group`] acknowledges for, this one among them.
    pub fn group(&self) -> Range<usize> {
        self.attached.group.clone()
    }

    /// How widely it may acknowledge.
    pub fn widest_scope(&self) -> Scope {
        self.attached.widest
    }

    /// The device whose streams copy.
    pub fn device(&self) -> &Device {
        self.attached.streams.device()
    }

    /// How many leases are open.
    pub fn leases(&self) -> usize {
        self.attached.leases.load(Ordering::Relaxed)
    }

    /// Reads a ticket. Needs no driver and no other process. Dropping the returned [`Ticket`] acknowledges the slice;
    /// [`Ticket::pass_on`] does not. [`pool_of`](super::pool_of) looks at a ticket without this.
    ///
    /// # Errors
    ///
    /// [`PoolError::Ticket`] for what is not a ticket of this pool, or was altered.
    pub fn decode(&self, bytes: &[u8]) -> Result<Ticket, PoolError> {
        let attached = &self.attached;
        let data = form::decode(bytes, &attached.pool, &attached.key)?;
        attached.check_place(&data)?;
        Ok(Ticket::new(attached, data, bytes))
    }

    /// [Decodes](Self::decode) a ticket and [opens](Ticket::open) it.
    ///
    /// # Errors
    ///
    /// The errors of [`decode`](Self::decode) and [`Ticket::open`].
    pub fn open(&self, bytes: &[u8]) -> Result<Lease, PoolError> {
        self.decode(bytes)?.open()
    }

    /// Whether the producer is there and keeps the session.
    pub fn is_connected(&self) -> bool {
        self.attached.session.is_open()
    }

    /// Detaches from the pool: waits for work that this consumer enqueued, unmaps the pool's memory and ends the session.
    /// Tickets that were decoded and not opened are released.
    ///
    /// # Errors
    ///
    /// The consumer, while leases are open.
    pub fn close(self) -> Result<(), LeasesOpen> {
        match self.leases() {
            0 => Ok(()),
            leases => Err(LeasesOpen {
                leases,
                consumer: self,
            }),
        }
    }
}

/// [`Consumer::close`] failed: leases are open. The consumer is unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{leases} leases are still open: acknowledge or drop them first")]
#[non_exhaustive]
pub struct LeasesOpen {
    /// How many.
    pub leases: usize,
    /// The consumer.
    pub consumer: Consumer,
}

#[cfg(all(test, not(loom), not(shuttle)))]
impl Consumer {
    /// Takes every lock that there is, and lets go of it.
    pub(super) fn locks(&self) -> impl Fn() + Send + 'static {
        let attached = self.attached.clone();
        move || {
            attached.streams.go_through_locks();
            drop(crate::sync::lock(&attached.late));
            attached.session.is_open();
        }
    }
}

impl Attached {
    fn driver(&self) -> &Driver {
        self.streams.device().driver()
    }

    fn span(&self) -> &ReadOnlySpan {
        match &self.span {
            Some(span) => span,
            None => unreachable!("it is taken out by drop alone"),
        }
    }

    fn entry(&self, slot: u32) -> &Entry {
        &(*self.lane).as_ref()[slot as usize]
    }

    fn is_foreign(&self) -> bool {
        self.generation != fork::current()
    }

    /// The session still is what it was.
    fn check_session(&self) -> Result<(), PoolError> {
        if self.is_foreign() {
            return Err(PoolError::Forked);
        }
        match self.session.ended() {
            None => Ok(()),
            Some(WireError::Refused { reason, .. }) => Err(PoolError::Ended { reason }),
            Some(WireError::Vanished { .. }) => Err(PoolError::ProducerGone),
            Some(error) => Err(error.into()),
        }
    }

    /// What only a producer with a mistake in it writes into a ticket.
    fn check_place(&self, data: &form::TicketData) -> Result<(), PoolError> {
        let end = data.offset.checked_add(data.length);
        let fits = end.is_some_and(|end| end <= self.size as u64);
        match fits && (data.slot as usize) < (*self.lane).as_ref().len() {
            true => Ok(()),
            false => Err(form::TicketError::Altered.into()),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let Some(span) = self.span.take() else {
            return;
        };
        // A forked child has the parent's consumer: nothing of it is given back.
        if self.is_foreign() {
            return;
        }
        let streams = &self.streams;
        // What fails once is tried once more.
        let end = || match streams.end().or_else(|_| streams.end()) {
            Err(error) if !streams.is_quiet() => Err(error),
            _ => Ok(()),
        };
        // Neither the memory that is read nor the words that are written may go before the work is done. Dropping the
        // error reports what stays mapped.
        let closed = span
            .into_reservation()
            .close_after(Fence::closure(|_| end()));
        if closed.is_err() {
            self.lane.keep_mapped();
        }
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("pool", &self.attached.pool)
            .field("rank", &self.attached.rank)
            .field("leases", &self.leases())
            .finish_non_exhaustive()
    }
}
