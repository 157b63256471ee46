//! The mappings of a reservation, by offset.
//!
//! A trie over the reservation's units (a unit is the least granularity): a leaf says of 64 units which of them a
//! mapping starts at, how long it is and where in a pool it lies; above the leaves, one bit a leaf says which are not
//! empty, one bit a word of those, and so on. Finding, inserting and removing cost the same few steps, over the same
//! few cache lines, for ten mappings as for a million.
//!
//! Nothing is allocated but the first time a leaf is touched or the pool grows, and what was allocated stays until the
//! table goes: a steady state of mapping and unmapping allocates nothing.

const FAN: usize = 64;

/// How many units a table can have: they are counted in 32 bits.
pub(super) const MAX_UNITS: usize = u32::MAX as usize;

struct Leaf {
    occupied: u64,
    places: [Place; FAN],
}

/// Eight bytes, so that finding a neighbour or an entry touches few cache lines among a hundred thousand.
#[derive(Clone, Copy)]
struct Place {
    units: u32,
    slot: u32,
}

/// Entries by the unit at which they start, none over another.
pub(super) struct Table<T> {
    leaves: Vec<Option<Box<Leaf>>>,
    /// `levels[0]` has a bit for each leaf, `levels[n + 1]` a bit for each word of `levels[n]`; the last has one word.
    levels: Vec<Vec<u64>>,
    pool: Vec<Option<T>>,
    /// Vacant slots of the pool. The one left last is taken first: it is still in cache.
    vacant: Vec<u32>,
    len: usize,
}

/// Where an entry is: the units it covers, and its slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    slot: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table {
            leaves: Vec::new(),
            levels: Vec::new(),
            pool: Vec::new(),
            vacant: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Table<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The entry that starts at this unit.
    pub(super) fn get(&self, unit: usize) -> Option<&T> {
        self.pool[self.span(unit)?.slot as usize].as_ref()
    }

    /// The entry that starts at this unit, to be changed (but not moved or resized).
    pub(super) fn get_mut(&mut self, unit: usize) -> Option<&mut T> {
        let slot = self.span(unit)?.slot;
        self.pool[slot as usize].as_mut()
    }

    /// The entry of a span that this table gave.
    pub(super) fn at(&self, span: Span) -> Option<&T> {
        self.pool[span.slot as usize].as_ref()
    }

    /// The entry of a span that this table gave, to be changed (but not moved or resized).
    pub(super) fn at_mut(&mut self, span: Span) -> Option<&mut T> {
        self.pool[span.slot as usize].as_mut()
    }

    /// Puts an entry at `units` vacant units. All units lie below [`MAX_UNITS`].
    pub(super) fn insert(&mut self, unit: usize, units: usize, entry: T) {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                // Room for the slot's return is made now, so that a removal never allocates.
                self.vacant.reserve(self.pool.len() + 1);
                self.pool.push(None);
                // No more than there are units.
                (self.pool.len() - 1) as u32
            }
        };
        self.pool[slot as usize] = Some(entry);
        let index = unit / FAN;
        self.cover(index);
        let leaf = self.leaves[index].get_or_insert_with(Leaf::empty);
        let was_empty = leaf.occupied == 0;
        debug_assert_eq!(leaf.occupied & 1 << (unit % FAN), 0);
        leaf.occupied |= 1 << (unit % FAN);
        leaf.places[unit % FAN] = Place {
            units: units as u32,
            slot,
        };
        self.len += 1;
        if was_empty {
            self.mark(index);
        }
    }

    pub(super) fn remove(&mut self, unit: usize) -> Option<T> {
        let index = unit / FAN;
        let leaf = self.leaves.get_mut(index)?.as_mut()?;
        if leaf.occupied & 1 << (unit % FAN) == 0 {
            return None;
        }
        leaf.occupied &= !(1 << (unit % FAN));
        let slot = leaf.places[unit % FAN].slot;
        let is_empty = leaf.occupied == 0;
        self.len -= 1;
        self.vacant.push(slot);
        if is_empty {
            self.unmark(index);
        }
        self.pool[slot as usize].take()
    }

    /// The last entry that starts at this unit or before.
    pub(super) fn last_up_to(&self, unit: usize) -> Option<Span> {
        let index = unit / FAN;
        if let Some(Some(leaf)) = self.leaves.get(index) {
            if let Some(at) = highest_up_to(leaf.occupied, unit % FAN) {
                return Some(leaf.span(index, at));
            }
        }
        let index = self.marked_below(index)?;
        let leaf = self.leaves[index].as_ref()?;
        Some(leaf.span(index, highest_up_to(leaf.occupied, FAN - 1)?))
    }

    /// The first entry that starts at this unit or behind.
    pub(super) fn first_from(&self, unit: usize) -> Option<Span> {
        let index = unit / FAN;
        if let Some(Some(leaf)) = self.leaves.get(index) {
            if let Some(at) = lowest_from(leaf.occupied, unit % FAN) {
                return Some(leaf.span(index, at));
            }
        }
        let index = self.marked_above(index)?;
        let leaf = self.leaves[index].as_ref()?;
        Some(leaf.span(index, lowest_from(leaf.occupied, 0)?))
    }

    /// All entries, by unit.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        let mut next = self.first_from(0);
        std::iter::from_fn(move || {
            let span = next?;
            next = self.first_from(span.end);
            self.at(span)
        })
    }

    /// All entries, in no order, to be changed (but not moved or resized).
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.pool.iter_mut().flatten()
    }

    fn span(&self, unit: usize) -> Option<Span> {
        let index = unit / FAN;
        let leaf = self.leaves.get(index)?.as_ref()?;
        (leaf.occupied & 1 << (unit % FAN) != 0).then(|| leaf.span(index, unit % FAN))
    }

    /// Makes room for this leaf and for the bits above it.
    fn cover(&mut self, index: usize) {
        if index < self.leaves.len() {
            return;
        }
        self.leaves.resize_with(index + 1, || None);
        let mut bits = self.leaves.len();
        for level in 0.. {
            let words = bits.div_ceil(FAN);
            if level == self.levels.len() {
                self.levels.push(Vec::new());
                self.seed(level);
            }
            self.levels[level].resize(words, 0);
            if words == 1 {
                break;
            }
            bits = words;
        }
    }

    /// A level that comes to be when the table grows summarises the one below, which until then had one word.
    fn seed(&mut self, level: usize) {
        if level > 0 {
            let below = self.levels[level - 1]
                .first()
                .is_some_and(|word| *word != 0);
            self.levels[level].push(below.into());
        }
    }

    fn mark(&mut self, mut index: usize) {
        for level in &mut self.levels {
            let word = &mut level[index / FAN];
            let was_empty = *word == 0;
            *word |= 1 << (index % FAN);
            if !was_empty {
                return;
            }
            index /= FAN;
        }
    }

    fn unmark(&mut self, mut index: usize) {
        for level in &mut self.levels {
            let word = &mut level[index / FAN];
            *word &= !(1 << (index % FAN));
            if *word != 0 {
                return;
            }
            index /= FAN;
        }
    }

    /// The last marked leaf below this one.
    fn marked_below(&self, index: usize) -> Option<usize> {
        let mut last = index.min(self.leaves.len()).checked_sub(1)?;
        for (height, level) in self.levels.iter().enumerate() {
            // Of the bits up to `last`, those in its word come first; the words before it are bits of the next level.
            if let Some(at) = highest_up_to(level[last / FAN], last % FAN) {
                let highest = |word: u64| 63 - word.leading_zeros() as usize;
                return Some(self.descend(height, last / FAN * FAN + at, highest));
            }
            last = (last / FAN).checked_sub(1)?;
        }
        None
    }

    /// The first marked leaf above this one.
    fn marked_above(&self, index: usize) -> Option<usize> {
        let mut start = index.checked_add(1)?;
        for (height, level) in self.levels.iter().enumerate() {
            // Of the bits from `start` on, those in its word come first; the words behind it are bits of the next
            // level.
            let word = *level.get(start / FAN)?;
            if let Some(at) = lowest_from(word, start % FAN) {
                let lowest = |word: u64| word.trailing_zeros() as usize;
                return Some(self.descend(height, start / FAN * FAN + at, lowest));
            }
            start = start / FAN + 1;
        }
        None
    }

    /// From a marked bit of a level down to a leaf, choosing in each word.
    fn descend(&self, height: usize, mut bit: usize, choose: impl Fn(u64) -> usize) -> usize {
        for level in self.levels[..height].iter().rev() {
            bit = bit * FAN + choose(level[bit]);
        }
        bit
    }
}

impl Leaf {
    fn empty() -> Box<Leaf> {
        Box::new(Leaf {
            occupied: 0,
            places: [Place { units: 0, slot: 0 }; FAN],
        })
    }

    fn span(&self, index: usize, at: usize) -> Span {
        let start = index * FAN + at;
        let Place { units, slot } = self.places[at];
        Span {
            start,
            end: start + units as usize,
            slot,
        }
    }
}

/// The highest set bit at or below `at`.
fn highest_up_to(word: u64, at: usize) -> Option<usize> {
    let below = word & (u64::MAX >> (63 - at));
    (below != 0).then(|| 63 - below.leading_zeros() as usize)
}

/// The lowest set bit at or above `at`.
fn lowest_from(word: u64, at: usize) -> Option<usize> {
    let above = word & (u64::MAX << at);
    (above != 0).then(|| above.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Units near each other, near the borders of leaves and levels, and far apart.
    fn unit() -> impl Strategy<Value = usize> {
        prop_oneof![
            0usize..200,
            4090usize..4200,
            262_000usize..262_400,
            Just(0),
            Just(63),
            Just(64),
            Just(4095),
            Just(4096),
            0usize..3_000_000
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            // A case that fails becomes a test of its own; no folder of seeds beside the sources.
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn answers_as_an_ordered_map_does(steps in prop::collection::vec((unit(), any::<bool>(), unit()), 1..200)) {
            check(steps)?;
        }
    }

    #[test]
    fn the_last_of_a_leaf_is_before_the_first_of_the_next() {
        check(vec![(4095, false, 4096)]).unwrap();
    }

    /// Each step removes or inserts at a unit, then compares what is at and around another.
    fn check(steps: Vec<(usize, bool, usize)>) -> Result<(), TestCaseError> {
        let mut table = Table::default();
        let mut model = BTreeMap::new();
        for (step, (unit, remove, probe)) in steps.into_iter().enumerate() {
            if remove {
                prop_assert_eq!(table.remove(unit), model.remove(&unit));
            } else if let std::collections::btree_map::Entry::Vacant(vacant) = model.entry(unit) {
                table.insert(unit, 1, step);
                vacant.insert(step);
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(table.get(probe), model.get(&probe));
            let before = table.last_up_to(probe).map(|span| span.start);
            prop_assert_eq!(
                before,
                model.range(..=probe).next_back().map(|(unit, _)| *unit)
            );
            let behind = table.first_from(probe).map(|span| span.start);
            prop_assert_eq!(behind, model.range(probe..).next().map(|(unit, _)| *unit));
        }
        prop_assert!(table.iter().eq(model.values()));
        Ok(())
    }
}
