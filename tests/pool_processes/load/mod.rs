//! The load of a real relay: publishers on several threads, three consumers in processes of their own, random sizes and
//! hold times, cancels, expiries, lost tickets, consumers that are killed and replaced.
//!
//! `CUDA_VMM_POOL_PUBLISHES` is the number of publishes, `CUDA_VMM_POOL_SEED` chooses another run.

mod consumer;
mod publishers;
mod relay;
mod results;

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::Pool;
use cuda_vmm::wire::Name;

use crate::scene::*;
use crate::side::Side;
use crate::surroundings::soon;
use crate::{Case, Part};
use publishers::{publish_all, Stage};
use relay::Relay;
use results::Results;

pub const CASES: &[Case] = &[("load::publishes_of_every_kind", load)];

pub const PARTS: &[Part] = &[("relayed_consumer", consumer::run)];

const CONSUMERS: usize = 3;
const PUBLISHERS: u64 = 3;

/// Publishes, where nothing is said.
const PUBLISHES: u64 = 16_000;

/// A consumer is killed after so many publishes.
const KILL_EVERY: u64 = 800;

/// Bytes of the pool, and of the largest payload: of a GPU, and of a simulated one, whose memory is the machine's.
const ON_A_GPU: (usize, usize) = (256 << 20, 54 << 20);
const SIMULATED: (usize, usize) = (8 << 20, 3 << 20);

/// Consumers 0 and 1 are a group, and acknowledge some payloads for each other.
fn covers(sequence: u64, rank: usize) -> bool {
    rank < 2 && sequence % 16 == 0
}

fn number(name: &str, otherwise: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => otherwise,
    }
}

/// A generator of random numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A time with a median of 10 ms, and 420 ms at most.
    pub fn hold(&mut self) -> Duration {
        Duration::from_micros(match self.below(100) {
            0..=49 => self.below(10_000),
            50..=94 => 10_000 + self.below(30_000),
            _ => 40_000 + self.below(380_000),
        })
    }
}

fn load(side: &Side) {
    let publishes = number("CUDA_VMM_POOL_PUBLISHES", PUBLISHES);
    let seed = number("CUDA_VMM_POOL_SEED", 1);
    consumer::end_after(publishes);
    let (size, largest) = match side.sees_the_others() {
        true => ON_A_GPU,
        false => SIMULATED,
    };
    let name = name("load");
    let pool = Pool::builder(&side.device, size, CONSUMERS)
        .group(0..2)
        .serve(&Name::new(&name))
        .unwrap();
    let results = Arc::new(Results::new(publishes as usize));
    let relay = Relay::start(side, &name, publishes, &results);
    counters_once(&pool, Duration::from_secs(30), |it| {
        it.consumers.iter().all(|consumer| consumer.is_attached)
    });
    let started = Instant::now();
    let (mut slices, mut bytes) = (0, 0);
    let stage = &Stage {
        relay: &relay,
        results: &results,
        largest,
        publishes,
        next: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|thread| {
                let publisher = pool.publisher().waiting_for_room(Duration::from_secs(30));
                let random = Random::new((seed << 8) | thread);
                scope.spawn(move || publish_all(stage, publisher, random))
            })
            .collect();
        let mut random = Random::new((seed << 8) | 0xff);
        let mut due = KILL_EVERY / 2;
        while !publishers.iter().all(|publisher| publisher.is_finished()) {
            let counters = pool.counters();
            slices = slices.max(counters.slices);
            bytes = bytes.max(counters.busy);
            if stage.next.load(Ordering::Relaxed) >= due {
                due += KILL_EVERY;
                // Rank 0 lives to the end.
                relay.replace(1 + random.below(CONSUMERS as u64 - 1) as usize);
            }
            thread::sleep(Duration::from_millis(2));
        }
    });
    let killed = relay.killed();
    relay.end();
    let took = started.elapsed();
    // What was never delivered expires.
    let counters = pool.close(soon(30)).unwrap();
    is_idle(&counters);
    results.check(&counters);
    assert!(killed < 4 || counters.reclaimed > 0, "{counters:?}");
    let mib = bytes >> 20;
    println!("{publishes} publishes in {took:.1?}, {killed} consumers killed; at most {slices} slices and {mib} MiB at once");
    println!("{results}");
    println!(
        "holds: {} acknowledged, {} covered, {} cancelled, {} expired, {} reclaimed, {} absent; {} late",
        counters.acknowledged,
        counters.covered,
        counters.cancelled_holds,
        counters.expired,
        counters.reclaimed,
        counters.absent,
        counters.late
    );
}
