//! Sets of consumers, by rank.

/// A set of ranks below a number of consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranks(Vec<u32>);

impl Ranks {
    /// None of so many consumers.
    pub(super) fn none(consumers: usize) -> Ranks {
        Ranks(vec![0; consumers.div_ceil(32)])
    }

    pub(super) fn of(ranks: impl IntoIterator<Item = usize>, consumers: usize) -> Ranks {
        let mut set = Ranks::none(consumers);
        ranks.into_iter().for_each(|rank| set.insert(rank));
        set
    }

    pub(super) fn insert(&mut self, rank: usize) {
        self.0[rank / 32] |= 1 << (rank % 32);
    }

    pub(super) fn remove(&mut self, rank: usize) {
        self.0[rank / 32] &= !(1 << (rank % 32));
    }

    pub(super) fn contains(&self, rank: usize) -> bool {
        self.0[rank / 32] >> (rank % 32) & 1 == 1
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// 32 consumers, one bit each.
    pub(super) fn word(&self, index: usize) -> u32 {
        self.0[index]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 32).filter(|rank| self.contains(*rank))
    }
}
