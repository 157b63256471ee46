//! Deadlines and cancels: who loses a slice, and when.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Payload, PoolError, Published, Publisher, Source, Taken};

use crate::ground::{
    all_free, counters, fails, held, now, pattern, publish, read, soon, until, Ground,
};
use crate::slices::Dice;
use crate::Case;

pub const CASES: &[Case] = &[
    ("a slice expires by itself", by_itself),
    ("who has opened a slice keeps it", opened_keeps),
    ("a deadline goes with its slice", goes_with_its_slice),
    ("many deadlines pass in their order", many_deadlines),
    ("the shortest and the longest deadline", extremes),
    ("a slice is cancelled once", cancels),
    (
        "a cancel and an open: one of them wins",
        cancel_against_open,
    ),
    (
        "a deadline and an open: one of them wins",
        deadline_against_open,
    ),
    ("an idle pool uses no CPU", idle),
];

fn expiring(publisher: &Publisher, bytes: &[u8], time: Duration) -> Published {
    publisher
        .publish(&Payload::bytes(Source::host(bytes)).expires_in(time))
        .unwrap()
}

fn expired<T>(result: Result<T, PoolError>, slot: u32) {
    let why = Taken::Expired;
    fails(result, PoolError::TakenBack { slot, why });
}

fn by_itself(ground: &Ground) {
    let pool = ground.serve(1, 3);
    // The third never attaches.
    let consumers = [0, 1].map(|rank| ground.attach(rank));
    let time = Duration::from_millis(40);
    let start = now();
    let published = expiring(&pool.publisher(), b"unopened", time);
    let kept = consumers[1].decode(published.ticket()).unwrap();
    if start.elapsed() < time / 2 {
        assert_eq!(held(&pool), [1; 3]);
    }
    let calls = ground.calls();
    // Nobody calls anything.
    thread::sleep(Duration::from_millis(150));
    expired(consumers[0].open(published.ticket()), 0);
    expired(kept.open(), 0);
    all_free(&pool);
    let counters = pool.counters();
    assert_eq!((counters.expired, counters.acknowledged), (3, 0));
    assert_eq!((counters.late, counters.cancelled), (0, 0));
    assert_eq!(ground.calls(), calls);
    // The room is used again, and the old ticket says so.
    let next = publish(&pool.publisher(), b"next");
    fails(
        consumers[0].open(published.ticket()),
        PoolError::Stale {
            slot: 0,
            generation: 1,
            current: 2,
        },
    );
    for consumer in &consumers {
        assert_eq!(read(consumer, next.ticket()), b"next");
    }
}

fn opened_keeps(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 3);
    let published = expiring(&pool.publisher(), b"opened", Duration::from_millis(300));
    let lease = consumers[0].open(published.ticket()).unwrap();
    assert_eq!(read(&consumers[1], published.ticket()), b"opened");
    assert_eq!(held(&pool), [1, 0, 1]);
    until(|| held(&pool) == [1, 0, 0]);
    let state = pool.counters();
    assert_eq!((state.expired, state.acknowledged, state.busy), (1, 1, 256));
    expired(consumers[2].open(published.ticket()), 0);
    fails(
        consumers[1].open(published.ticket()),
        PoolError::AlreadyAcknowledged { slot: 0 },
    );
    let mut bytes = [0; 6];
    lease.read(0, &mut bytes).unwrap().finish().unwrap();
    assert_eq!(&bytes, b"opened");
    all_free(&pool);
    // Cancelling what has expired changes nothing.
    let publisher = pool.publisher();
    assert_eq!(publisher.cancel(published.id()).unwrap(), 0);
    assert_eq!(pool.counters().cancelled, 0);
}

fn goes_with_its_slice(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    for round in 0..20 {
        let first = expiring(&publisher, b"first", Duration::from_millis(30));
        match round % 3 {
            0 => assert_eq!(read(&consumers[0], first.ticket()), b"first"),
            1 => assert_eq!(publisher.cancel(first.id()).unwrap(), 0),
            _ => drop(consumers[0].decode(first.ticket()).unwrap()),
        }
    }
    all_free(&pool);
    // The same slot, without a deadline.
    let second = publish(&publisher, b"second");
    thread::sleep(Duration::from_millis(60));
    assert_eq!((held(&pool), pool.counters().expired), (vec![1], 0));
    assert_eq!(read(&consumers[0], second.ticket()), b"second");
    all_free(&pool);
}

fn many_deadlines(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    let mut dice = Dice::new(3);
    let slack = Duration::from_millis(250);
    let mut deadlines: Vec<(Instant, Instant)> = Vec::new();
    for _ in 0..300 {
        let time = Duration::from_millis(20 + dice.below(150) as u64);
        let before = now();
        let _ = expiring(&publisher, b"one of many", time);
        deadlines.push((before + time, now() + time));
    }
    loop {
        let before = now();
        let slices = pool.counters().slices;
        let after = now();
        let early = deadlines.iter().filter(|(at, _)| *at > after).count();
        let late = deadlines
            .iter()
            .filter(|(_, at)| *at + slack > before)
            .count();
        assert!(slices >= early, "{slices} slices, {early} have not expired");
        assert!(slices <= late, "{slices} slices, {late} may be left");
        if slices == 0 {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(pool.counters().expired, 300);
    all_free(&pool);
    drop(consumers);
}

fn extremes(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    let never = expiring(&publisher, b"never", Duration::MAX);
    let later = expiring(&publisher, b"later", Duration::from_secs(3600));
    for _ in 0..50 {
        let _ = expiring(&publisher, b"at once", Duration::ZERO);
    }
    // A short one that comes behind a long one is not kept waiting by it.
    until(|| pool.counters().expired == 50);
    let _ = expiring(&publisher, b"soon", Duration::from_millis(1));
    until(|| pool.counters().expired == 51);
    assert_eq!(held(&pool), [2]);
    assert_eq!(read(&consumers[0], never.ticket()), b"never");
    assert_eq!(read(&consumers[0], later.ticket()), b"later");
    all_free(&pool);
    // The time of a publish that is begun counts from its end.
    let payload = Payload::bytes(Source::host(b"begun")).expires_in(Duration::from_millis(200));
    let begun = publisher.begin(&[payload]).unwrap();
    thread::sleep(Duration::from_millis(250));
    let published = begun.finish().unwrap();
    assert_eq!(read(&consumers[0], published[0].ticket()), b"begun");
    all_free(&pool);
}

fn cancels(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 3);
    let publisher = pool.publisher();
    let published = publish(&publisher, b"cancelled");
    let lease = consumers[0].open(published.ticket()).unwrap();
    assert_eq!(publisher.cancel(published.id()).unwrap(), 1);
    assert_eq!((held(&pool), pool.counters().cancelled), (vec![1, 0, 0], 1));
    for consumer in &consumers[1..] {
        let why = Taken::Cancelled;
        fails(
            consumer.open(published.ticket()),
            PoolError::TakenBack { slot: 0, why },
        );
    }
    let before = counters(&pool);
    // Again, and by a clone, and on another thread.
    assert_eq!(publisher.cancel(published.id()).unwrap(), 1);
    let clone = publisher.clone();
    let other = thread::scope(|scope| {
        let cancel = scope.spawn(|| clone.cancel(published.id()).unwrap());
        cancel.join().unwrap()
    });
    assert_eq!((other, counters(&pool)), (1, before));
    let mut bytes = [0; 9];
    lease.read(0, &mut bytes).unwrap().finish().unwrap();
    assert_eq!(&bytes, b"cancelled");
    all_free(&pool);
    assert_eq!(publisher.cancel(published.id()).unwrap(), 0);
    // A pack goes as one, a batch in one call.
    let layout = cuda_vmm::pool::Layout::bytes(4).unwrap();
    let pack = Payload::bytes(Source::host(b"pack")).and(Source::host(b"pack"), layout);
    let packs = publisher
        .publish_all(&[pack.clone(), pack.clone(), pack])
        .unwrap();
    let lease = consumers[2].open(packs[1].ticket()).unwrap();
    let ids: Vec<_> = packs.iter().map(Published::id).collect();
    assert_eq!(publisher.cancel_all(&ids).unwrap(), 1);
    assert_eq!((held(&pool), pool.counters().slices), (vec![0, 0, 1], 1));
    drop(lease);
    all_free(&pool);
    assert_eq!(pool.counters().cancelled, 4);
    assert_eq!(publisher.cancel_all(&ids).unwrap(), 0);
    assert_eq!(pool.counters().cancelled, 4);
    // What everybody has acknowledged is not cancelled, though the producer has not looked yet.
    let published = publish(&publisher, b"acknowledged");
    for consumer in &consumers {
        assert_eq!(read(consumer, published.ticket()), b"acknowledged");
    }
    assert_eq!(publisher.cancel(published.id()).unwrap(), 0);
    all_free(&pool);
    assert_eq!(pool.counters().cancelled, 4);
}

fn cancel_against_open(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let (publisher, consumer) = (pool.publisher(), &consumers[0]);
    let mut opened = 0;
    const ROUNDS: u64 = 400;
    for round in 0..ROUNDS {
        let bytes = pattern(round, 64);
        let published = publish(&publisher, &bytes);
        let ticket = consumer.decode(published.ticket()).unwrap();
        let ready = Barrier::new(2);
        let (left, lease) = thread::scope(|scope| {
            let cancel = scope.spawn(|| {
                ready.wait();
                publisher.cancel(published.id()).unwrap()
            });
            ready.wait();
            let lease = ticket.open();
            (cancel.join().unwrap(), lease)
        });
        match lease {
            Ok(lease) => {
                assert_eq!((left, held(&pool)), (1, vec![1]));
                let mut found = [0; 64];
                lease.read(0, &mut found).unwrap().finish().unwrap();
                assert_eq!(found.as_slice(), bytes);
                opened += 1;
            }
            Err(error) => {
                let why = Taken::Cancelled;
                assert_eq!(left, 0);
                fails::<()>(Err(error), PoolError::TakenBack { slot: 0, why });
            }
        }
        all_free(&pool);
    }
    let counters = pool.counters();
    assert_eq!(counters.acknowledged, opened);
    assert_eq!(counters.cancelled, ROUNDS - opened);
}

fn deadline_against_open(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let (publisher, consumer) = (pool.publisher(), &consumers[0]);
    let mut opened = 0;
    const ROUNDS: u64 = 300;
    for round in 0..ROUNDS {
        let time = Duration::from_micros(200);
        let published = expiring(&publisher, b"a race", time);
        let start = now();
        while start.elapsed() < time + Duration::from_micros(round % 100) {}
        match consumer.open(published.ticket()) {
            Ok(lease) => {
                opened += 1;
                thread::sleep(Duration::from_micros(300));
                assert_eq!(held(&pool), [1]);
                lease.acknowledge();
            }
            Err(error) => expired::<()>(Err(error), 0),
        }
        until(|| held(&pool) == [0]);
        all_free(&pool);
    }
    let counters = pool.counters();
    assert_eq!(counters.acknowledged, opened);
    assert_eq!(counters.expired, ROUNDS - opened);
}

/// CPU time of this process.
fn used() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let asked = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(asked, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn idle(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 3);
    let publisher = pool.publisher();
    let lease = {
        let published = publish(&publisher, b"held");
        consumers[0].open(published.ticket()).unwrap()
    };
    let _ = expiring(&publisher, b"much later", Duration::from_secs(3600));
    let _ = expiring(&publisher, b"soon", Duration::from_millis(1));
    until(|| pool.counters().expired == 3);
    let calls = ground.calls();
    let before = used();
    thread::sleep(Duration::from_millis(200));
    let used = used() - before;
    println!("CPU time of 200 ms idle: {used:?}");
    assert!(used < Duration::from_millis(3), "{used:?}");
    assert_eq!(ground.calls(), calls);
    drop((lease, consumers));
    until(|| held(&pool) == [0; 3]);
    pool.close(soon()).unwrap();
}
