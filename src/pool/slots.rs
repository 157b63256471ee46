//! The producer's table of slices: which consumers still hold which slice. It is changed without a lock.
//!
//! A slot is *free*, *reserved* (one publisher fills it), or *live*. Of a live slot one bit a consumer is set until that
//! consumer's hold ends. Whoever ends the last hold owns the slot, and frees it. The bits of up to 32 consumers and the
//! generation stand in one word, so that nothing that was decided about one generation can change another one.

use super::ranks::Ranks;
use crate::sync::modelled::atomic::{AtomicU32, AtomicU64, Ordering};

/// Consumers whose holds stand in one word.
const PER_WORD: usize = 32;

/// A slot at one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SlotRef {
    pub(super) slot: u32,
    pub(super) generation: u64,
}

/// What ending a hold came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It had ended before, or the generation is over.
    Before,
    /// Others still hold the slice.
    Held,
    /// It was the last hold: the caller frees the slot.
    Last,
}

/// What is known of a slot, in bytes and in nanoseconds since the pool was made. Exact for the owner of the slot;
/// anybody else may read values of different generations.
#[derive(Debug, Default)]
pub(super) struct About {
    pub(super) offset: AtomicU64,
    pub(super) length: AtomicU64,
    pub(super) published: AtomicU64,
    /// 0 for never.
    pub(super) expires: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    generation: AtomicU64,
    /// Holds that have not ended.
    left: AtomicU32,
    about: About,
}

#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    /// `words` for each slot: the generation's low half above, one bit a consumer below.
    holds: Box<[AtomicU64]>,
    words: usize,
    /// Slots from here on were never used.
    used: AtomicU32,
}

impl Slots {
    pub(super) fn new(slots: u32, consumers: usize) -> Slots {
        let words = consumers.div_ceil(PER_WORD);
        Slots {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            holds: (0..slots as usize * words)
                .map(|_| AtomicU64::new(0))
                .collect(),
            words,
            used: AtomicU32::new(0),
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// All slots that were ever used.
    pub(super) fn used(&self) -> std::ops::Range<u32> {
        0..self.used.load(Ordering::Acquire)
    }

    pub(super) fn about(&self, slot: u32) -> &About {
        &self.slots[slot as usize].about
    }

    /// The last generation of a slot: the current one, if it is in use.
    pub(super) fn generation(&self, slot: u32) -> u64 {
        self.slots[slot as usize].generation.load(Ordering::Acquire)
    }

    /// Begins a generation of a slot, of which the caller is the owner.
    pub(super) fn begin(&self, slot: u32) -> SlotRef {
        let generation = &self.slots[slot as usize].generation;
        self.used.fetch_max(slot + 1, Ordering::AcqRel);
        SlotRef {
            slot,
            generation: generation.fetch_add(1, Ordering::AcqRel) + 1,
        }
    }

    /// Makes a reserved slot live: each of these consumers, one at the least, holds it.
    pub(super) fn go_live(&self, at: SlotRef, ranks: &Ranks) {
        let count = ranks.count() as u32;
        // Before the first bit: it must not come to zero while others are being set.
        self.slots[at.slot as usize]
            .left
            .store(count, Ordering::Relaxed);
        for (index, word) in self.words_of(at.slot).iter().enumerate() {
            let bits = u64::from(ranks.word(index));
            word.store(tag(at.generation) | bits, Ordering::Release);
        }
    }

    /// The consumers that hold a slot, and the low half of its generation, as far as one word goes.
    fn held_in(&self, slot: u32, word: usize) -> (u32, u32) {
        let value = self.words_of(slot)[word].load(Ordering::Acquire);
        ((value >> PER_WORD) as u32, value as u32)
    }

    /// Whether this consumer holds this generation.
    pub(super) fn holds(&self, at: SlotRef, rank: usize) -> bool {
        let (generation, bits) = self.held_in(at.slot, rank / PER_WORD);
        generation == at.generation as u32 && bits >> (rank % PER_WORD) & 1 == 1
    }

    /// Calls with every consumer that holds the slot, at the generation that it has then.
    pub(super) fn each_holder(&self, slot: u32, mut each: impl FnMut(SlotRef, usize)) {
        for word in 0..self.words {
            let (_, mut bits) = self.held_in(slot, word);
            if bits == 0 {
                continue;
            }
            // Read behind the bits: a later one makes every use of it fail, which is right.
            let generation = self.generation(slot);
            while bits != 0 {
                let rank = word * PER_WORD + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                each(SlotRef { slot, generation }, rank);
            }
        }
    }

    /// Ends the hold of a consumer on one generation.
    pub(super) fn end_hold(&self, at: SlotRef, rank: usize) -> Ended {
        let word = &self.words_of(at.slot)[rank / PER_WORD];
        let bit = 1 << (rank % PER_WORD);
        let mut value = word.load(Ordering::Acquire);
        loop {
            if value & !u64::from(u32::MAX) != tag(at.generation) || value & bit == 0 {
                return Ended::Before;
            }
            match word.compare_exchange_weak(
                value,
                value & !bit,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(found) => value = found,
            }
        }
        // This hold counts until here, so the generation is still the same.
        match self.slots[at.slot as usize]
            .left
            .fetch_sub(1, Ordering::AcqRel)
        {
            1 => Ended::Last,
            _ => Ended::Held,
        }
    }

    fn words_of(&self, slot: u32) -> &[AtomicU64] {
        let start = slot as usize * self.words;
        &self.holds[start..start + self.words]
    }
}

fn tag(generation: u64) -> u64 {
    u64::from(generation as u32) << PER_WORD
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    fn live(slots: &Slots, ranks: &[usize]) -> SlotRef {
        let at = slots.begin(0);
        slots.go_live(at, &Ranks::of(ranks.iter().copied(), 70));
        at
    }

    #[test]
    fn the_last_hold_frees() {
        let slots = Slots::new(1, 70);
        let at = live(&slots, &[0, 33, 69]);
        assert_eq!(slots.end_hold(at, 33), Ended::Held);
        assert_eq!(slots.end_hold(at, 33), Ended::Before);
        assert_eq!(slots.end_hold(at, 1), Ended::Before);
        assert_eq!(slots.end_hold(at, 69), Ended::Held);
        assert!(slots.holds(at, 0));
        assert_eq!(slots.end_hold(at, 0), Ended::Last);
        assert!(!slots.holds(at, 0));
    }

    #[test]
    fn an_old_generation_ends_nothing() {
        let slots = Slots::new(1, 70);
        let old = live(&slots, &[2]);
        assert_eq!(slots.end_hold(old, 2), Ended::Last);
        let new = live(&slots, &[2]);
        assert_eq!(slots.end_hold(old, 2), Ended::Before);
        assert!(slots.holds(new, 2) && !slots.holds(old, 2));
        let mut holders = Vec::new();
        slots.each_holder(0, |at, rank| holders.push((at, rank)));
        assert_eq!(holders, [(new, 2)]);
    }
}
