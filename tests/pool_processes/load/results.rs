//! What became of each payload at each consumer.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};

use cuda_vmm::pool::Counters;

use super::{covers, CONSUMERS};

/// Bytes of a consumer's report of one ticket: sequence number and outcome.
pub const REPORT: usize = 9;

/// What a consumer says of a ticket. Wrong contents end it with a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Read, and as published.
    Right = 1,
    /// Dropped unopened.
    Declined,
    Expired,
    Cancelled,
    Covered,
    /// Taken back, and the slot is in use again.
    Reused,
    /// Published before this process attached.
    NotForIt,
}

const OUTCOMES: [Outcome; 7] = [
    Outcome::Right,
    Outcome::Declined,
    Outcome::Expired,
    Outcome::Cancelled,
    Outcome::Covered,
    Outcome::Reused,
    Outcome::NotForIt,
];

/// By sequence number and rank.
pub struct Results {
    outcomes: Box<[AtomicU8]>,
    /// The process that the ticket was delivered to, counted from 1; 0 for none.
    delivered: Box<[AtomicU32]>,
    /// By sequence number: it neither expires nor is cancelled.
    plain: Box<[AtomicU8]>,
    counts: [AtomicU64; OUTCOMES.len() + 1],
}

impl Results {
    pub fn new(publishes: usize) -> Results {
        let places = publishes * CONSUMERS;
        Results {
            outcomes: (0..places).map(|_| AtomicU8::new(0)).collect(),
            delivered: (0..places).map(|_| AtomicU32::new(0)).collect(),
            plain: (0..publishes).map(|_| AtomicU8::new(0)).collect(),
            counts: Default::default(),
        }
    }

    /// This payload neither expires nor is cancelled.
    pub fn is_plain(&self, sequence: u64) {
        self.plain[sequence as usize].store(1, Relaxed);
    }

    pub fn deliver(&self, sequence: u64, rank: usize, process: u32) {
        self.delivered[place(sequence, rank)].store(process, Relaxed);
    }

    /// Notes a report, of which there is one at the most for each ticket and consumer.
    pub fn note(&self, rank: usize, process: u32, report: [u8; REPORT]) {
        let (sequence, code) = report.split_at(8);
        let sequence = u64::from_le_bytes(sequence.try_into().expect("8 bytes"));
        let outcome = OUTCOMES[usize::from(code[0]) - 1];
        let what = format!("payload {sequence} at consumer {rank}, process {process}: {outcome:?}");
        let place = place(sequence, rank);
        assert_eq!(self.delivered[place].load(Relaxed), process, "{what}");
        assert_eq!(self.outcomes[place].swap(code[0], Relaxed), 0, "{what}");
        let plain = self.plain[sequence as usize].load(Relaxed) == 1;
        let first = process as usize <= CONSUMERS;
        match outcome {
            Outcome::Right | Outcome::Declined => {}
            Outcome::Expired | Outcome::Cancelled => assert!(!plain, "{what}"),
            Outcome::Covered => assert!(covers(sequence, rank), "{what}"),
            Outcome::NotForIt => assert!(!first, "{what}"),
            // A process that attached later may have missed any.
            Outcome::Reused => assert!(!first || !plain || covers(sequence, rank), "{what}"),
        }
        self.counts[usize::from(code[0])].fetch_add(1, Relaxed);
    }

    /// Every ticket that was delivered to a process that was not killed has its outcome.
    pub fn complete(&self, rank: usize, process: u32) {
        let is_missing = |sequence: &u64| {
            let place = place(*sequence, rank);
            let here = self.delivered[place].load(Relaxed) == process;
            here && self.outcomes[place].load(Relaxed) == 0
        };
        let missing: Vec<u64> = (0..self.plain.len() as u64).filter(is_missing).collect();
        assert!(missing.is_empty(), "lost at consumer {rank}: {missing:?}");
    }

    fn count(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize].load(Relaxed)
    }

    /// The producer counted what the consumers say. What a killed one did last, it could not say.
    pub fn check(&self, counters: &Counters) {
        assert_eq!(counters.published, self.plain.len() as u64);
        let said = |outcome: Outcome, counted: u64| {
            let said = self.count(outcome);
            assert!(said <= counted, "{outcome:?}: {self}; {counters:?}");
        };
        said(Outcome::Right, counters.acknowledged);
        said(Outcome::Covered, counters.covered);
        said(Outcome::Expired, counters.expired);
        said(Outcome::Cancelled, counters.cancelled_holds);
        assert_eq!(counters.refused_scopes, 0);
        // Each kind came about.
        for outcome in &OUTCOMES[..5] {
            let rare = self.plain.len() < 4000;
            assert!(rare || self.count(*outcome) > 0, "no {outcome:?}: {self}");
        }
    }
}

fn place(sequence: u64, rank: usize) -> usize {
    sequence as usize * CONSUMERS + rank
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reported by consumers:")?;
        for outcome in OUTCOMES {
            write!(f, " {} {:?},", self.count(outcome), outcome)?;
        }
        Ok(())
    }
}
