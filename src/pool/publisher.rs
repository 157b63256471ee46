//! Publishing: room, copies, then the ticket.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::copier::Order;
use super::error::PoolError;
use super::payload::{Payload, Plan, Transfer};
use super::published::{publish, Filled, Published, SliceId};
use super::publishing::Publishing;
use super::room::rounded;
use super::shared::Shared;
use crate::sys::CUstream;

/// The shortest and the longest pause between two looks for room.
const PAUSE: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// Publishes into a pool. Made by [`Pool::publisher`](super::Pool::publisher); any number of threads use clones of it, or
/// one by reference.
///
/// Once the pool is closing every publish is refused: [`PoolError::Closing`].
#[derive(Clone)]
pub struct Publisher {
    shared: Arc<Shared>,
    order: Order,
    patience: Option<Duration>,
}

impl Publisher {
    pub(super) fn new(shared: Arc<Shared>) -> Publisher {
        Publisher {
            shared,
            order: Order::DefaultStream,
            patience: None,
        }
    }

    /// Copies wait for the work enqueued on this stream so far, instead of the default stream.
    ///
    /// # Safety
    ///
    /// `stream` is a stream of the pool's device, in its primary context, that is not destroyed while this publisher or
    /// a clone of it is used.
    #[allow(unsafe_code)]
    pub unsafe fn on_stream(mut self, stream: CUstream) -> Publisher {
        self.order = Order::Stream(stream as usize);
        self
    }

    /// Copies come after nothing: what is published is ready when it is published. They then run on a stream of the
    /// pool's own.
    pub fn with_ready_sources(mut self) -> Publisher {
        self.order = Order::Ready;
        self
    }

    /// While there is no room, tries again for this long, at most every millisecond. Without it, a publish without room
    /// fails at once.
    pub fn waiting_for_room(mut self, time: Duration) -> Publisher {
        self.patience = Some(time);
        self
    }

    /// Publishes one slice. Its bytes are in the pool when this returns.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`PoolError::Empty`], [`PoolError::Layout`], [`PoolError::PartCount`],
    /// [`PoolError::TooLarge`], [`PoolError::TooManySlices`], [`PoolError::Exhausted`], [`PoolError::Closing`]. Then [`PoolError::NoConsumer`], or
    /// [`PoolError::Memory`] with a driver failure. Nothing is published then. A slice whose copy could not be waited
    /// for is quarantined; the pool goes on without it.
    #[doc(alias = "cuMemcpyDtoDAsync")]
    pub fn publish(&self, payload: &Payload<'_>) -> Result<Published, PoolError> {
        let mut published = self.publish_all(std::slice::from_ref(payload))?;
        // One payload, one slice.
        published.pop().ok_or(PoolError::Empty { part: 0 })
    }

    /// Publishes several slices, all or none, with one wait for all of their copies. A batch of none makes no call.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish).
    pub fn publish_all(&self, payloads: &[Payload<'_>]) -> Result<Vec<Published>, PoolError> {
        let inside = self.shared.enter()?;
        if payloads.is_empty() {
            return Ok(Vec::new());
        }
        let slices = self.reserve(payloads)?;
        let transfers = self.transfers(payloads, &slices);
        match self.shared.copier.copy(self.order, &transfers) {
            Ok(()) => publish(&inside, slices),
            Err(stopped) => Err(inside.take_apart(slices.iter().map(|slice| slice.at), *stopped)),
        }
    }

    /// Begins to publish several slices, and returns while the copies run. Bytes of the host have been copied then.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish).
    pub fn begin<'a>(&self, payloads: &[Payload<'a>]) -> Result<Publishing<'a>, PoolError> {
        let inside = self.shared.enter()?;
        let slices = self.reserve(payloads)?;
        let transfers = self.transfers(payloads, &slices);
        match self.shared.copier.start(self.order, &transfers) {
            Ok(flight) => Ok(Publishing::new(inside, flight, slices)),
            Err(stopped) => Err(inside.take_apart(slices.iter().map(|slice| slice.at), *stopped)),
        }
    }

    /// Takes a slice back from all consumers that have not opened its ticket. Returns the number of consumers that have it
    /// open; they keep it until they acknowledge. A second call, or one after the slice was freed, changes nothing.
    ///
    /// # Errors
    ///
    /// [`PoolError::UnknownSlice`] for an id of another pool; [`PoolError::Forked`].
    pub fn cancel(&self, id: SliceId) -> Result<usize, PoolError> {
        // A forked child shares the control words with its parent, and not what the parent makes of them.
        if self.shared.is_foreign() {
            return Err(PoolError::Forked);
        }
        if id.pool != self.shared.id || !self.shared.ledger.knows(id.at) {
            return Err(PoolError::UnknownSlice {
                slot: id.at.slot,
                generation: id.at.generation,
            });
        }
        Ok(self.shared.ledger.cancel(id.at))
    }

    /// [Cancels](Self::cancel) several slices; how many holds are left, with each consumer counted once for each slice.
    ///
    /// # Errors
    ///
    /// [`PoolError::UnknownSlice`], [`PoolError::Forked`]: then none of them was cancelled.
    pub fn cancel_all(&self, ids: &[SliceId]) -> Result<usize, PoolError> {
        let known = |id: &&SliceId| id.pool == self.shared.id && self.shared.ledger.knows(id.at);
        if let Some(id) = ids.iter().find(|id| !known(id)) {
            return self.cancel(*id);
        }
        ids.iter().map(|id| self.cancel(*id)).sum()
    }

    /// Room for all, or for none.
    fn reserve(&self, payloads: &[Payload<'_>]) -> Result<Vec<Filled>, PoolError> {
        let size = self.shared.size;
        let plans: Vec<Plan> = payloads
            .iter()
            .map(|payload| payload.plan(size))
            .collect::<Result<_, _>>()?;
        self.check_batch(&plans)?;
        // Of the first refusal: a publish that finds room reads no clock for this.
        let mut start = None;
        let mut pause = PAUSE.0;
        loop {
            let refused = match self.shared.reserve(&plans) {
                Ok(places) => {
                    let filled = |(plan, (at, offset))| Filled { at, offset, plan };
                    return Ok(plans.into_iter().zip(places).map(filled).collect());
                }
                Err(refused) => refused,
            };
            let left = self.patience.and_then(|patience| {
                let left =
                    patience.checked_sub(start.get_or_insert_with(Instant::now).elapsed())?;
                (!left.is_zero() && !self.shared.gate.is_closed()).then_some(left)
            });
            let Some(left) = left else {
                return Err(match self.shared.gate.is_closed() {
                    true => PoolError::Closing,
                    false => refused,
                });
            };
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// A batch that has no room in an empty pool never has.
    fn check_batch(&self, plans: &[Plan]) -> Result<(), PoolError> {
        let pool = self.shared.size;
        let needed = match plans {
            [_] => return Ok(()),
            plans => plans.iter().try_fold(0_usize, |all, plan| {
                all.checked_add(rounded(plan.length as u64) as usize)
            }),
        };
        if needed.is_none_or(|needed| needed > pool) {
            let needed = needed.unwrap_or(usize::MAX);
            return Err(PoolError::TooLarge { needed, pool });
        }
        let (count, most) = (plans.len(), self.shared.ledger.slot_count() as usize);
        match count <= most {
            true => Ok(()),
            false => Err(PoolError::TooManySlices { count, most }),
        }
    }

    fn transfers<'a>(&self, payloads: &[Payload<'a>], slices: &[Filled]) -> Vec<Transfer<'a>> {
        let base = self.shared.base;
        let mut transfers = Vec::with_capacity(payloads.len());
        for (payload, slice) in payloads.iter().zip(slices) {
            for (part, source) in payload.sources().enumerate() {
                transfers.push(Transfer {
                    to: base + slice.offset + slice.plan.range(part).start as u64,
                    source: *source,
                });
            }
        }
        transfers
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("pool", &self.shared.id)
            .field("order", &self.order)
            .field("patience", &self.patience)
            .finish()
    }
}
