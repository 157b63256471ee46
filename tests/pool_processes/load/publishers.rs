//! What the publishers do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cuda_vmm::pool::{Payload, Published, Publisher, SliceId, Source};

use super::relay::Relay;
use super::results::Results;
use super::Random;
use crate::scene::{filled, HEADER};
use crate::surroundings::soon;

/// What the publishers share.
pub struct Stage<'a> {
    pub relay: &'a Relay,
    pub results: &'a Results,
    pub largest: usize,
    pub publishes: u64,
    /// The sequence number of the next payload.
    pub next: AtomicU64,
}

/// What is in store for a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Plain,
    /// Delivered, with a deadline that some consumers keep.
    Expires,
    /// Never delivered: it expires.
    Lost,
    /// Cancelled before it is delivered.
    Undelivered,
    /// Cancelled at some time after it was delivered.
    Cancelled,
}

fn fate(random: &mut Random) -> Fate {
    match random.below(50) {
        0 => Fate::Lost,
        1 => Fate::Undelivered,
        2..=7 => Fate::Expires,
        8..=9 => Fate::Cancelled,
        _ => Fate::Plain,
    }
}

/// Most are small.
fn size(random: &mut Random, largest: usize) -> usize {
    let most = match random.below(1000) {
        0..=899 => 4 << 10,
        900..=989 => 32 << 10,
        990..=998 => 256 << 10,
        _ => largest,
    };
    HEADER + random.below((most - HEADER + 1) as u64) as usize
}

/// Publishes one by one, in batches, and such that are begun and finished or dropped, until all are published.
pub fn publish_all(stage: &Stage<'_>, publisher: Publisher, mut random: Random) {
    let publisher = match random.one_in(2) {
        true => publisher.with_ready_sources(),
        false => publisher,
    };
    let mut to_cancel: Vec<(SliceId, u64)> = Vec::new();
    loop {
        let count = match random.below(20) {
            0 => 4,
            1 => 2,
            _ => 1,
        };
        let first = stage.next.fetch_add(count, Ordering::Relaxed);
        let sequences = first..(first + count).min(stage.publishes);
        if sequences.is_empty() {
            break;
        }
        let contents: Vec<Vec<u8>> = sequences
            .clone()
            .map(|sequence| filled(sequence, size(&mut random, stage.largest)))
            .collect();
        let fates: Vec<Fate> = contents.iter().map(|_| fate(&mut random)).collect();
        let payloads: Vec<Payload<'_>> = contents
            .iter()
            .zip(&fates)
            .map(|(bytes, fate)| payload(bytes, *fate, &mut random))
            .collect();
        let published = publish(&publisher, &payloads, &mut random);
        for ((published, sequence), fate) in published.iter().zip(sequences).zip(fates) {
            if fate == Fate::Plain {
                stage.results.is_plain(sequence);
            }
            match fate {
                Fate::Undelivered => drop(publisher.cancel(published.id()).unwrap()),
                Fate::Lost => {}
                _ => stage.relay.deliver(sequence, published.ticket()),
            }
            if fate == Fate::Cancelled {
                to_cancel.push((published.id(), first + random.below(30)));
            }
        }
        // Some of these are consumed by now, and their slots in use for others.
        to_cancel.retain(|(id, when)| {
            let due = *when <= first;
            if due {
                publisher.cancel(*id).unwrap();
            }
            !due
        });
    }
    let left: Vec<SliceId> = to_cancel.into_iter().map(|(id, _)| id).collect();
    publisher.cancel_all(&left).unwrap();
}

fn payload<'a>(bytes: &'a [u8], fate: Fate, random: &mut Random) -> Payload<'a> {
    let payload = Payload::bytes(Source::host(bytes));
    match fate {
        Fate::Lost => payload.expires_in(Duration::from_millis(1 + random.below(40))),
        Fate::Expires => payload.expires_in(Duration::from_micros(50 + random.below(5000))),
        _ => payload,
    }
}

fn publish(publisher: &Publisher, payloads: &[Payload<'_>], random: &mut Random) -> Vec<Published> {
    match random.below(10) {
        0 => {
            // The first attempt is dropped, which cancels it.
            drop(publisher.begin(&payloads[..1]).unwrap());
            publisher.publish_all(payloads).unwrap()
        }
        1 => {
            let begun = publisher.begin(payloads).unwrap();
            begun.wait_until(soon(20)).unwrap();
            begun.finish().unwrap()
        }
        _ => publisher.publish_all(payloads).unwrap(),
    }
}
