//! What the producer's threads share: publishers, the thread that serves consumers, and the pool itself.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::copier::{Copier, Stopped};
use super::error::{Exhausted, Holder, PoolError};
use super::gate::Gate;
use super::ledger::{Hold, Ledger, NoRoom};
use super::payload::Plan;
use super::slots::SlotRef;
use super::ticket::{PoolId, TicketKey};
use crate::fork;
use crate::sync::{lock, Mutex};
use crate::wire::Waker;

pub(super) struct Shared {
    pub(super) id: PoolId,
    pub(super) key: TicketKey,
    /// Bytes that slices lie in.
    pub(super) size: usize,
    /// The address of the first one.
    pub(super) base: u64,
    pub(super) ledger: Ledger,
    pub(super) gate: Gate,
    pub(super) copier: Copier,
    /// Wakes the thread that serves consumers. Set once it runs.
    pub(super) waker: OnceLock<Waker>,
    /// Consumers whose sessions are to be ended, and why.
    pub(super) evictions: Mutex<Vec<(usize, String)>>,
    /// The process of each attached consumer, by rank.
    processes: Mutex<Vec<Option<u32>>>,
    started: Instant,
    generation: u32,
}

impl Shared {
    pub(super) fn new(
        id: PoolId,
        key: TicketKey,
        (base, size): (u64, usize),
        ledger: Ledger,
        copier: Copier,
    ) -> Shared {
        Shared {
            id,
            key,
            size,
            base,
            ledger,
            gate: Gate::default(),
            copier,
            waker: OnceLock::new(),
            evictions: Mutex::default(),
            processes: Mutex::default(),
            started: Instant::now(),
            generation: fork::join(),
        }
    }

    /// A publisher goes to work.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Inside, PoolError> {
        // A forked child has the parent's pool, and not its driver.
        if self.is_foreign() {
            return Err(PoolError::Forked);
        }
        self.gate.enter().map_err(|_| PoolError::Closing)?;
        Ok(Inside(self.clone()))
    }

    /// Whether this is a forked child of the pool's process.
    pub(super) fn is_foreign(&self) -> bool {
        self.generation != fork::current()
    }

    /// Ends every hold whose consumer has acknowledged; how many slices that freed. A forked child ends none: it shares
    /// the control words with its parent, which would take no notice.
    pub(super) fn recycle(&self) -> usize {
        match self.is_foreign() {
            true => 0,
            false => self.ledger.recycle(),
        }
    }

    /// Nanoseconds since the pool was made, at least 1.
    pub(super) fn now(&self) -> u64 {
        self.nanoseconds(Instant::now())
    }

    pub(super) fn nanoseconds(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    pub(super) fn instant(&self, nanoseconds: u64) -> Option<Instant> {
        self.started.checked_add(Duration::from_nanos(nanoseconds))
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Room for all slices, or for none.
    pub(super) fn reserve(&self, plans: &[Plan]) -> Result<Vec<(SlotRef, u64)>, PoolError> {
        // What fails again stays where it is, and is told when the pool closes.
        let _ = self.settle(None);
        self.ledger.glance(plans.len());
        let mut places = Vec::with_capacity(plans.len());
        for plan in plans {
            match self.ledger.reserve(plan.length as u64) {
                Ok(place) => places.push(place),
                Err(no_room) => {
                    let taken = places.into_iter();
                    taken.for_each(|(at, _)| self.ledger.abandon(at));
                    return Err(self.exhausted(plan.length, no_room));
                }
            }
        }
        Ok(places)
    }

    /// Frees the slices of copies that could not be waited for before, as far as they are done.
    pub(super) fn settle(&self, deadline: Option<Instant>) -> crate::Result<()> {
        self.copier.retry(deadline, |at| self.ledger.abandon(at))
    }

    fn exhausted(&self, needed: usize, NoRoom(free): NoRoom) -> PoolError {
        PoolError::Exhausted(Box::new(Exhausted {
            needed,
            busy: self.size - free.bytes as usize,
            free: free.bytes as usize,
            largest_free: free.largest as usize,
            free_slices: free.slots as usize,
            oldest: self
                .ledger
                .oldest()
                .map(|hold| self.holder(&hold, self.now())),
        }))
    }

    /// Every consumer that holds slices, with its oldest one, by rank.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let mut holders: Vec<Option<Holder>> = vec![None; self.ledger.consumers()];
        // One time for all: else of two holds the one that is looked at later seems older.
        let now = self.now();
        self.ledger.each_hold(|hold| {
            let mut holder = self.holder(&hold, now);
            if let Some(known) = &mut holders[hold.rank] {
                let (slices, bytes) = (known.slices + 1, known.bytes + holder.bytes);
                if known.since >= holder.since {
                    holder = known.clone();
                }
                (holder.slices, holder.bytes) = (slices, bytes);
            }
            holders[hold.rank] = Some(holder);
        });
        holders.into_iter().flatten().collect()
    }

    /// A hold in words, at this time.
    fn holder(&self, hold: &Hold, now: u64) -> Holder {
        Holder {
            rank: hold.rank,
            slices: 1,
            bytes: hold.length as usize,
            since: Duration::from_nanos(now.saturating_sub(hold.since)),
            process: lock(&self.processes).get(hold.rank).copied().flatten(),
            is_open: hold.is_open,
            is_attached: hold.is_attached,
        }
    }

    /// Takes every lock that there is, and lets go of it.
    #[cfg(all(test, not(loom), not(shuttle)))]
    pub(super) fn go_through_locks(&self) {
        self.ledger.free();
        self.ledger.is_attached(0);
        self.ledger.count_late();
        self.gate.is_closed();
        self.copier.go_through_locks();
        drop(lock(&self.evictions));
        drop(lock(&self.processes));
    }

    /// Notes the process of a consumer, or that it is gone.
    pub(super) fn note_process(&self, rank: usize, process: Option<u32>) {
        let mut processes = lock(&self.processes);
        if processes.len() <= rank {
            processes.resize(rank + 1, None);
        }
        processes[rank] = process;
    }

    pub(super) fn evict(&self, rank: usize, reason: &str) {
        lock(&self.evictions).push((rank, reason.to_owned()));
        self.wake();
    }
}

/// A publisher at work: the pool does not close meanwhile.
pub(super) struct Inside(Arc<Shared>);

impl Inside {
    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Gives back the room of slices whose copies failed, or keeps it where the copies may still run.
    pub(super) fn take_apart(
        &self,
        slices: impl Iterator<Item = SlotRef>,
        stopped: Stopped,
    ) -> PoolError {
        match stopped.under_way {
            Some(flight) => self.0.copier.quarantine(flight, slices.collect()),
            None => slices.for_each(|at| self.0.ledger.abandon(at)),
        }
        PoolError::Memory(stopped.error)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}
