//! Use that is allowed and seldom: forks, streams that never end, clients that stay after a refusal, panics.

use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Consumer, PoolError, Scope};
use cuda_vmm::wire::Fetch;

use crate::closing::in_child;
use crate::ground::{all_free, counters, fails, held, pattern, publish, read, soon, until, Ground};
use crate::order::{begin, on, readable, source, Held};
use crate::Case;

pub const SIMULATED: &[Case] = &[
    ("a forked child ends no hold of the parent's", forked),
    (
        "a descriptor waits for the copies of its own publish alone",
        descriptors,
    ),
    (
        "clients that were refused and stay cost nobody a seat",
        refused_clients,
    ),
    ("a lease goes to another thread and panics there", panics),
];

fn forked(ground: &Ground) {
    let pool = ground.builder(1, 2).group(0..2);
    let pool = pool.serve(&ground.name).unwrap();
    let consumers = [0, 1].map(|rank| ground.attach(rank));
    let publisher = pool.publisher();
    let one = publish(&publisher, b"forked");
    let two = publish(&publisher, b"forked");
    let lease = consumers[0].open(two.ticket()).unwrap();
    lease.acknowledge_for(Scope::Group).unwrap();
    let went = in_child(|| {
        fails(publisher.cancel(one.id()), PoolError::Forked);
        fails(publisher.cancel_all(&[one.id()]), PoolError::Forked);
        assert_eq!(pool.recycle(), 0);
        let _ = (pool.counters(), pool.holders());
        assert!(!pool.evict(0, "in the child"));
    });
    assert!(went, "the child has failed");
    assert_eq!(held(&pool), [1, 1]);
    for consumer in &consumers {
        assert_eq!(read(consumer, one.ticket()), b"forked");
    }
    all_free(&pool);
    assert_eq!((pool.counters().covered, pool.counters().cancelled), (1, 0));
}

fn descriptors(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let memory = source(ground, &pattern(1, 5000));
    let stuck = Held::fresh(&ground.producer);
    let mut publishing = begin(&on(pool.publisher(), &stuck), &memory, 1);
    publishing.descriptor().unwrap();
    drop(publishing);
    let runs = Held::fresh(&ground.producer);
    runs.release();
    let mut publishing = begin(&on(pool.publisher(), &runs), &memory, 1);
    let fd = publishing.descriptor().unwrap().as_raw_fd();
    assert!(publishing.is_done().unwrap());
    until(|| readable(&fd));
    let slices = publishing.finish().unwrap();
    assert!(read(&consumers[0], slices[0].ticket()) == pattern(1, 5000));
    stuck.release();
    drop(consumers);
    pool.close(soon()).unwrap();
    memory.close().unwrap();
}

/// A hello that asks for this rank.
fn hello(rank: u32) -> Vec<u8> {
    let mut bytes = b"CVPH\x01".to_vec();
    bytes.extend(rank.to_le_bytes());
    bytes
}

fn refused_clients(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let mut staying = Vec::new();
    // More than the service has places: a rank that is taken, and one that no consumer has.
    for rank in (0..200).map(|number| number % 2) {
        let received = Fetch::new(&ground.name).by(soon()).hello(hello(rank));
        let (_, session) = received.receive().unwrap().into_session().unwrap();
        staying.push(session);
    }
    drop(consumers);
    until(|| !pool.counters().consumers[0].is_attached);
    let next =
        cuda_vmm::pool::Attach::new(&ground.name, 0).by(Instant::now() + Duration::from_secs(5));
    let next = next.attach(ground.consumer.device()).unwrap();
    until(|| staying.iter().all(|session| !session.is_open()));
    let published = publish(&pool.publisher(), b"served");
    assert_eq!(read(&next, published.ticket()), b"served");
    all_free(&pool);
}

fn panics(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let published = publish(&pool.publisher(), b"panics");
    let lease = consumers[0].open(published.ticket()).unwrap();
    let ticket = consumers[1].decode(published.ticket()).unwrap();
    let before = counters(&pool);
    let died = thread::spawn(move || {
        let _held = (lease, ticket);
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(died.join().is_err());
    assert_eq!(before.acknowledged, 0);
    all_free(&pool);
    assert_eq!(pool.counters().acknowledged, 2);
    assert!(consumers.iter().all(Consumer::is_connected));
}
