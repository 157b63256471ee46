//! Block arithmetic: which blocks cover a gap.
//!
//! A block is a power of two between the least and the greatest size, at a multiple of its own size. The range is
//! thought of as divided into slots of the least size; a gap between blocks always consists of whole slots, so that no
//! block has to be smaller than a slot.

use std::ops::Range;

/// The least and the greatest size of blocks, in bytes: powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: usize,
    pub(super) greatest: usize,
}

impl Bounds {
    /// The whole slots that have bytes in the range.
    pub(super) fn slots(self, range: &Range<usize>) -> Range<usize> {
        let mask = self.least - 1;
        range.start & !mask..(range.end + mask) & !mask
    }

    /// The largest block that starts at the start of a gap and ends in it.
    fn first(self, gap: &Range<usize>) -> Range<usize> {
        let aligned = match gap.start {
            0 => self.greatest,
            start => 1 << start.trailing_zeros(),
        };
        let fits = 1 << gap.len().ilog2();
        gap.start..gap.start + self.greatest.min(aligned).min(fits)
    }

    /// The blocks that cover a gap of whole slots, from its start on: the fewest there are.
    pub(super) fn cover(self, mut gap: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        std::iter::from_fn(move || {
            if gap.is_empty() {
                return None;
            }
            let block = self.first(&gap);
            gap.start = block.end;
            Some(block)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const G: usize = 2 << 20;

    /// Bounds, and a gap of whole slots.
    fn gaps() -> impl Strategy<Value = (Bounds, Range<usize>)> {
        (0u32..6, 0u32..10, 0usize..5000, 1usize..3000).prop_map(|(least, more, start, slots)| {
            let bounds = Bounds {
                least: G << least,
                greatest: G << (least + more),
            };
            (bounds, start * bounds.least..(start + slots) * bounds.least)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn blocks_cover_a_gap_exactly_and_are_as_large_as_can_be((bounds, gap) in gaps()) {
            let mut end = gap.start;
            for block in bounds.cover(gap.clone()) {
                prop_assert_eq!(block.start, end);
                end = block.end;
                let size = block.len();
                prop_assert!(size.is_power_of_two());
                prop_assert!((bounds.least..=bounds.greatest).contains(&size));
                prop_assert_eq!(block.start % size, 0);
                // Twice the size would be too large, unaligned, or reach out of the gap.
                let twice = block.start & !(2 * size - 1);
                let larger = 2 * size <= bounds.greatest && twice >= gap.start && twice + 2 * size <= gap.end;
                prop_assert!(!larger, "{block:?} of {gap:?} could be larger");
            }
            prop_assert_eq!(end, gap.end);
        }

        #[test]
        fn slots_are_the_fewest_around_a_range((bounds, gap) in gaps(), cut in 0usize..64, short in 0usize..64) {
            let range = gap.start + (cut * G) % bounds.least..gap.end - (short * G) % bounds.least;
            prop_assume!(!range.is_empty());
            let slots = bounds.slots(&range);
            prop_assert!(slots.start <= range.start && range.end <= slots.end);
            prop_assert!(range.start - slots.start < bounds.least && slots.end - range.end < bounds.least);
            prop_assert_eq!((slots.start % bounds.least, slots.end % bounds.least), (0, 0));
        }
    }

    #[test]
    fn few_blocks_for_much() {
        let bounds = Bounds {
            least: G,
            greatest: 1 << 30,
        };
        let sizes = |gap| {
            bounds
                .cover(gap)
                .map(|block| block.len() / G)
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(0..4 << 30), [512; 4]);
        assert_eq!(sizes(0..3 * G), [2, 1]);
        assert_eq!(sizes(G..9 * G), [1, 2, 4, 1]);
        assert_eq!(sizes(512 * G..513 * G), [1]);
    }
}
