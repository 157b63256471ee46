//! Which slices there are, and who holds them. No driver, no memory of the pool, no sockets.
//!
//! A slice is reserved, published to all consumers that can still come, and freed when no consumer holds it. A hold ends
//! once, in one of these ways:
//!
//! | way | decided by |
//! |---|---|
//! | acknowledged | the consumer's `done` word, read by whoever recycles |
//! | covered | another consumer's acknowledgement for its group or for all |
//! | expired, cancelled | the producer, if it can take the claim back before the consumer opens it |
//! | reclaimed | the end of the consumer's connection |
//!
//! # Locks
//!
//! `lanes` is held while a slice goes live, while a consumer attaches or goes, and while holds are ended for a consumer
//! that did not do it itself: so a consumer that attaches either finds a hold with its lane in place, or does not find
//! it. `room` is held for one search in the free space. `lanes` is taken first. Recycling takes neither but to free what
//! it found.

mod attach;
mod holds;

use std::ops::Range;
use std::sync::Arc;

pub(super) use holds::Hold;

use super::entry::{Scope, Taken};
use super::lane::{self, Lane};
use super::ranks::Ranks;
use super::retired::Retired;
use super::room::{Free, Room};
use super::slots::{Ended, SlotRef, Slots};
use super::tally::Tally;
use crate::sync::modelled::atomic::{AtomicU32, Ordering};
use crate::sync::modelled::{lock, Mutex};

/// How many slots a publisher looks at, at the least.
const GLANCE: u32 = 8;

/// Which consumers are there.
struct Lanes {
    /// By rank; shared with those who recycle.
    of: Arc<[Option<Lane>]>,
    /// Consumers that were attached and are not now: nothing is published to them.
    gone: Ranks,
    /// Consumers that are attached and were gone before.
    returned: Ranks,
}

pub(super) struct Ledger {
    slots: Slots,
    room: Mutex<Room>,
    lanes: Mutex<Lanes>,
    retired: Mutex<Retired>,
    pub(super) tally: Tally,
    consumers: usize,
    /// Of each rank: the group that it may acknowledge for.
    groups: Box<[Range<usize>]>,
    widest: Scope,
    /// Where the next [glance](GLANCE) begins.
    next: AtomicU32,
}

/// Why nothing can be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom(pub(super) Free);

impl Ledger {
    pub(super) fn new(size: u64, slots: u32, groups: Box<[Range<usize>]>, widest: Scope) -> Ledger {
        let consumers = groups.len();
        Ledger {
            slots: Slots::new(slots, consumers),
            room: Mutex::new(Room::new(size, slots)),
            lanes: Mutex::new(Lanes {
                of: (0..consumers).map(|_| None).collect(),
                gone: Ranks::none(consumers),
                returned: Ranks::none(consumers),
            }),
            retired: Mutex::default(),
            tally: Tally::new(consumers),
            consumers,
            groups,
            widest,
            next: AtomicU32::new(0),
        }
    }

    pub(super) fn consumers(&self) -> usize {
        self.consumers
    }

    pub(super) fn group(&self, rank: usize) -> &Range<usize> {
        &self.groups[rank]
    }

    pub(super) fn widest(&self) -> Scope {
        self.widest
    }

    pub(super) fn slot_count(&self) -> u32 {
        self.slots.len()
    }

    pub(super) fn free(&self) -> Free {
        lock(&self.room).free()
    }

    /// Reserves a slot and bytes for it. The caller publishes it or [abandons](Self::abandon) it.
    pub(super) fn reserve(&self, length: u64) -> Result<(SlotRef, u64), NoRoom> {
        let taken = self.take(length).or_else(|_| {
            self.recycle();
            self.take(length)
        });
        let (slot, offset) = taken.map_err(NoRoom)?;
        let about = self.slots.about(slot);
        about.offset.store(offset, Ordering::Relaxed);
        about.length.store(length, Ordering::Relaxed);
        about.expires.store(0, Ordering::Relaxed);
        Ok((self.slots.begin(slot), offset))
    }

    fn take(&self, length: u64) -> Result<(u32, u64), Free> {
        let mut room = lock(&self.room);
        room.take(length).ok_or_else(|| room.free())
    }

    /// Frees a reserved slot that was not published.
    pub(super) fn abandon(&self, at: SlotRef) {
        self.release(at);
    }

    /// Publishes a reserved slot at this time, to expire at that time (0: never). Gives whether the deadline is the
    /// first to come. Where all consumers are gone, nothing is published and the slot is still reserved.
    pub(super) fn publish(&self, at: SlotRef, now: u64, expires: u64) -> Result<bool, NoConsumer> {
        let about = self.slots.about(at.slot);
        about.published.store(now, Ordering::Relaxed);
        about.expires.store(expires, Ordering::Relaxed);
        let lanes = lock(&self.lanes);
        let there = (0..self.consumers).filter(|rank| !lanes.gone.contains(*rank));
        let ranks = Ranks::of(there, self.consumers);
        if ranks.count() == 0 {
            return Err(NoConsumer);
        }
        for rank in ranks.iter() {
            self.tally.hold(rank);
            if let Some(lane) = &lanes.of[rank] {
                lane::entry(lane, at.slot).offer(at.generation);
            }
        }
        self.tally.published(self.consumers - ranks.count());
        // Noted before the slot can be freed, which takes the note away.
        let first = expires != 0 && lock(&self.room).note_deadline(at, expires);
        self.slots.go_live(at, &ranks);
        Ok(first)
    }

    /// Looks at a few slots, in turn, before so many slices are reserved: so recycling goes on while there is room.
    pub(super) fn glance(&self, slices: usize) {
        let used = self.slots.used().end;
        if used == 0 {
            return;
        }
        let count = GLANCE.max(2 * slices as u32).min(used);
        let lanes = self.lanes();
        let start = self.next.fetch_add(count, Ordering::Relaxed);
        for step in 0..count {
            self.recycle_slot(start.wrapping_add(step) % used, &lanes);
        }
    }

    /// Ends every hold whose consumer has acknowledged; how many slices that freed. Calls no driver, and holds no lock
    /// while it looks.
    pub(super) fn recycle(&self) -> usize {
        let lanes = self.lanes();
        self.slots
            .used()
            .map(|slot| self.recycle_slot(slot, &lanes))
            .sum()
    }

    fn recycle_slot(&self, slot: u32, lanes: &[Option<Lane>]) -> usize {
        let mut freed = 0;
        self.slots.each_holder(slot, |at, rank| {
            let lane = lanes[rank].as_ref();
            let scope = lane.and_then(|lane| lane::entry(lane, slot).acknowledged(at.generation));
            freed += scope.map_or(0, |scope| self.acknowledged(at, rank, scope));
        });
        freed
    }

    /// A consumer has acknowledged, for itself or for others too; how many slices that freed.
    fn acknowledged(&self, at: SlotRef, rank: usize, scope: Scope) -> usize {
        let mut freed = 0;
        if scope != Scope::Own && scope <= self.widest {
            let lanes = lock(&self.lanes);
            let others = match scope {
                Scope::All => 0..self.consumers,
                _ => self.groups[rank].clone(),
            };
            for other in others.filter(|other| *other != rank) {
                let ended = self.take_back(at, other, Taken::Covered, &lanes);
                freed += usize::from(ended == Ended::Last);
            }
        }
        let ended = self.end_hold(at, rank, || {
            self.tally.acknowledged();
            if scope > self.widest {
                self.tally.refused_scope();
            }
        });
        freed + usize::from(ended == Ended::Last)
    }

    /// Ends a consumer's hold, unless it has opened the ticket. `Before` where this did not end it.
    fn take_back(&self, at: SlotRef, rank: usize, why: Taken, lanes: &Lanes) -> Ended {
        if !self.slots.holds(at, rank) {
            return Ended::Before;
        }
        let taken = match &lanes.of[rank] {
            Some(lane) => lane::entry(lane, at.slot).take(at.generation, why),
            None => true,
        };
        match taken {
            true => self.end_hold(at, rank, || self.tally.taken(why)),
            false => Ended::Before,
        }
    }

    /// Ends a hold and, with the last one, frees the slot. Calls the closure if this ended it.
    fn end_hold(&self, at: SlotRef, rank: usize, count: impl FnOnce()) -> Ended {
        let ended = self.slots.end_hold(at, rank);
        if ended != Ended::Before {
            self.tally.let_go(rank);
            count();
        }
        if ended == Ended::Last {
            self.release(at);
        }
        ended
    }

    fn release(&self, at: SlotRef) {
        let about = self.slots.about(at.slot);
        let (offset, length) = (
            about.offset.load(Ordering::Relaxed),
            about.length.load(Ordering::Relaxed),
        );
        let expires = about.expires.load(Ordering::Relaxed);
        lock(&self.room).give(at.slot, offset, length, expires);
    }

    /// Takes a slice back from all that have not opened it; how many consumers still hold it. Nothing changes where the
    /// generation is over.
    pub(super) fn cancel(&self, at: SlotRef) -> usize {
        if self.take_from_all(at, Taken::Cancelled) > 0 {
            self.tally.cancelled();
        }
        self.holders(at)
    }

    /// Takes a slice back from all that have not opened it; from how many.
    fn take_from_all(&self, at: SlotRef, why: Taken) -> usize {
        // What was acknowledged already is not taken back.
        self.recycle_slot(at.slot, &self.lanes());
        let lanes = lock(&self.lanes);
        (0..self.consumers)
            .filter(|rank| self.take_back(at, *rank, why, &lanes) != Ended::Before)
            .count()
    }

    /// How many consumers hold this generation of a slot.
    pub(super) fn holders(&self, at: SlotRef) -> usize {
        let ranks = 0..self.consumers;
        ranks.filter(|rank| self.slots.holds(at, *rank)).count()
    }

    /// Whether this generation was ever begun.
    pub(super) fn knows(&self, at: SlotRef) -> bool {
        at.slot < self.slots.len()
            && at.generation > 0
            && at.generation <= self.slots.generation(at.slot)
    }

    /// Takes back what has expired; when the next slice expires.
    pub(super) fn expire(&self, now: u64) -> Option<u64> {
        loop {
            // A statement of its own: the lock is not held while a slot is looked at.
            let due = lock(&self.room).pop_due(now);
            let Some(slot) = due else {
                return lock(&self.room).next_deadline();
            };
            let at = SlotRef {
                slot,
                generation: self.slots.generation(slot),
            };
            // The slot may have been freed and used again since: then its deadline is another one.
            let expires = self.slots.about(slot).expires.load(Ordering::Relaxed);
            if expires != 0 && expires <= now {
                self.take_from_all(at, Taken::Expired);
            }
        }
    }

    fn lanes(&self) -> Arc<[Option<Lane>]> {
        lock(&self.lanes).of.clone()
    }
}

impl Lanes {
    fn set(&mut self, rank: usize, lane: Option<Lane>) {
        let mut of = self.of.to_vec();
        of[rank] = lane;
        self.of = of.into();
    }
}

/// All consumers are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoConsumer;
