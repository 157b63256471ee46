//! What is free: bytes of the pool, slots of the table, and the deadlines of what is not.

use std::collections::BTreeSet;

use super::slots::SlotRef;
use crate::space::Space;

/// What offsets and sizes of slices are multiples of, in bytes.
pub(super) const ALIGNMENT: u64 = 256;

/// The pool's memory and slots, as far as no slice has them. Behind a lock that is held for one search at a time.
#[derive(Debug)]
pub(super) struct Room {
    space: Space,
    /// The slot that was freed last is used next, so that the slots in use stay together.
    free_slots: Vec<u32>,
    /// Slots from here on were never used.
    fresh: u32,
    slots: u32,
    /// When which slot expires.
    deadlines: BTreeSet<(u64, u32)>,
}

/// How much is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) bytes: u64,
    pub(super) largest: u64,
    pub(super) slots: u32,
}

impl Room {
    pub(super) fn new(size: u64, slots: u32) -> Room {
        let mut space = Space::default();
        space.give(0..size);
        Room {
            space,
            free_slots: Vec::new(),
            fresh: 0,
            slots,
            deadlines: BTreeSet::new(),
        }
    }

    /// Takes a slot and the smallest free range that holds so many bytes: slot and offset.
    pub(super) fn take(&mut self, length: u64) -> Option<(u32, u64)> {
        let slot = match self.free_slots.last() {
            Some(slot) => *slot,
            None if self.fresh < self.slots => self.fresh,
            None => return None,
        };
        let offset = self.space.place(rounded(length), ALIGNMENT, 0)?;
        if self.free_slots.pop().is_none() {
            self.fresh += 1;
        }
        Some((slot, offset))
    }

    /// Takes a slot and its bytes back.
    pub(super) fn give(&mut self, slot: u32, offset: u64, length: u64, expires: u64) {
        self.space.give(offset..offset + rounded(length));
        self.free_slots.push(slot);
        if expires != 0 {
            self.deadlines.remove(&(expires, slot));
        }
    }

    /// Notes a deadline; whether it is the first to come.
    pub(super) fn note_deadline(&mut self, at: SlotRef, expires: u64) -> bool {
        self.deadlines.insert((expires, at.slot));
        self.deadlines.first() == Some(&(expires, at.slot))
    }

    /// A slot whose deadline has passed, which is then no longer noted.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<u32> {
        let (due, slot) = *self.deadlines.first()?;
        (due <= now).then(|| {
            self.deadlines.pop_first();
            slot
        })
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    pub(super) fn free(&self) -> Free {
        Free {
            bytes: self.space.free(),
            largest: self.space.largest(),
            slots: self.free_slots.len() as u32 + (self.slots - self.fresh),
        }
    }
}

/// The bytes that a slice of this length takes.
pub(super) fn rounded(length: u64) -> u64 {
    length.next_multiple_of(ALIGNMENT)
}
