//! The producer's end of a pool: it owns the memory and the service, and is closed by consumption.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::error::{Holder, PoolError};
use super::publisher::Publisher;
use super::shared::Shared;
use super::ticket::PoolId;
use crate::device::Device;
use crate::fence::Fence;
use crate::reservation::Reservation;
use crate::share::Kept;
use crate::wire::{Name, Server};

/// How long a pool that is dropped waits for publishers and copies.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// The pause between two looks at what consumers still hold.
const PAUSE: Duration = Duration::from_micros(200);

/// A bounded pool of device memory whose slices other processes read. See the [module](super).
///
/// The ordinary end is [`close`](Self::close), which consumes the pool. After that every publish fails with
/// [`PoolError::Closing`]. Dropping the pool waits up to one second for publishers and copies, and for no consumer. Memory
/// that a copy may still write stays mapped, and is reported to [`set_leak_hook`](crate::set_leak_hook)'s hook.
#[must_use = "dropping it ends the sessions of all consumers"]
pub struct Pool {
    shared: Arc<Shared>,
    /// None once it was closed.
    memory: Option<Reservation>,
    pub(super) server: Option<Server>,
    /// Holds memory that is shared by fabric handles.
    kept: Option<Kept>,
}

/// A pool that could not be closed. It can be closed again.
#[derive(Debug, thiserror::Error)]
#[error("the pool is not closed: {error}")]
#[non_exhaustive]
pub struct Unclosed {
    /// Why.
    pub error: PoolError,
    /// The pool, with what is left of it. It publishes nothing any more.
    pub pool: Pool,
}

impl Pool {
    pub(super) fn new(shared: Arc<Shared>, memory: Reservation, kept: Kept) -> Pool {
        Pool {
            shared,
            memory: Some(memory),
            server: None,
            kept: Some(kept),
        }
    }

    #[cfg(all(test, not(loom), not(shuttle)))]
    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Publishes into the pool. Any number of them can be made and cloned.
    pub fn publisher(&self) -> Publisher {
        Publisher::new(self.shared.clone())
    }

    /// The pool's id. Every ticket contains it.
    pub fn id(&self) -> PoolId {
        self.shared.id
    }

    /// Bytes that slices lie in.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// How many consumers it is for.
    pub fn consumers(&self) -> usize {
        self.shared.ledger.consumers()
    }

    /// The device that the memory is on.
    pub fn device(&self) -> &Device {
        self.shared.copier.device()
    }

    /// The name that consumers attach to. None while it is being closed.
    pub fn name(&self) -> Option<&Name> {
        self.server.as_ref().map(Server::name)
    }

    /// Frees every slice that all its consumers have acknowledged; how many that were. Reads host memory only: no driver
    /// call, no wait. Publishers do this by themselves as they need room.
    pub fn recycle(&self) -> usize {
        self.shared.recycle()
    }

    /// What is counted, and who holds what. Recycles first, and stops nobody.
    pub fn counters(&self) -> Counters {
        Counters::of(&self.shared)
    }

    /// Every consumer that holds slices, with its oldest one.
    pub fn holders(&self) -> Vec<Holder> {
        self.recycle();
        self.shared.holders()
    }

    /// Ends the session of a consumer that does not answer, and takes back all that it holds. `false` where no consumer
    /// with this rank is attached. It happens on another thread, soon.
    ///
    /// What the consumer still reads may be overwritten. Its leases then fail with [`PoolError::TakenBack`], and a read or a
    /// wait that ends after the eviction does too. A kernel that reads in place is not stopped.
    pub fn evict(&self, rank: usize, reason: &str) -> bool {
        let attached = !self.shared.is_foreign()
            && rank < self.shared.ledger.consumers()
            && self.shared.ledger.is_attached(rank);
        if attached {
            self.shared.evict(rank, reason);
        }
        attached
    }

    /// Refuses new publishers, waits for those at work, for their copies, and until every consumer has acknowledged what
    /// it holds; then ends the sessions and releases the memory. Gives the last counts.
    ///
    /// # Errors
    ///
    /// The pool, to be closed again, with [`PoolError::PublishersActive`], [`PoolError::Quarantined`] or
    /// [`PoolError::StillHeld`] at the deadline, or [`PoolError::Memory`].
    pub fn close(self, deadline: Instant) -> Result<Counters, Box<Unclosed>> {
        self.end(deadline, true)
    }

    /// The same without waiting for consumers. Leases that are open stay readable, since an importer holds the memory by
    /// itself. The counts say who held what.
    ///
    /// # Errors
    ///
    /// The errors of [`close`](Self::close), except [`PoolError::StillHeld`].
    pub fn close_now(self, deadline: Instant) -> Result<Counters, Box<Unclosed>> {
        self.end(deadline, false)
    }

    fn end(mut self, deadline: Instant, consumers: bool) -> Result<Counters, Box<Unclosed>> {
        match self.try_end(deadline, consumers) {
            Ok(counters) => Ok(counters),
            Err(error) => Err(Box::new(Unclosed { error, pool: self })),
        }
    }

    fn try_end(&mut self, deadline: Instant, consumers: bool) -> Result<Counters, PoolError> {
        if self.shared.is_foreign() {
            return Err(PoolError::Forked);
        }
        self.shared.gate.close();
        match self.shared.gate.wait(Some(deadline)) {
            0 => {}
            count => return Err(PoolError::PublishersActive { count }),
        }
        if let Err(error) = self.shared.settle(Some(deadline)) {
            let slices = self.shared.copier.quarantined();
            return Err(PoolError::Quarantined { slices, error });
        }
        while consumers && self.server.is_some() {
            let holders = self.holders();
            if holders.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                return Err(PoolError::StillHeld { holders });
            }
            thread::sleep(PAUSE);
        }
        let mut counters = self.counters();
        drop(self.server.take());
        if consumers {
            // The thread that serves consumers may have been about to count a hold that had ended.
            counters = self.counters().consumers_as(&counters);
        }
        self.kept = None;
        self.shared.copier.close()?;
        if let Some(memory) = self.memory.take() {
            if let Err(unclosed) = memory.close() {
                let crate::CloseError {
                    error,
                    further,
                    reservation,
                    ..
                } = *unclosed;
                self.memory = Some(reservation.into_inner());
                return Err(error.with_undo(further).into());
            }
        }
        Ok(counters)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        self.shared.gate.close();
        drop(self.server.take());
        // A forked child has the parent's pool: nothing of it is given back.
        if self.shared.is_foreign() {
            return;
        }
        let deadline = Instant::now() + DROP_WAIT;
        let shared = &self.shared;
        let at_rest = |_| match shared.gate.wait(Some(deadline)) {
            0 => shared.settle(Some(deadline)),
            count => Err(crate::Error::WaitFailed(
                PoolError::PublishersActive { count }.to_string().into(),
            )),
        };
        // Dropping the error reports what stays mapped.
        drop(memory.close_after(Fence::closure(at_rest)));
        // The context gives back what the driver refuses now.
        let _ = shared.copier.close();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("id", &self.shared.id)
            .field("size", &self.shared.size)
            .field("consumers", &self.shared.ledger.consumers())
            .finish_non_exhaustive()
    }
}
