//! Operations on an elastic range, and what it has to hold afterwards: a stamp in each committed granule.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;

use cuda_vmm::{Contents, ElasticRange, Error, Fence, Resized};

use crate::random::Random;
use crate::{must, Outcome};

/// How many bytes are looked at, at either end of a granule.
const LOOK: usize = 32;

pub struct Model {
    granule: usize,
    zeroed: bool,
    /// The most bytes that may be cached.
    cache: usize,
    /// Whether a split leaves nothing behind, as it does where the least block is a granule.
    splits_all: bool,
    /// By granule, if it is committed: its first eight bytes. The others are the stamp's lowest byte.
    stamps: Vec<Option<u64>>,
    next: u64,
    pub played: Played,
}

/// How often what was done.
#[derive(Default)]
pub struct Played {
    commits: u64,
    decommits: u64,
    splits: u64,
    resizes: u64,
    trims: u64,
    copies: u64,
}

impl Model {
    /// Of a range of which nothing is committed. No two numbers give the same stamps.
    pub fn new(range: &ElasticRange, cache: usize, number: u64) -> Model {
        let granule = range.granularity();
        Model {
            granule,
            zeroed: range.contents() != Contents::Unspecified,
            cache,
            splits_all: range.blocks().0 == granule,
            stamps: vec![None; range.size() / granule],
            next: number << 48,
            played: Played::default(),
        }
    }

    pub fn operation(&mut self, range: &mut ElasticRange, random: &mut Random) -> Outcome {
        match random.below(16) {
            0..5 => self.commit(range, random)?,
            5..9 => self.decommit(range, random)?,
            9 => self.split(range, random)?,
            10 | 11 => self.resize(range, random)?,
            12 => self.trim(range, random)?,
            13 => self.copy(range, random)?,
            _ => {
                let granules = self.somewhere(random);
                self.check(range, granules)?;
            }
        }
        self.books(range)
    }

    /// Some granules, committed or not.
    fn somewhere(&self, random: &mut Random) -> Range<usize> {
        let all = self.stamps.len();
        let count = random.size(all);
        let first = random.below(all - count + 1);
        first..first + count
    }

    /// Offset and size in bytes.
    fn bytes(&self, granules: &Range<usize>) -> (usize, usize) {
        (granules.start * self.granule, granules.len() * self.granule)
    }

    fn commit(&mut self, range: &mut ElasticRange, random: &mut Random) -> Outcome {
        let granules = self.somewhere(random);
        let (offset, size) = self.bytes(&granules);
        let done = range.commit(offset, size)?;
        self.played.commits += 1;
        self.is_committed(range, granules, done.bytes)
    }

    /// What is new is zero, if that is promised, and nothing else has changed. Then all of it is stamped anew.
    fn is_committed(
        &mut self,
        range: &mut ElasticRange,
        granules: Range<usize>,
        told: usize,
    ) -> Outcome {
        let new = self.stamps[granules.clone()].iter();
        let new = new.filter(|stamp| stamp.is_none()).count() * self.granule;
        must(told == new, || {
            format!("{new} bytes were committed, and {told} were told")
        })?;
        if self.zeroed {
            let stamps = self.stamps[granules.clone()].iter_mut();
            stamps.for_each(|stamp| *stamp = stamp.or(Some(0)));
        }
        self.check(range, granules.clone())?;
        self.stamp(range, granules)
    }

    fn stamp(&mut self, range: &mut ElasticRange, granules: Range<usize>) -> Outcome {
        let (offset, size) = self.bytes(&granules);
        // One fill for all: the lowest byte stays the same, and the serial number is above it.
        let filler = self.next as u8 ^ (self.next >> 8) as u8;
        range.fill(offset, size, filler)?;
        for granule in granules {
            let stamp = (self.next << 8) | u64::from(filler);
            self.next += 1;
            range.write(granule * self.granule, &stamp.to_le_bytes())?;
            self.stamps[granule] = Some(stamp);
        }
        Ok(())
    }

    fn decommit(&mut self, range: &mut ElasticRange, random: &mut Random) -> Outcome {
        let granules = self.somewhere(random);
        let (offset, size) = self.bytes(&granules);
        let done = range.decommit(offset, size)?;
        self.played.decommits += 1;
        self.is_gone(granules, done.bytes)
    }

    fn split(&mut self, range: &mut ElasticRange, random: &mut Random) -> Outcome {
        let granules = self.somewhere(random);
        let (offset, size) = self.bytes(&granules);
        // All that was done here has waited for its end.
        let fence = Fence::closure(|_| Ok::<(), Box<dyn StdError + Send + Sync>>(()));
        let done = range.decommit_splitting(offset, size, fence)?;
        self.played.splits += 1;
        let kept = done.kept_bytes();
        must(kept == 0 || !self.splits_all, || {
            format!("a split left {kept} bytes")
        })?;
        self.is_gone(granules.clone(), done.bytes)?;
        // What survives at either end was copied.
        let around = granules.start.saturating_sub(4)..(granules.end + 4).min(self.stamps.len());
        self.check(range, around)
    }

    fn is_gone(&mut self, granules: Range<usize>, told: usize) -> Outcome {
        let stamps = self.stamps[granules].iter_mut();
        let gone = stamps.filter_map(Option::take).count() * self.granule;
        must(told == gone, || {
            format!("{gone} bytes were decommitted, and {told} were told")
        })
    }

    fn resize(&mut self, range: &mut ElasticRange, random: &mut Random) -> Outcome {
        let (old, new) = (self.len(), random.below(self.stamps.len() + 1));
        let told = range.resize(new * self.granule);
        self.played.resizes += 1;
        // Not to where a hole ends.
        if new > 0 && new < old && self.stamps[new - 1].is_none() {
            return match told {
                Err(Error::NotCommitted { asked, gap })
                    if asked == (0..new * self.granule) && gap.end == asked.end =>
                {
                    Ok(())
                }
                told => {
                    Err(format!("from {old} to {new} granules, behind a hole: {told:?}").into())
                }
            };
        }
        match told? {
            Resized::Grown(done) if new > old => self.is_committed(range, old..new, done.bytes),
            Resized::Shrunk(done) if new < old => self.is_gone(new..old, done.bytes),
            Resized::Unchanged if new == old => Ok(()),
            told => Err(format!("from {old} to {new} granules: {told:?}").into()),
        }
    }

    /// The granule behind the last committed one.
    fn len(&self) -> usize {
        let last = self.stamps.iter().rposition(Option::is_some);
        last.map_or(0, |last| last + 1)
    }

    fn trim(&mut self, range: &mut ElasticRange, random: &mut Random) -> Outcome {
        let to = random.below(self.cache + 1);
        let before = range.cached_bytes();
        let gone = range.trim(to)?;
        self.played.trims += 1;
        let left = range.cached_bytes();
        must(left <= to && before - left == gone, || {
            format!("trimmed from {before} to {left} bytes; {to} and {gone} were told")
        })
    }

    /// From one committed run to another, or from one half of it to the other.
    fn copy(&mut self, range: &mut ElasticRange, random: &mut Random) -> Outcome {
        let runs: Vec<_> = range.runs().collect();
        if runs.is_empty() {
            return Ok(());
        }
        let in_granules = |run: &Range<usize>| run.start / self.granule..run.end / self.granule;
        let (from, to) = (random.below(runs.len()), random.below(runs.len()));
        let (mut source, mut target) = (in_granules(&runs[from]), in_granules(&runs[to]));
        if from == to {
            let middle = source.start + source.len() / 2;
            (source, target) = (source.start..middle, middle..source.end);
        }
        let count = source.len().min(target.len());
        let (from, to) = (source.start, target.start);
        if count == 0 {
            return Ok(());
        }
        let [to_byte, from_byte, size] = [to, from, count].map(|granules| granules * self.granule);
        range.copy_within(to_byte, from_byte, size)?;
        self.played.copies += 1;
        self.stamps.copy_within(from..from + count, to);
        self.check(range, to..to + count)
    }

    /// Empties the cache, and gives back the last half of the range.
    pub fn make_room(&mut self, range: &mut ElasticRange) -> Outcome {
        range.trim(0)?;
        let (len, half) = (self.len(), self.len() / 2);
        if half < len {
            let gone = range.decommit(half * self.granule, (len - half) * self.granule)?;
            self.is_gone(half..len, gone.bytes)?;
            range.trim(0)?;
        }
        self.books(range)
    }

    /// From all that is committed of another range to the same places of this one, if they are committed here.
    pub fn copy_from(
        &mut self,
        range: &mut ElasticRange,
        other: &Model,
        from: &ElasticRange,
    ) -> Outcome {
        for run in from.runs() {
            if range.is_committed(run.start, run.len()) {
                range.copy_from(run.start, from.reservation(), run.start, run.len())?;
                self.played.copies += 1;
                let granules = run.start / self.granule..run.end / self.granule;
                self.stamps[granules.clone()].copy_from_slice(&other.stamps[granules.clone()]);
                self.check(range, granules)?;
            }
        }
        Ok(())
    }

    /// The range has been suspended without its contents, and resumed.
    pub fn is_zero(&mut self) {
        let stamps = self.stamps.iter_mut();
        stamps.for_each(|stamp| *stamp = stamp.map(|_| 0));
    }

    /// Whether every committed granule holds what it must.
    pub fn check_all(&self, range: &ElasticRange) -> Outcome {
        self.books(range)?;
        self.check(range, 0..self.stamps.len())
    }

    fn check(&self, range: &ElasticRange, granules: Range<usize>) -> Outcome {
        for granule in granules {
            let Some(stamp) = self.stamps[granule] else {
                continue;
            };
            let mut expected = [stamp as u8; LOOK];
            let last = expected;
            expected[..8].copy_from_slice(&stamp.to_le_bytes());
            let start = granule * self.granule;
            for (offset, expected) in [(start, expected), (start + self.granule - LOOK, last)] {
                let mut found = [!stamp as u8; LOOK];
                range.read(offset, &mut found)?;
                must(found == expected, || {
                    format!("offset {offset} reads {found:x?} instead of {expected:x?}")
                })?;
            }
        }
        Ok(())
    }

    /// Whether the range's own numbers are true.
    fn books(&self, range: &ElasticRange) -> Outcome {
        let committed = self.stamps.iter().flatten().count() * self.granule;
        let (retained, cached) = (range.retained_bytes(), range.cached_bytes());
        let runs: usize = range.runs().map(|run| run.len()).sum();
        let len = self.len() * self.granule;
        let holds = range.committed_bytes() == committed
            && runs == committed
            && range.len() == len
            && retained >= committed
            && cached <= self.cache;
        must(holds, || {
            format!("{committed} bytes are committed up to {len}, but: {range:?}")
        })
    }
}

impl Played {
    pub fn add(&mut self, other: &Played) {
        self.commits += other.commits;
        self.decommits += other.decommits;
        self.splits += other.splits;
        self.resizes += other.resizes;
        self.trims += other.trims;
        self.copies += other.copies;
    }
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} commits, {} decommits, {} splits, {} resizes, {} trims, {} copies",
            self.commits, self.decommits, self.splits, self.resizes, self.trims, self.copies
        )
    }
}
