//! What is written in memory, as runs of equal bytes.

use std::collections::BTreeMap;
use std::ops::Range;

/// A run: how many bytes, and which.
pub type Run = (usize, u8);

/// All bytes of an allocation. A run goes from its start to the start of the next.
#[derive(Debug, Clone)]
pub struct Contents(BTreeMap<usize, u8>);

impl Contents {
    /// New memory reads as zero.
    pub fn new() -> Contents {
        Contents(BTreeMap::from([(0, 0)]))
    }

    pub fn of(&self, range: Range<usize>) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let next = self.0.range(at + 1..).next();
            let end = next.map_or(range.end, |(start, _)| range.end.min(*start));
            runs.push((end - at, self.at(at)));
            at = end;
        }
        runs
    }

    pub fn put(&mut self, at: usize, runs: &[Run]) {
        let end = at + runs.iter().map(|(length, _)| length).sum::<usize>();
        let behind = self.at(end);
        let covered: Vec<usize> = self.0.range(at..=end).map(|(start, _)| *start).collect();
        for start in covered {
            self.0.remove(&start);
        }
        let mut start = at;
        for &(length, value) in runs {
            self.0.insert(start, value);
            start += length;
        }
        self.0.insert(end, behind);
    }

    fn at(&self, at: usize) -> u8 {
        let run = self.0.range(..=at).next_back();
        *run.expect("a run starts at 0").1
    }
}

/// Runs as bytes.
pub fn bytes(runs: &[Run]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(length, value) in runs {
        // Not `resize`, which without optimisation goes byte by byte.
        bytes.extend_from_slice(&vec![value; length]);
    }
    bytes
}

/// The part of the runs that covers these bytes.
pub fn part(runs: &[Run], range: Range<usize>) -> Vec<Run> {
    let mut at = 0;
    let mut part = Vec::new();
    for &(length, value) in runs {
        let (start, end) = (at.max(range.start), (at + length).min(range.end));
        if start < end {
            part.push((end - start, value));
        }
        at += length;
    }
    part
}
