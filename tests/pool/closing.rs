//! The end: of a pool, of a consumer, of a process that was forked.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Consumer, Payload, Pool, PoolError, Source, Unclosed};

use crate::ground::{all_free, counters, fails, held, now, publish, read, soon, until, Ground};
use crate::Case;

pub const CASES: &[Case] = &[
    ("close waits for a publisher inside", publisher_inside),
    ("close waits for consumers", consumers_hold),
    ("close without waiting for consumers", close_now),
    ("a pool that is dropped", dropped),
    (
        "nothing is published or attached after a close",
        after_close,
    ),
    ("a consumer with leases is not closed", leases_open),
    ("a lease outlives its consumer", outlives),
];

pub const SIMULATED: &[Case] = &[
    ("a consumer makes no context before it copies", contexts),
    ("a forked child touches nothing", forked),
];

fn payload() -> Payload<'static> {
    Payload::bytes(Source::host(b"closing"))
}

fn unclosed(pool: Pool, patience: Duration) -> Unclosed {
    let start = Instant::now();
    let unclosed = *pool.close(now() + patience).unwrap_err();
    assert!(start.elapsed() >= patience);
    unclosed
}

fn publisher_inside(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    let before = ground.snapshots();
    let begun = publisher.begin(&[payload(), payload()]).unwrap();
    let Unclosed { error, pool, .. } = unclosed(pool, Duration::from_millis(30));
    fails::<()>(Err(error), PoolError::PublishersActive { count: 1 });
    // It refuses publishers, and is as it was else.
    fails(publisher.publish(&payload()), PoolError::Closing);
    fails(publisher.begin(&[payload()]).map(drop), PoolError::Closing);
    assert_eq!((pool.counters().slices, held(&pool)), (2, vec![0]));
    // Who was inside before goes on.
    let published = begun.finish().unwrap();
    assert_eq!(held(&pool), [2]);
    for one in &published {
        assert_eq!(read(&consumers[0], one.ticket()), b"closing");
    }
    let last = pool.close(soon()).unwrap();
    assert_eq!((last.published, last.acknowledged, last.busy), (2, 2, 0));
    drop(before);
    // Another thread leaves while close waits.
    let name = crate::ground::fresh_name();
    let pool = ground.builder(1, 1).serve(&name).unwrap();
    let begun = pool.publisher().begin(&[payload()]).unwrap();
    thread::scope(|scope| {
        let closing = scope.spawn(move || pool.close(soon()).unwrap());
        thread::sleep(Duration::from_millis(30));
        assert!(!closing.is_finished());
        drop(begun);
        let last = closing.join().unwrap();
        assert_eq!((last.published, last.quarantined, last.busy), (0, 0, 0));
    });
}

fn consumers_hold(ground: &Ground) {
    let (pool, mut consumers) = ground.pool(1, 3);
    let publisher = pool.publisher();
    let published = publisher.publish_all(&[payload(), payload()]).unwrap();
    let lease = consumers[2].open(published[0].ticket()).unwrap();
    assert_eq!(read(&consumers[0], published[0].ticket()), b"closing");
    assert_eq!(read(&consumers[0], published[1].ticket()), b"closing");
    let state = counters(&pool);
    let Unclosed { error, pool, .. } = unclosed(pool, Duration::from_millis(20));
    let PoolError::StillHeld { holders } = error else {
        panic!("{error:?}");
    };
    let told: Vec<_> = holders
        .iter()
        .map(|it| (it.rank, it.slices, it.bytes, it.is_open, it.is_attached))
        .collect();
    assert_eq!(told, [(1, 2, 14, false, true), (2, 2, 14, true, true)]);
    assert_eq!(counters(&pool), state);
    // It is closed again, with less to wait for each time.
    drop(consumers.remove(1));
    until(|| held(&pool) == [0, 0, 2]);
    drop(consumers[1].decode(published[1].ticket()).unwrap());
    let Unclosed { error, pool, .. } = unclosed(pool, Duration::ZERO);
    let PoolError::StillHeld { holders } = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (holders.len(), holders[0].rank, holders[0].slices),
        (1, 2, 1)
    );
    thread::scope(|scope| {
        let closing = scope.spawn(move || pool.close(soon()).unwrap());
        thread::sleep(Duration::from_millis(20));
        assert!(!closing.is_finished());
        let mut bytes = [0; 7];
        lease.read(0, &mut bytes).unwrap().finish().unwrap();
        assert_eq!(&bytes, b"closing");
        let last = closing.join().unwrap();
        assert_eq!((last.acknowledged, last.reclaimed, last.busy), (4, 2, 0));
    });
}

fn stopped() -> PoolError {
    PoolError::Ended {
        reason: "the server has stopped".to_owned(),
    }
}

/// Two slices, of which the first is open; after the end only that one is readable.
fn ends_with_leases(ground: &Ground, end: fn(Pool)) {
    let (pool, consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let published = publisher.publish_all(&[payload(), payload()]).unwrap();
    let lease = consumers[0].open(published[0].ticket()).unwrap();
    let kept = consumers[1].decode(published[0].ticket()).unwrap();
    end(pool);
    for consumer in &consumers {
        assert!(!consumer.is_connected());
        fails(consumer.open(published[1].ticket()), stopped());
    }
    fails(kept.open(), stopped());
    let mut target = ground.consumer.memory(ground.g);
    let lease = lease.copy_to(0, &mut target, 0).unwrap();
    lease.finish().unwrap();
    let mut bytes = [0; 7];
    target.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"closing");
    target.close().unwrap();
    fails(publisher.publish(&payload()), PoolError::Closing);
    for consumer in consumers {
        consumer.close().unwrap();
    }
    // The name is free for the next pool.
    ground.serve(1, 1).close(soon()).unwrap();
}

fn close_now(ground: &Ground) {
    ends_with_leases(ground, |pool| {
        let last = pool.close_now(soon()).unwrap();
        let held: Vec<_> = last.consumers.iter().map(|one| one.held).collect();
        assert_eq!((held, last.slices, last.published), (vec![2, 2], 2, 2));
        assert!(last.consumers.iter().all(|one| one.oldest.is_some()));
    });
}

fn dropped(ground: &Ground) {
    ends_with_leases(ground, drop);
}

fn after_close(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let published = publish(&publisher, b"held");
    let _lease = consumers[0].open(published.ticket()).unwrap();
    let pool = unclosed(pool, Duration::ZERO).pool;
    assert!(pool.name().is_some());
    // A pool that is closing lets nobody in.
    drop(consumers);
    let device = ground.consumer.device();
    fails(
        Consumer::attach(device, &ground.name, 1),
        PoolError::Closing,
    );
    drop(_lease);
    let id = published.id();
    let last = pool.close(soon()).unwrap();
    assert_eq!(last.published, 1);
    let gone = Consumer::attach(device, &ground.name, 1);
    assert!(matches!(gone, Err(PoolError::Wire(_))), "{gone:?}");
    let before = (ground.calls(), ground.snapshots());
    fails(publisher.publish(&payload()), PoolError::Closing);
    fails(publisher.publish_all(&[]), PoolError::Closing);
    fails(publisher.begin(&[payload()]).map(drop), PoolError::Closing);
    let patient = publisher.clone().waiting_for_room(Duration::from_secs(60));
    fails(patient.publish(&payload()), PoolError::Closing);
    assert_eq!(publisher.cancel(id).unwrap(), 0);
    assert_eq!((ground.calls(), ground.snapshots()), before);
}

fn leases_open(ground: &Ground) {
    let (pool, mut consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    let published = publisher.publish_all(&[payload(), payload()]).unwrap();
    let consumer = consumers.remove(0);
    let leases: Vec<_> = published
        .iter()
        .map(|one| consumer.open(one.ticket()).unwrap())
        .collect();
    let refused = consumer.close().unwrap_err();
    assert_eq!(refused.leases, 2);
    // The consumer is as before.
    let consumer = refused.consumer;
    assert_eq!((consumer.leases(), held(&pool)), (2, vec![2]));
    let next = publish(&publisher, b"next");
    assert_eq!(read(&consumer, next.ticket()), b"next");
    drop(leases);
    consumer.close().unwrap();
    until(|| !pool.counters().consumers[0].is_attached);
    all_free(&pool);
    assert_eq!(pool.counters().acknowledged, 3);
}

fn outlives(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let published = publish(&pool.publisher(), b"outlives");
    let lease = consumers[0].open(published.ticket()).unwrap();
    drop(consumers);
    // The lease keeps what it needs, the session too.
    thread::sleep(Duration::from_millis(10));
    assert_eq!(held(&pool), [1]);
    assert!(pool.counters().consumers[0].is_attached);
    let mut bytes = [0; 8];
    let lease = lease.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"outlives");
    lease.acknowledge();
    until(|| !pool.counters().consumers[0].is_attached);
    all_free(&pool);
    let counters = pool.counters();
    assert_eq!((counters.acknowledged, counters.reclaimed), (1, 0));
}

fn contexts(ground: &Ground) {
    let pool = ground.serve(1, 2);
    let second = &ground.consumer.devices[1];
    let retained = || ground.consumer.sim().snapshot().retained_contexts;
    let consumer = Consumer::attach(second, &ground.name, 0).unwrap();
    assert_eq!(retained(), [0, 0]);
    let published = publish(&pool.publisher(), b"contexts");
    // Control words need none.
    let calls = ground.consumer.calls();
    drop(consumer.decode(published.ticket()).unwrap());
    let next = publish(&pool.publisher(), b"contexts");
    consumer.open(next.ticket()).unwrap().acknowledge();
    assert_eq!(held(&pool), [0, 2]);
    assert_eq!((ground.consumer.calls(), retained()), (calls, vec![0, 0]));
    // The first copy makes one, on the consumer's own device.
    let mut target = ground.consumer.memory_on(second, ground.g);
    let last = publish(&pool.publisher(), b"contexts");
    let lease = consumer.open(last.ticket()).unwrap();
    lease.copy_to(0, &mut target, 0).unwrap().finish().unwrap();
    assert_eq!(retained(), [0, 1]);
    let more = publish(&pool.publisher(), b"contexts");
    assert_eq!(read(&consumer, more.ticket()), b"contexts");
    assert_eq!(retained(), [0, 1]);
    consumer.close().unwrap();
    assert_eq!(retained(), [0, 1]);
    target.close().unwrap();
}

/// Runs the closure in a forked child; whether it went through.
pub fn in_child(run: impl FnOnce()) -> bool {
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            unsafe { libc::alarm(20) };
            let went = catch_unwind(AssertUnwindSafe(run));
            unsafe { libc::_exit(went.is_err().into()) }
        }
        child => {
            let mut status = 0;
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

fn forked(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let published = publisher.publish_all(&[payload(), payload()]).unwrap();
    let lease = consumers[0].open(published[0].ticket()).unwrap();
    let ticket = consumers[1].decode(published[1].ticket()).unwrap();
    let begun = publisher.begin(&[payload()]).unwrap();
    let (before, snapshots) = (counters(&pool), ground.snapshots());
    let everything = (pool, consumers, publisher, lease, ticket, begun);
    let mut everything = Some(everything);
    let went = in_child(|| {
        let calls = ground.calls();
        let (pool, consumers, publisher, lease, ticket, begun) = everything.take().unwrap();
        fails(publisher.publish(&payload()), PoolError::Forked);
        fails(publisher.begin(&[payload()]).map(drop), PoolError::Forked);
        fails(ticket.open(), PoolError::Forked);
        let other = consumers[1].decode(published[1].ticket()).unwrap();
        drop(other);
        fails(consumers[1].open(published[1].ticket()), PoolError::Forked);
        lease.acknowledge();
        drop(begun);
        let unclosed = *pool.close_now(soon()).unwrap_err();
        fails::<()>(Err(unclosed.error), PoolError::Forked);
        drop(unclosed.pool);
        drop((consumers, publisher));
        assert_eq!(ground.calls(), calls, "the driver was called");
    });
    assert!(went, "the child has failed");
    // Dropped in the order in which most would.
    let went = in_child(|| drop(everything.take()));
    assert!(went, "the child has failed");
    let (pool, consumers, publisher, lease, ticket, begun) = everything.unwrap();
    assert_eq!((counters(&pool), ground.snapshots()), (before, snapshots));
    assert!(consumers.iter().all(Consumer::is_connected));
    let mut bytes = [0; 7];
    lease.read(0, &mut bytes).unwrap().finish().unwrap();
    assert_eq!(&bytes, b"closing");
    drop(ticket.open().unwrap());
    assert_eq!(read(&consumers[1], published[0].ticket()), b"closing");
    assert_eq!(read(&consumers[0], published[1].ticket()), b"closing");
    drop(publisher);
    let last = begun.finish().unwrap();
    for consumer in &consumers {
        assert_eq!(read(consumer, last[0].ticket()), b"closing");
    }
    all_free(&pool);
    pool.close(soon()).unwrap();
}
