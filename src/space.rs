//! The range allocator: which offsets or addresses are ours, and which of them are taken.
//!
//! Offsets or addresses only, no memory. Free ranges are kept by where they start and by length, so that taking and
//! giving back cost a search in a tree however many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free offsets or addresses, merged wherever they touch.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Start to end.
    free: BTreeMap<u64, u64>,
    /// The same ranges as (length, start).
    by_length: BTreeSet<(u64, u64)>,
    /// The sum of their lengths. They are disjoint, so that it cannot overflow.
    total: u64,
}

impl Space {
    /// Adds a range, which must not be free yet.
    pub(crate) fn give(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        if let Some((&before, &touches)) = self.free.range(..start).next_back() {
            debug_assert!(touches <= start, "the range is free already");
            if touches == start {
                self.remove(before);
                start = before;
            }
        }
        if let Some(after) = self.remove(end) {
            end = after;
        }
        self.insert(start, end);
    }

    /// Takes exactly this range, if all of it is free.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn take(&mut self, range: Range<u64>) -> bool {
        let Some((&start, &end)) = self.free.range(..=range.start).next_back() else {
            return false;
        };
        if end < range.end || range.is_empty() {
            return false;
        }
        self.remove(start);
        self.insert(start, range.start);
        self.insert(range.end, end);
        true
    }

    /// Takes `size` bytes at a multiple of `alignment`, `gap` bytes away from the ends of a free range: from what else
    /// is taken, and from what is not ours.
    pub(crate) fn place(&mut self, size: u64, alignment: u64, gap: u64) -> Option<u64> {
        let needed = size.checked_add(gap)?.checked_add(gap)?;
        let (start, at) = self
            .by_length
            .range((needed, 0)..)
            .find_map(|&(length, start)| {
                let at = start
                    .checked_add(gap)?
                    .checked_next_multiple_of(alignment)?;
                let fits = at.checked_add(size)?.checked_add(gap)? <= start + length;
                fits.then_some((start, at))
            })?;
        let end = self.remove(start)?;
        self.insert(start, at);
        self.insert(at + size, end);
        Some(at)
    }

    /// The free range around an address.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn around(&self, address: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.free.range(..=address).next_back()?;
        (address < end).then_some(start..end)
    }

    /// Takes what is free of a range and says which pieces that was.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn take_what_is_free(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut taken = Vec::new();
        let mut from = range.start;
        while from < range.end {
            let piece = match self.around(from) {
                Some(free) => from..free.end.min(range.end),
                None => match self.free.range(from..range.end).next() {
                    Some((&start, &end)) => start..end.min(range.end),
                    None => break,
                },
            };
            self.take(piece.clone());
            from = piece.end;
            taken.push(piece);
        }
        taken
    }

    /// The length of the longest free range, 0 if nothing is free.
    // Used by the pool.
    pub(crate) fn largest(&self) -> u64 {
        self.by_length.last().map_or(0, |&(length, _)| length)
    }

    /// The bytes of all free ranges together.
    // Used by the pool.
    pub(crate) fn free(&self) -> u64 {
        self.total
    }

    fn insert(&mut self, start: u64, end: u64) {
        if start < end {
            self.total += end - start;
            self.free.insert(start, end);
            self.by_length.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64) -> Option<u64> {
        let end = self.free.remove(&start)?;
        self.by_length.remove(&(end - start, start));
        self.total -= end - start;
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        let mut space = Space::default();
        space.give(0x1000..0x9000);
        space
    }

    #[test]
    fn placed_ranges_keep_their_distance() {
        let mut space = space();
        assert_eq!(space.place(0x1000, 0x1000, 0x1000), Some(0x2000));
        assert_eq!(space.place(0x1000, 0x1000, 0x1000), Some(0x4000));
        assert_eq!(space.place(0x3000, 0x1000, 0x1000), None);
    }

    #[test]
    fn alignment_is_honoured() {
        let mut space = space();
        assert_eq!(space.place(0x1000, 0x4000, 0), Some(0x4000));
        assert_eq!(space.place(0x1000, 0x4000, 0), Some(0x8000));
        assert_eq!(space.place(0x1000, 0x4000, 0), None);
    }

    #[test]
    fn what_is_given_back_merges() {
        let mut space = space();
        for start in [0x1000, 0x3000, 0x5000, 0x7000] {
            assert!(space.take(start..start + 0x2000));
        }
        assert_eq!(space.around(0x1000), None);
        for start in [0x3000, 0x7000, 0x1000, 0x5000] {
            space.give(start..start + 0x2000);
        }
        assert_eq!(space.around(0x5000), Some(0x1000..0x9000));
        assert_eq!(space.by_length.len(), 1);
    }

    #[test]
    fn an_exact_range_is_taken_whole_or_not() {
        let mut space = space();
        assert!(!space.take(0x8000..0xa000));
        assert!(space.take(0x8000..0x9000));
        assert!(!space.take(0x8000..0x9000));
    }

    #[test]
    fn the_free_pieces_of_a_range() {
        let mut space = space();
        assert!(space.take(0x3000..0x4000));
        let pieces = space.take_what_is_free(0x2000..0xb000);
        assert_eq!(pieces, [0x2000..0x3000, 0x4000..0x9000]);
        assert_eq!(space.around(0x1000), Some(0x1000..0x2000));
        assert_eq!(space.around(0x4000), None);
    }

    #[test]
    fn nothing_is_free_in_the_beginning() {
        let space = Space::default();
        assert_eq!((space.free(), space.largest()), (0, 0));
    }

    #[test]
    fn the_longest_range_and_the_sum_follow_every_change() {
        let mut space = space();
        assert_eq!((space.free(), space.largest()), (0x8000, 0x8000));
        assert!(space.take(0x3000..0x4000));
        assert_eq!((space.free(), space.largest()), (0x7000, 0x5000));
        assert_eq!(space.place(0x2000, 0x1000, 0), Some(0x1000));
        assert_eq!((space.free(), space.largest()), (0x5000, 0x5000));
        assert_eq!(space.place(0x1000, 0x1000, 0x1000), Some(0x5000));
        assert_eq!((space.free(), space.largest()), (0x4000, 0x3000));
        // What is not taken changes nothing.
        assert!(!space.take(0x5000..0x6000));
        assert_eq!(space.place(0x3001, 1, 0), None);
        space.give(0x5000..0x5000);
        assert_eq!((space.free(), space.largest()), (0x4000, 0x3000));
        assert_eq!(
            space.take_what_is_free(0x0..0x10000),
            [0x4000..0x5000, 0x6000..0x9000]
        );
        assert_eq!((space.free(), space.largest()), (0, 0));
        space.give(0x5000..0x6000);
        space.give(0x7000..0x8000);
        assert_eq!((space.free(), space.largest()), (0x2000, 0x1000));
        space.give(0x6000..0x7000);
        assert_eq!((space.free(), space.largest()), (0x3000, 0x3000));
    }

    #[test]
    fn the_sum_of_everything_fits() {
        let mut space = Space::default();
        space.give(0..u64::MAX);
        assert_eq!((space.free(), space.largest()), (u64::MAX, u64::MAX));
        assert!(space.take(1..u64::MAX - 1));
        assert_eq!((space.free(), space.largest()), (2, 1));
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        assert_eq!(space().place(u64::MAX - 1, 1, 0x1000), None);
    }
}
