//! Numbers that look random (SplitMix64): the same for the same seed.

pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// From 1 to `most`; small numbers mostly, each power of two as often as the next.
    pub fn size(&mut self, most: usize) -> usize {
        let power = 1 << self.below(most.ilog2() as usize + 1);
        (power + self.below(power)).min(most)
    }
}
