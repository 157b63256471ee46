//! The mappings of a reservation, by offset.
//!
//! A trie over the reservation's units (a unit is the least granularity): the leaves hold 64 mappings each, keyed by the unit a mapping starts
//! at; above them, one bit a leaf says which are not empty, one bit a word of those, and so on. Finding, inserting and removing
//! cost the same few steps for ten mappings as for a million. Nothing is allocated but the first time a leaf is touched, and what was
//! allocated stays until the table goes, so a steady state of mapping and unmapping allocates nothing.

const FAN: usize = 64;

struct Leaf<T> {
    occupied: u64,
    mappings: [Option<T>; FAN],
}

/// Mappings by the unit at which they start.
pub(super) struct Table<T> {
    leaves: Vec<Option<Box<Leaf<T>>>>,
    /// `levels[0]` has a bit for each leaf, `levels[n + 1]` a bit for each word of `levels[n]`; the last has one word.
    levels: Vec<Vec<u64>>,
    len: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { leaves: Vec::new(), levels: Vec::new(), len: 0 }
    }
}

impl<T> Table<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, unit: usize) -> Option<&T> {
        self.leaves.get(unit / FAN)?.as_ref()?.mappings[unit % FAN].as_ref()
    }

    pub(super) fn get_mut(&mut self, unit: usize) -> Option<&mut T> {
        self.leaves.get_mut(unit / FAN)?.as_mut()?.mappings[unit % FAN].as_mut()
    }

    /// Puts a mapping at a unit where there is none.
    pub(super) fn insert(&mut self, unit: usize, mapping: T) {
        let index = unit / FAN;
        self.cover(index);
        let leaf = self.leaves[index].get_or_insert_with(Leaf::empty);
        debug_assert!(leaf.mappings[unit % FAN].is_none());
        if leaf.occupied == 0 {
            self.mark(index);
        }
        let leaf = self.leaves[index].get_or_insert_with(Leaf::empty);
        leaf.occupied |= 1 << (unit % FAN);
        leaf.mappings[unit % FAN] = Some(mapping);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, unit: usize) -> Option<T> {
        let index = unit / FAN;
        let leaf = self.leaves.get_mut(index)?.as_mut()?;
        let mapping = leaf.mappings[unit % FAN].take()?;
        leaf.occupied &= !(1 << (unit % FAN));
        self.len -= 1;
        if leaf.occupied == 0 {
            self.unmark(index);
        }
        Some(mapping)
    }

    /// The last mapping that starts at this unit or before.
    pub(super) fn last_up_to(&self, unit: usize) -> Option<&T> {
        let index = unit / FAN;
        if let Some(Some(leaf)) = self.leaves.get(index) {
            if let Some(at) = highest_up_to(leaf.occupied, unit % FAN) {
                return leaf.mappings[at].as_ref();
            }
        }
        let leaf = self.marked_below(index)?;
        self.leaves[leaf].as_ref()?.last()
    }

    /// The first mapping that starts at this unit or behind.
    pub(super) fn first_from(&self, unit: usize) -> Option<&T> {
        let index = unit / FAN;
        if let Some(Some(leaf)) = self.leaves.get(index) {
            if let Some(at) = lowest_from(leaf.occupied, unit % FAN) {
                return leaf.mappings[at].as_ref();
            }
        }
        let leaf = self.marked_above(index)?;
        self.leaves[leaf].as_ref()?.first()
    }

    /// All mappings, by offset.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.leaves.iter().flatten().filter(|leaf| leaf.occupied != 0).flat_map(|leaf| leaf.mappings.iter().flatten())
    }

    /// All mappings, to be changed, by offset.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let used = |leaf: &&mut Box<Leaf<T>>| leaf.occupied != 0;
        self.leaves.iter_mut().flatten().filter(used).flat_map(|leaf| leaf.mappings.iter_mut().flatten())
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
            let below = u64::from(self.levels[level - 1].first().is_some_and(|word| *word != 0));
            self.levels[level].push(below);
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
        let mut end = index.min(self.leaves.len());
        for (height, level) in self.levels.iter().enumerate() {
            // Bits [0, end) of this level are below; those of the word that `end` cuts come first.
            if end % FAN != 0 {
                if let Some(at) = highest_up_to(level[end / FAN], end % FAN - 1) {
                    return Some(self.descend(height, end / FAN * FAN + at, |word| 63 - word.leading_zeros() as usize));
                }
            }
            end /= FAN;
        }
        None
    }

    /// The first marked leaf above this one.
    fn marked_above(&self, index: usize) -> Option<usize> {
        let mut start = index.checked_add(1)?;
        for (height, level) in self.levels.iter().enumerate() {
            // Bits [start, ..) of this level are above; those of the word that holds `start` come first.
            let word = *level.get(start / FAN)?;
            if let Some(at) = lowest_from(word, start % FAN) {
                return Some(self.descend(height, start / FAN * FAN + at, |word| word.trailing_zeros() as usize));
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

impl<T> Leaf<T> {
    fn empty() -> Box<Leaf<T>> {
        Box::new(Leaf { occupied: 0, mappings: [const { None }; FAN] })
    }

    fn first(&self) -> Option<&T> {
        self.mappings[lowest_from(self.occupied, 0)?].as_ref()
    }

    fn last(&self) -> Option<&T> {
        self.mappings[highest_up_to(self.occupied, FAN - 1)?].as_ref()
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
        prop_oneof![0usize..200, 4090usize..4200, 262_000usize..262_400, Just(0), Just(63), Just(64), Just(4095), Just(4096), 0usize..3_000_000]
    }

    proptest! {
        #[test]
        fn answers_as_an_ordered_map_does(steps in prop::collection::vec((unit(), any::<bool>(), unit()), 1..200)) {
            let mut table = Table::default();
            let mut model = BTreeMap::new();
            for (step, (unit, remove, probe)) in steps.into_iter().enumerate() {
                if remove {
                    prop_assert_eq!(table.remove(unit), model.remove(&unit));
                } else if !model.contains_key(&unit) {
                    table.insert(unit, (unit, step));
                    model.insert(unit, (unit, step));
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.get(probe), model.get(&probe));
                prop_assert_eq!(table.last_up_to(probe), model.range(..=probe).next_back().map(|(_, value)| value));
                prop_assert_eq!(table.first_from(probe), model.range(probe..).next().map(|(_, value)| value));
            }
            prop_assert!(table.iter().eq(model.values()));
        }
    }
}
