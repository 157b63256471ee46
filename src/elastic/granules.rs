//! Which granules are committed: one bit each, and above them one bit for each word that is not empty, and so on, so
//! that looking for a neighbour costs the same among a thousand granules as among a million.

use std::ops::Range;

const WORD: usize = 64;

pub(super) struct Granules {
    /// `levels[0]` has a bit for each granule, `levels[n + 1]` one for each word of `levels[n]`; the last has one word.
    levels: Vec<Vec<u64>>,
    count: usize,
    len: usize,
}

impl Granules {
    /// So many granules, none of them committed.
    pub(super) fn new(len: usize) -> Granules {
        let mut levels = Vec::new();
        let mut bits = len;
        loop {
            let words = bits.div_ceil(WORD).max(1);
            levels.push(vec![0; words]);
            if words == 1 {
                break;
            }
            bits = words;
        }
        Granules {
            levels,
            count: 0,
            len,
        }
    }

    /// How many are committed.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Commits a range that is not empty. Gives how many were not committed before.
    pub(super) fn set(&mut self, range: Range<usize>) -> usize {
        let mut new = 0;
        let mut bits = range;
        for (height, level) in self.levels.iter_mut().enumerate() {
            for (word, mask) in words(&bits) {
                if height == 0 {
                    new += (mask & !level[word]).count_ones() as usize;
                }
                level[word] |= mask;
            }
            bits = bits.start / WORD..(bits.end - 1) / WORD + 1;
        }
        self.count += new;
        new
    }

    /// Decommits a range that is not empty. Gives how many were committed before.
    pub(super) fn clear(&mut self, range: Range<usize>) -> usize {
        let mut old = 0;
        let mut bits = range;
        for (height, level) in self.levels.iter_mut().enumerate() {
            for (word, mask) in words(&bits) {
                if height == 0 {
                    old += (mask & level[word]).count_ones() as usize;
                }
                level[word] &= !mask;
            }
            // Only the first and the last word can have kept something.
            let (first, last) = (bits.start / WORD, (bits.end - 1) / WORD);
            bits = first + usize::from(level[first] != 0)..last + usize::from(level[last] == 0);
            if bits.is_empty() {
                break;
            }
        }
        self.count -= old;
        old
    }

    /// The first committed granule at or behind this one.
    pub(super) fn first_set(&self, from: usize) -> Option<usize> {
        let mut start = from;
        for (height, level) in self.levels.iter().enumerate() {
            let word = *level.get(start / WORD)?;
            let above = word & (u64::MAX << (start % WORD));
            if above != 0 {
                let bit = start / WORD * WORD + above.trailing_zeros() as usize;
                return Some(self.descend(height, bit, |word| word.trailing_zeros() as usize));
            }
            start = start / WORD + 1;
        }
        None
    }

    /// The last committed granule of all.
    pub(super) fn last_set(&self) -> Option<usize> {
        let highest = |word: u64| WORD - 1 - word.leading_zeros() as usize;
        let top = self.levels.len() - 1;
        match self.levels[top][0] {
            0 => None,
            word => Some(self.descend(top, highest(word), highest)),
        }
    }

    /// The first granule of the range that is not committed.
    pub(super) fn first_unset(&self, range: Range<usize>) -> Option<usize> {
        let unset = words(&range).find_map(|(word, mask)| {
            let vacant = mask & !self.levels[0][word];
            (vacant != 0).then(|| word * WORD + vacant.trailing_zeros() as usize)
        });
        unset.filter(|_| !range.is_empty())
    }

    /// Whether any granule of the range is committed.
    pub(super) fn any(&self, range: Range<usize>) -> bool {
        self.first_set(range.start)
            .is_some_and(|first| first < range.end)
    }

    /// The committed runs in a range, cut at its ends.
    pub(super) fn runs(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut rest = range.start..range.end.min(self.len);
        std::iter::from_fn(move || {
            let start = self.first_set(rest.start).filter(|at| *at < rest.end)?;
            let end = self.first_unset(start..rest.end).unwrap_or(rest.end);
            rest.start = end;
            Some(start..end)
        })
    }

    /// The runs that are not committed in a range.
    pub(super) fn gaps(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut rest = range;
        std::iter::from_fn(move || {
            let start = self.first_unset(rest.clone())?;
            let end = self.first_set(start).unwrap_or(rest.end).min(rest.end);
            rest.start = end;
            Some(start..end)
        })
    }

    /// From a set bit of a level down to a granule, choosing in each word.
    fn descend(&self, height: usize, mut bit: usize, choose: impl Fn(u64) -> usize) -> usize {
        for level in self.levels[..height].iter().rev() {
            bit = bit * WORD + choose(level[bit]);
        }
        bit
    }
}

/// The words that a range of bits touches, each with the bits of it.
fn words(range: &Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = *range;
    (start / WORD..end.div_ceil(WORD)).map(move |word| {
        let from = start.saturating_sub(word * WORD);
        let to = (end - word * WORD).min(WORD);
        (word, (u64::MAX << from) & (u64::MAX >> (WORD - to)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 5_000;

    fn ranges() -> impl Strategy<Value = Range<usize>> {
        (
            0usize..LEN,
            prop_oneof![1usize..5, 1usize..200, 1usize..LEN],
        )
            .prop_map(|(start, size)| start..(start + size).min(LEN))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn answers_as_a_row_of_flags_does(steps in prop::collection::vec((any::<bool>(), ranges(), ranges()), 1..60)) {
            let mut granules = Granules::new(LEN);
            let mut flags = vec![false; LEN];
            for (set, range, probe) in steps {
                let differing = flags[range.clone()].iter().filter(|flag| **flag != set).count();
                let changed = match set {
                    true => granules.set(range.clone()),
                    false => granules.clear(range.clone()),
                };
                flags[range].fill(set);
                prop_assert_eq!(changed, differing);
                prop_assert_eq!(granules.count(), flags.iter().filter(|flag| **flag).count());
                let first = (probe.start..LEN).find(|at| flags[*at]);
                prop_assert_eq!(granules.first_set(probe.start), first);
                prop_assert_eq!(granules.last_set(), (0..LEN).rfind(|at| flags[*at]));
                prop_assert_eq!(granules.first_unset(probe.clone()), probe.clone().find(|at| !flags[*at]));
                prop_assert_eq!(granules.any(probe.clone()), flags[probe.clone()].contains(&true));
                prop_assert!(granules.runs(probe.clone()).eq(alike(&flags, &probe, true)));
                prop_assert!(granules.gaps(probe.clone()).eq(alike(&flags, &probe, false)));
            }
        }
    }

    fn alike(flags: &[bool], range: &Range<usize>, wanted: bool) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in range.clone().filter(|at| flags[*at] == wanted) {
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end = at + 1,
                None => runs.push(at..at + 1),
            }
        }
        runs
    }

    #[test]
    fn one_granule_and_many() {
        for len in [1, 63, 64, 65, 4096, 4097, 300_000] {
            let mut granules = Granules::new(len);
            assert_eq!((granules.last_set(), granules.first_set(0)), (None, None));
            assert_eq!(granules.set(len - 1..len), 1);
            assert_eq!(
                (granules.last_set(), granules.first_set(0)),
                (Some(len - 1), Some(len - 1))
            );
            assert_eq!(granules.set(0..len), len - 1);
            let mut runs = granules.runs(0..usize::MAX);
            assert_eq!((runs.next(), runs.next()), (Some(0..len), None));
            drop(runs);
            assert_eq!(granules.clear(0..len), len);
            assert_eq!(granules.last_set(), None);
        }
    }
}
