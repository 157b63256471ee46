//! Many threads: publishers, consumers, cancels and deadlines at once. Nothing is wrong, lost, twice or left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cuda_vmm::pool::{Payload, PoolError, Source, Taken};

use crate::ground::{all_free, held, pattern, until, Ground};
use crate::slices::Dice;
use crate::Case;

pub const CASES: &[Case] = &[("20,000 slices from 8 threads to 4", load)];

const PUBLISHERS: u64 = 8;
const CONSUMERS: usize = 4;
const EACH: u64 = 2500;

/// What a publisher tells of a slice: its ticket, its contents, and whether it may be taken back.
#[derive(Clone)]
struct Sent {
    ticket: Vec<u8>,
    seed: u64,
    size: usize,
    cancelled: bool,
    expires: bool,
}

/// What a consumer made of the slices.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    read: u64,
    dropped: u64,
    gone: u64,
    sure: u64,
}

fn load(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, CONSUMERS);
    let cancelled = AtomicU64::new(0);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..CONSUMERS).map(|_| mpsc::channel()).unzip();
    let seen: Vec<Seen> = thread::scope(|scope| {
        let consuming: Vec<_> = consumers
            .iter()
            .zip(receivers)
            .map(|(consumer, tickets)| {
                scope.spawn(move || {
                    let mut dice = Dice::new(1000 + consumer.rank() as u64);
                    let mut seen = Seen::default();
                    for sent in tickets {
                        consume(consumer, &sent, &mut dice, &mut seen);
                    }
                    seen
                })
            })
            .collect();
        for number in 0..PUBLISHERS {
            let (senders, cancelled, pool) = (senders.clone(), &cancelled, &pool);
            scope.spawn(move || produce(number, pool, &senders, cancelled));
        }
        drop(senders);
        let joined = consuming.into_iter().map(|one| one.join().unwrap());
        joined.collect()
    });
    // What neither was cancelled nor had a deadline was there for everybody.
    let sure = seen[0].sure;
    for seen in &seen {
        assert_eq!(seen.sure, sure);
        assert_eq!(seen.read + seen.dropped + seen.gone, PUBLISHERS * EACH);
    }
    until(|| held(&pool) == [0; CONSUMERS]);
    all_free(&pool);
    let counters = pool.counters();
    let total = PUBLISHERS * EACH * CONSUMERS as u64;
    assert_eq!(counters.published, PUBLISHERS * EACH);
    let acknowledged: u64 = seen.iter().map(|seen| seen.read + seen.dropped).sum();
    let gone: u64 = seen.iter().map(|seen| seen.gone).sum();
    // A ticket that is dropped after it was taken back was not acknowledged.
    assert!(counters.acknowledged <= acknowledged, "{counters:?}");
    assert!(
        counters.expired <= total - counters.acknowledged,
        "{counters:?}"
    );
    assert!(gone > 0 && counters.expired > 0, "{counters:?}");
    assert!(counters.cancelled > 0 && counters.cancelled <= cancelled.load(Ordering::Relaxed));
    assert_eq!(
        (counters.late, counters.reclaimed, counters.quarantined),
        (0, 0, 0)
    );
    println!("{seen:?}\n{counters:?}");
}

fn produce(
    number: u64,
    pool: &cuda_vmm::pool::Pool,
    senders: &[mpsc::Sender<Sent>],
    cancelled: &AtomicU64,
) {
    let mut dice = Dice::new(number + 1);
    let patient = pool.publisher().waiting_for_room(Duration::from_secs(60));
    for round in 0..EACH {
        let seed = number * EACH + round;
        let size = match dice.below(50) {
            0 => 1 + dice.below(40_000),
            _ => 1 + dice.below(1500),
        };
        let bytes = pattern(seed, size);
        let expires = dice.below(20) == 0;
        let cancel = dice.below(20) == 0;
        let mut payload = Payload::bytes(Source::host(&bytes));
        if expires {
            payload = payload.expires_in(Duration::from_micros(dice.below(1500) as u64));
        }
        let published = patient.publish(&payload).unwrap();
        let sent = Sent {
            ticket: published.ticket().to_vec(),
            seed,
            size,
            cancelled: cancel,
            expires,
        };
        for sender in senders {
            sender.send(sent.clone()).unwrap();
        }
        if cancel {
            cancelled.fetch_add(1, Ordering::Relaxed);
            patient.cancel(published.id()).unwrap();
            patient.cancel(published.id()).unwrap();
        }
    }
}

fn consume(consumer: &cuda_vmm::pool::Consumer, sent: &Sent, dice: &mut Dice, seen: &mut Seen) {
    if !sent.cancelled && !sent.expires {
        seen.sure += 1;
    }
    if dice.below(30) == 0 {
        drop(consumer.decode(&sent.ticket).unwrap());
        seen.dropped += 1;
        return;
    }
    match consumer.open(&sent.ticket) {
        Ok(lease) => {
            let mut bytes = vec![0; sent.size];
            let lease = lease.read(0, &mut bytes).unwrap();
            match dice.below(3) {
                0 => lease.finish().unwrap(),
                1 => lease.acknowledge(),
                _ => drop(lease),
            }
            assert!(
                bytes == pattern(sent.seed, sent.size),
                "slice {}",
                sent.seed
            );
            seen.read += 1;
        }
        Err(PoolError::TakenBack {
            why: Taken::Expired,
            ..
        }) => {
            assert!(sent.expires);
            seen.gone += 1;
        }
        Err(PoolError::TakenBack {
            why: Taken::Cancelled,
            ..
        }) => {
            assert!(sent.cancelled);
            seen.gone += 1;
        }
        Err(PoolError::Stale {
            generation,
            current,
            ..
        }) => {
            assert!(current > generation && (sent.cancelled || sent.expires));
            seen.gone += 1;
        }
        Err(other) => panic!("slice {}: {other:?}", sent.seed),
    }
}
