//! A consumer: opens what comes, holds it for a while, verifies it in one of several ways, and reports.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Consumer, Lease, PoolError, Scope, Taken};
use cuda_vmm::Reservation;

use super::results::Outcome;
use super::{covers, Random};
use crate::scene::*;
use crate::side::Side;

/// Places in the consumer's own memory that copies go to.
const PLACES: usize = 16;
const PLACE: usize = 128 << 10;

/// A process of a load ends itself, when it has not ended long after it should have.
pub fn end_after(publishes: u64) {
    unsafe { libc::alarm(90 + (publishes / 300) as u32) };
}

struct Reader {
    consumer: Consumer,
    rank: usize,
    random: Random,
    reports: File,
    target: Reservation,
    /// Copies that were acknowledged in stream order: their payloads are at these places.
    pending: Vec<(u64, usize, usize)>,
}

pub fn run(side: &Side, words: &[&str]) {
    let [name, publishes, rank, number] = words else {
        panic!("{words:?}");
    };
    end_after(publishes.parse().unwrap());
    let rank: usize = rank.parse().unwrap();
    let (sender, tickets) = channel();
    let receiver = thread::spawn(move || receive(&sender));
    let granules = (PLACES * PLACE).div_ceil(side.g);
    let mut target = side.reserve(granules);
    target.map(0, granules * side.g, &side.props()).unwrap();
    let mut reader = Reader {
        consumer: attach(side, name, rank),
        rank,
        random: Random::new(number.parse().unwrap()),
        reports: File::from(io::stdout().as_fd().try_clone_to_owned().unwrap()),
        target,
        pending: Vec::new(),
    };
    let mut due: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
    let mut leases: HashMap<u64, Lease> = HashMap::new();
    let mut more = true;
    while more || !due.is_empty() {
        let now = Instant::now();
        let wait = match due.peek() {
            Some(Reverse((at, sequence))) if *at <= now => {
                let lease = leases.remove(sequence).unwrap();
                reader.consume(*sequence, lease);
                due.pop();
                continue;
            }
            Some(Reverse((at, _))) => *at - now,
            None => Duration::from_secs(1),
        };
        match tickets.recv_timeout(wait) {
            Ok((sequence, ticket)) => {
                if let Some(lease) = reader.open(sequence, &ticket) {
                    leases.insert(sequence, lease);
                    due.push(Reverse((Instant::now() + reader.random.hold(), sequence)));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                more = false;
                // Nothing else is waited for.
                thread::sleep(wait.min(Duration::from_millis(5)));
            }
        }
    }
    receiver.join().unwrap();
    reader.end();
}

/// Tickets as they come.
fn receive(to: &Sender<(u64, Vec<u8>)>) {
    let mut stdin = io::stdin().lock();
    let mut head = [0; 12];
    while stdin.read_exact(&mut head).is_ok() {
        let sequence = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
        let length = u32::from_le_bytes(head[8..].try_into().expect("4 bytes"));
        let mut ticket = vec![0; length as usize];
        stdin.read_exact(&mut ticket).unwrap();
        to.send((sequence, ticket)).unwrap();
    }
}

impl Reader {
    fn report(&mut self, sequence: u64, outcome: Outcome) {
        let mut report = sequence.to_le_bytes().to_vec();
        report.push(outcome as u8);
        self.reports.write_all(&report).unwrap();
    }

    fn open(&mut self, sequence: u64, ticket: &[u8]) -> Option<Lease> {
        let ticket = self.consumer.decode(ticket).unwrap();
        if self.random.one_in(25) {
            drop(ticket);
            self.report(sequence, Outcome::Declined);
            return None;
        }
        let outcome = match ticket.open() {
            Ok(lease) => return Some(lease),
            Err(PoolError::TakenBack { why, .. }) => match why {
                Taken::Expired => Outcome::Expired,
                Taken::Cancelled => Outcome::Cancelled,
                Taken::Covered => Outcome::Covered,
                other => panic!("{other:?}"),
            },
            Err(PoolError::Stale { .. }) => Outcome::Reused,
            Err(PoolError::NotPublished { .. }) => Outcome::NotForIt,
            Err(error) => panic!("payload {sequence}: {error}"),
        };
        self.report(sequence, outcome);
        None
    }

    fn consume(&mut self, sequence: u64, lease: Lease) {
        if covers(sequence, self.rank) {
            let lease = checked(lease, sequence);
            lease.acknowledge_for(Scope::Group).unwrap();
            return self.report(sequence, Outcome::Right);
        }
        let size = lease.size();
        match self.random.below(4) {
            0 | 1 if size <= PLACE => self.copy(sequence, lease, size),
            2 => {
                // Without an acknowledgement of its own.
                drop(checked(lease, sequence));
                self.report(sequence, Outcome::Right);
            }
            _ => {
                checked(lease, sequence).finish().unwrap();
                self.report(sequence, Outcome::Right);
            }
        }
    }

    /// Copies to a place of its own, and acknowledges in stream order, or waits for this copy and all before it.
    fn copy(&mut self, sequence: u64, lease: Lease, size: usize) {
        let place = self.pending.len();
        let lease = lease.copy_to(0, &mut self.target, place * PLACE).unwrap();
        self.pending.push((sequence, place, size));
        if self.pending.len() < PLACES && !self.random.one_in(4) {
            return lease.acknowledge();
        }
        lease.finish().unwrap();
        self.check_pending();
    }

    fn check_pending(&mut self) {
        for (sequence, place, size) in std::mem::take(&mut self.pending) {
            let mut bytes = vec![0; size];
            self.target.read(place * PLACE, &mut bytes).unwrap();
            assert!(
                is_payload(sequence, &bytes),
                "the copy of {sequence} is altered"
            );
            self.report(sequence, Outcome::Right);
        }
    }

    /// Lets go of the pool, which waits for all copies.
    fn end(mut self) {
        let consumer = self.consumer;
        assert_eq!(consumer.leases(), 0);
        consumer.close().unwrap();
        for (sequence, place, size) in self.pending {
            let mut bytes = vec![0; size];
            self.target.read(place * PLACE, &mut bytes).unwrap();
            assert!(
                is_payload(sequence, &bytes),
                "the copy of {sequence} is altered"
            );
            let mut report = sequence.to_le_bytes().to_vec();
            report.push(Outcome::Right as u8);
            self.reports.write_all(&report).unwrap();
        }
        self.target.close().unwrap();
    }
}
