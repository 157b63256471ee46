//! How often each operation was played, and how it went.

use std::collections::BTreeMap;
use std::fmt;

use crate::verdict::Verdict;

/// For each operation how often it was done, refused, and failed by the driver.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<&'static str, [u64; 3]>);

impl Tally {
    pub fn count(&mut self, operation: &'static str, verdict: Verdict) {
        self.0.entry(operation).or_default()[verdict as usize] += 1;
    }

    pub fn add(&mut self, other: &Tally) {
        for (operation, counts) in &other.0 {
            let sums = self.0.entry(operation).or_default();
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
    }

    pub fn operations(&self) -> u64 {
        self.0.values().flatten().sum()
    }

    /// The operations that never went one of the ways.
    pub fn lacking(&self, verdict: Verdict) -> Vec<&'static str> {
        let never = self
            .0
            .iter()
            .filter(|(_, counts)| counts[verdict as usize] == 0);
        never.map(|(operation, _)| *operation).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:20}{:>8}{:>9}{:>8}",
            "operation", "done", "refused", "failed"
        )?;
        for (operation, [done, refused, failed]) in &self.0 {
            writeln!(f, "{operation:20}{done:8}{refused:9}{failed:8}")?;
        }
        Ok(())
    }
}
