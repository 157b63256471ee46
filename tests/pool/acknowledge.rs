//! Acknowledgements: by whom, for whom, and what a late one does.

use std::time::Duration;

use cuda_vmm::pool::{
    Attach, Consumer, Counters, Payload, Pool, PoolError, Published, Scope, Source, StillReading,
    Taken,
};
use cuda_vmm::sim::Fault;
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, AllocationProps, Code, Error, Fence, Reservation};

use crate::ground::{all_free, counters, fails, held, pattern, publish, read, until, Ground};
use crate::Case;

pub const CASES: &[Case] = &[
    ("each consumer acknowledges for itself", own),
    ("a member acknowledges for its group", group),
    ("a consumer acknowledges for all", all),
    ("dropping acknowledges for oneself", dropping),
    ("a ticket is passed on", passed_on),
    (
        "a consumer that attaches later gets what is pending",
        attaches_later,
    ),
    ("a consumer that goes gives back its own alone", goes),
    ("a publish without any consumer is refused", nobody_left),
    ("a consumer is evicted", evicted),
    ("a late acknowledgement changes nothing", late),
    ("a fence that fails keeps the lease", fences),
    ("a copy goes to another device's memory", other_device),
    (
        "a consumer that has tickets lets go of the pool",
        tickets_at_the_end,
    ),
];

pub const SIMULATED: &[Case] = &[
    ("a copy that fails gives the slice back", failed_copy),
    ("a wait that fails gives the slice back", failed_wait),
];

/// A pool of four consumers, of which 0 and 1, and 2 and 3, are groups.
fn grouped(ground: &Ground, widest: Scope) -> (Pool, Vec<Consumer>) {
    let builder = ground.builder(1, 4).group(0..2).group(2..4);
    let pool = builder.widest_scope(widest).serve(&ground.name).unwrap();
    let consumers = (0..4).map(|rank| ground.attach(rank)).collect();
    (pool, consumers)
}

/// Holds that ended: acknowledged, covered, reclaimed, expired, and slices that were cancelled.
fn ends(counters: &Counters) -> [u64; 5] {
    let it = counters;
    [
        it.acknowledged,
        it.covered,
        it.reclaimed,
        it.expired,
        it.cancelled,
    ]
}

#[track_caller]
fn ended(pool: &Pool, expected: [u64; 5]) {
    assert_eq!(ends(&pool.counters()), expected);
}

fn own(ground: &Ground) {
    let (pool, consumers) = grouped(ground, Scope::All);
    let published = publish(&pool.publisher(), b"own");
    let mut expected = vec![1; 4];
    for rank in [2, 0, 3, 1] {
        let lease = consumers[rank].open(published.ticket()).unwrap();
        assert_eq!(held(&pool), expected);
        match rank {
            0 => lease.acknowledge(),
            1 => lease.finish().unwrap(),
            2 => lease.acknowledge_for(Scope::Own).unwrap(),
            _ => lease.finish_for(Scope::Own).unwrap(),
        }
        expected[rank] = 0;
        assert_eq!(held(&pool), expected);
        assert_eq!(consumers[rank].leases(), 0);
    }
    all_free(&pool);
    ended(&pool, [4, 0, 0, 0, 0]);
}

fn covered<T>(result: Result<T, PoolError>) {
    let why = Taken::Covered;
    fails(result, PoolError::TakenBack { slot: 0, why });
}

fn group(ground: &Ground) {
    let (pool, consumers) = grouped(ground, Scope::Group);
    let publisher = pool.publisher();
    let published = publish(&publisher, b"group");
    let ticket = published.ticket();
    let kept = consumers[1].decode(ticket).unwrap();
    let lease = consumers[0].open(ticket).unwrap();
    lease.acknowledge_for(Scope::Group).unwrap();
    assert_eq!(held(&pool), [0, 0, 1, 1]);
    ended(&pool, [1, 1, 0, 0, 0]);
    covered(kept.open());
    covered(consumers[1].open(ticket));
    // A member that has it open keeps it.
    let open = consumers[3].open(ticket).unwrap();
    let lease = consumers[2].open(ticket).unwrap();
    lease.finish_for(Scope::Group).unwrap();
    assert_eq!(held(&pool), [0, 0, 0, 1]);
    ended(&pool, [2, 1, 0, 0, 0]);
    assert_eq!(pool.counters().busy, 256);
    let mut bytes = [0; 5];
    open.read(0, &mut bytes).unwrap().finish().unwrap();
    assert_eq!(&bytes, b"group");
    all_free(&pool);
    ended(&pool, [3, 1, 0, 0, 0]);
    // Twice for the same group is as once.
    let published = publish(&publisher, b"both");
    let leases = [0, 1].map(|rank| consumers[rank].open(published.ticket()).unwrap());
    for lease in leases {
        lease.acknowledge_for(Scope::Group).unwrap();
    }
    assert_eq!(held(&pool), [0, 0, 1, 1]);
    ended(&pool, [5, 1, 0, 0, 0]);
    assert_eq!(publisher.cancel(published.id()).unwrap(), 0);
    ended(&pool, [5, 1, 0, 0, 1]);
    all_free(&pool);
}

fn all(ground: &Ground) {
    let (pool, consumers) = grouped(ground, Scope::All);
    let published = publish(&pool.publisher(), b"all");
    let open = consumers[2].open(published.ticket()).unwrap();
    let lease = consumers[1].open(published.ticket()).unwrap();
    lease.acknowledge_for(Scope::All).unwrap();
    assert_eq!(held(&pool), [0, 0, 1, 0]);
    ended(&pool, [1, 2, 0, 0, 0]);
    for rank in [0, 3] {
        covered(consumers[rank].open(published.ticket()));
    }
    drop(open);
    all_free(&pool);
    ended(&pool, [2, 2, 0, 0, 0]);
    // With nobody else in the way the slice is free at once.
    let published = publish(&pool.publisher(), b"all");
    let lease = consumers[3].open(published.ticket()).unwrap();
    lease.finish_for(Scope::All).unwrap();
    all_free(&pool);
    ended(&pool, [3, 5, 0, 0, 0]);
}

fn dropping(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 3);
    let published = publish(&pool.publisher(), b"dropped");
    let calls = ground.calls();
    drop(consumers[0].open(published.ticket()).unwrap());
    assert_eq!(held(&pool), [0, 1, 1]);
    drop(consumers[1].decode(published.ticket()).unwrap());
    assert_eq!(held(&pool), [0, 0, 1]);
    // What needs no data needs no driver.
    assert_eq!(ground.calls(), calls);
    let already = || PoolError::AlreadyAcknowledged { slot: 0 };
    fails(consumers[0].open(published.ticket()), already());
    fails(consumers[1].open(published.ticket()), already());
    // A decoded copy that is dropped first counts; the other cannot be opened then.
    let copies = [(); 2].map(|()| consumers[2].decode(published.ticket()).unwrap());
    let [first, second] = copies;
    drop(first);
    all_free(&pool);
    fails(second.open(), already());
    ended(&pool, [3, 0, 0, 0, 0]);
}

fn passed_on(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let published = publish(&pool.publisher(), b"passed on");
    let before = counters(&pool);
    let mut ticket = published.ticket().to_vec();
    for round in 0..10 {
        let decoded = consumers[round % 2].decode(&ticket).unwrap();
        ticket = decoded.pass_on();
        assert_eq!(ticket, published.ticket());
    }
    assert_eq!(counters(&pool), before);
    for consumer in &consumers {
        assert_eq!(read(consumer, &ticket), b"passed on");
    }
    all_free(&pool);
}

fn attaches_later(ground: &Ground) {
    let pool = ground.serve(1, 2);
    let publisher = pool.publisher();
    let first = ground.attach(0);
    let many: Vec<(Vec<u8>, Published)> = (0..20)
        .map(|seed| {
            let bytes = pattern(seed, 300);
            let published = publish(&publisher, &bytes);
            (bytes, published)
        })
        .collect();
    for (bytes, published) in &many {
        assert_eq!(read(&first, published.ticket()), *bytes);
    }
    assert_eq!(held(&pool), [0, 20]);
    let holders = pool.holders();
    assert_eq!((holders.len(), holders[0].rank), (1, 1));
    assert!(!holders[0].is_attached && !holders[0].is_open);
    // One goes before the consumer comes.
    assert_eq!(publisher.cancel(many[3].1.id()).unwrap(), 0);
    assert_eq!(held(&pool), [0, 19]);
    let second = ground.attach(1);
    assert_eq!(held(&pool), [0, 19]);
    for (index, (bytes, published)) in many.iter().enumerate() {
        match index {
            3 => fails(
                second.open(published.ticket()),
                PoolError::NotPublished {
                    slot: 3,
                    generation: 1,
                },
            ),
            _ => assert_eq!(read(&second, published.ticket()), *bytes),
        }
    }
    all_free(&pool);
    ended(&pool, [39, 0, 0, 0, 1]);
}

fn detached(pool: &Pool, rank: usize) {
    until(|| !pool.counters().consumers[rank].is_attached);
}

fn goes(ground: &Ground) {
    let (pool, mut consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let slices: Vec<Published> = (0..4).map(|_| publish(&publisher, b"four")).collect();
    // The first has one open, one acknowledged, and two unopened; the second has them all.
    let open = consumers[0].open(slices[0].ticket()).unwrap();
    assert_eq!(read(&consumers[0], slices[1].ticket()), b"four");
    let other = consumers[1].open(slices[0].ticket()).unwrap();
    assert_eq!(held(&pool), [3, 4]);
    pool.evict(0, "gone");
    detached(&pool, 0);
    assert_eq!(held(&pool), [0, 4]);
    ended(&pool, [1, 0, 3, 0, 0]);
    // It attaches again, and starts clean: what it had before is not its any more.
    let again = ground.attach(0);
    assert_eq!(held(&pool), [0, 4]);
    for (slot, slice) in slices.iter().enumerate() {
        fails(
            again.open(slice.ticket()),
            PoolError::NotPublished {
                slot: slot as u32,
                generation: 1,
            },
        );
    }
    let next = publish(&publisher, b"next");
    assert_eq!(held(&pool), [1, 5]);
    assert_eq!(read(&again, next.ticket()), b"next");
    // The open lease of the old session is not readable, and gives nothing back twice.
    fails(open.read(0, &mut [0; 4]), evicted_from(0));
    assert_eq!(held(&pool), [0, 5]);
    drop(other);
    for slice in &slices[1..] {
        assert_eq!(read(&consumers[1], slice.ticket()), b"four");
    }
    assert_eq!(read(&consumers[1], next.ticket()), b"next");
    all_free(&pool);
    // An orderly end is the same.
    let last = publish(&publisher, b"last");
    consumers.remove(1).close().unwrap();
    detached(&pool, 1);
    assert_eq!(held(&pool), [1, 0]);
    assert_eq!(read(&again, last.ticket()), b"last");
    all_free(&pool);
}

fn nobody_left(ground: &Ground) {
    let (pool, mut consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let payload = Payload::bytes(Source::host(b"for nobody"));
    consumers.remove(0).close().unwrap();
    detached(&pool, 0);
    // For the one that is left alone.
    let published = publisher.publish(&payload).unwrap();
    assert_eq!(held(&pool), [0, 1]);
    assert_eq!(read(&consumers[0], published.ticket()), b"for nobody");
    consumers.remove(0).close().unwrap();
    detached(&pool, 1);
    let before = (counters(&pool), ground.snapshots());
    let nobody = || PoolError::NoConsumer { consumers: 2 };
    fails(publisher.publish(&payload), nobody());
    let two = [payload.clone(), payload.clone()];
    fails(publisher.publish_all(&two), nobody());
    let begun = publisher.begin(&two).unwrap();
    fails(begun.finish(), nobody());
    all_free(&pool);
    // But for an event more, in which the copies end.
    assert_eq!(
        (counters(&pool), ground.snapshots().1),
        (before.0, before.1 .1)
    );
    // One attaches again.
    let again = ground.attach(1);
    let published = publisher.publish(&payload).unwrap();
    assert_eq!(held(&pool), [0, 1]);
    assert_eq!(read(&again, published.ticket()), b"for nobody");
    all_free(&pool);
}

fn evicted(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let published = publish(&publisher, b"evicted");
    let lease = consumers[0].open(published.ticket()).unwrap();
    let kept = publish(&publisher, b"kept");
    assert!(pool.evict(0, "it does not answer"));
    detached(&pool, 0);
    assert_eq!(held(&pool), [0, 2]);
    until(|| !consumers[0].is_connected());
    let ended_so = || PoolError::Ended {
        reason: "it does not answer".to_owned(),
    };
    fails(consumers[0].open(kept.ticket()), ended_so());
    fails(consumers[0].open(published.ticket()), ended_so());
    assert!(ended_so().is_disconnected());
    assert!(!pool.evict(0, "again"), "nobody is attached");
    // The ticket that could not be opened was taken back, so that nothing comes of it. The lease comes too late.
    assert_eq!((pool.counters().late, pool.counters().reclaimed), (0, 2));
    assert_eq!(lease.view(0).unwrap_err().to_string(), EVICTED);
    let mut bytes = [0; 7];
    fails(lease.read(0, &mut bytes), evicted_from(0));
    assert_eq!(bytes, [0; 7]);
    let counters = pool.counters();
    assert_eq!((counters.late, counters.acknowledged), (1, 0));
    assert_eq!(held(&pool), [0, 2]);
    for slice in [&published, &kept] {
        let _ = read(&consumers[1], slice.ticket());
    }
    all_free(&pool);
    assert_eq!(pool.counters().late, 1);
}

const EVICTED: &str =
    "slice 0 was taken back: the producer evicted this consumer, so that the bytes may be overwritten";

/// What a lease says whose consumer was evicted.
fn evicted_from(slot: u32) -> PoolError {
    PoolError::TakenBack {
        slot,
        why: Taken::Evicted,
    }
}

fn late(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let old = publish(&publisher, b"old");
    let mut leases = Vec::new();
    for consumer in &consumers {
        leases.push(consumer.open(old.ticket()).unwrap());
    }
    assert!(pool.evict(0, "late") && pool.evict(1, "late"));
    detached(&pool, 0);
    detached(&pool, 1);
    all_free(&pool);
    // The slice is used again, by consumers with the same ranks.
    let again = [0, 1].map(|rank| ground.attach(rank));
    let new = publish(&publisher, b"new");
    let before = counters(&pool);
    let lease = again[0].open(new.ticket()).unwrap();
    drop(leases.remove(0));
    drop(consumers[1].decode(old.ticket()).unwrap());
    let after = counters(&pool);
    assert_eq!((after.late, before.late), (1, 0));
    assert_eq!(after.consumers, before.consumers);
    assert_eq!((after.busy, after.acknowledged), (256, 0));
    drop(leases);
    assert_eq!(pool.counters().late, 2);
    assert_eq!(held(&pool), [1, 1]);
    // A clean-up of the producer's that comes after the slice was reused frees nothing.
    assert_eq!(publisher.cancel(old.id()).unwrap(), 0);
    assert_eq!(held(&pool), [1, 1]);
    drop(lease);
    assert_eq!(read(&again[1], new.ticket()), b"new");
    all_free(&pool);
    assert_eq!(pool.counters().late, 2);
}

fn fences(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let published = publish(&pool.publisher(), b"fence");
    let lease = consumers[0].open(published.ticket()).unwrap();
    let address = lease.view(0).unwrap().address();
    let failing = Fence::closure(|_| Err("the kernel has failed"));
    let StillReading { error, lease, .. } = *lease.acknowledge_after(failing).unwrap_err();
    assert!(matches!(error, Error::WaitFailed(_)), "{error:?}");
    assert_eq!((held(&pool), consumers[0].leases()), (vec![1], 1));
    assert_eq!(lease.view(0).unwrap().address(), address);
    let panicking = Fence::closure(|_| -> Result<(), String> { panic!("a panic of the caller's") });
    let StillReading { error, lease, .. } = *lease.acknowledge_after(panicking).unwrap_err();
    assert!(matches!(error, Error::WaitFailed(_)), "{error:?}");
    assert_eq!(held(&pool), [1]);
    let device = ground.consumer.device();
    lease
        .acknowledge_after(Fence::default_stream(device).within(Duration::from_secs(20)))
        .unwrap();
    all_free(&pool);
    assert_eq!(consumers[0].leases(), 0);
    // An error that is dropped acknowledges.
    let published = publish(&pool.publisher(), b"fence");
    let lease = consumers[0].open(published.ticket()).unwrap();
    drop(lease.acknowledge_after(Fence::closure(|_| Err("it has failed"))));
    all_free(&pool);
}

fn other_device(ground: &Ground) {
    let [first, second] = &ground.consumer.devices[..] else {
        println!("SKIPPED: one device");
        return;
    };
    if !second.can_access_peer(first).unwrap() || !first.can_access_peer(second).unwrap() {
        println!("SKIPPED: the devices do not reach each other");
        return;
    }
    let pool = ground.serve(1, 3);
    let bytes = pattern(5, 3000);
    let published = publish(&pool.publisher(), &bytes);
    let attach = |rank| Attach::new(&ground.name, rank);
    // The second device reads the pool by itself; or the first one writes to the second's memory.
    let both = attach(0).also_read_by(second).attach(first).unwrap();
    let one = attach(1).attach(first).unwrap();
    let there = attach(2).attach(second).unwrap();
    let mut theirs = ground.consumer.memory_on(second, ground.g);
    let mut shared = Reservation::builder(ground.g)
        .access(second, Access::ReadWrite)
        .access(first, Access::ReadWrite)
        .reserve(&ground.consumer.driver)
        .unwrap();
    shared
        .map(0, ground.g, &AllocationProps::on(second))
        .unwrap();
    let copy = |consumer: &Consumer, target: &mut Reservation| {
        let lease = consumer.open(published.ticket()).unwrap();
        lease.copy_to(0, target, 64).unwrap().finish().unwrap();
        let mut found = vec![0; bytes.len()];
        target.read(64, &mut found).unwrap();
        assert!(found == bytes);
        target.fill(0, 8192, 0).unwrap();
    };
    copy(&both, &mut theirs);
    assert_eq!(held(&pool), [0, 1, 1]);
    copy(&one, &mut shared);
    copy(&there, &mut theirs);
    all_free(&pool);
    // Without a device that reads the pool and writes the target the slice is given back.
    let published = publish(&pool.publisher(), &bytes);
    let lease = one.open(published.ticket()).unwrap();
    let refused = lease.copy_to(0, &mut theirs, 0);
    assert!(
        matches!(
            refused,
            Err(PoolError::Memory(Error::NoCommonDevice { .. }))
        ),
        "{refused:?}"
    );
    assert_eq!(held(&pool), [1, 0, 1]);
    theirs.close().unwrap();
    shared.close().unwrap();
}

/// Tickets that are still decoded do not keep a consumer that is closed: they go back, and open nothing.
fn tickets_at_the_end(ground: &Ground) {
    let (pool, mut consumers) = ground.pool(1, 2);
    let published = publish(&pool.publisher(), b"left");
    let ticket = consumers[0].decode(published.ticket()).unwrap();
    consumers.remove(0).close().unwrap();
    detached(&pool, 0);
    assert_eq!(held(&pool), [0, 1]);
    let after = counters(&pool);
    assert_eq!(after.acknowledged + after.reclaimed, 1);
    fails(ticket.open(), PoolError::Detached);
    assert_eq!(read(&consumers[0], published.ticket()), b"left");
    all_free(&pool);
}

fn code_of<T: std::fmt::Debug>(result: Result<T, PoolError>) -> Code {
    match result {
        Err(PoolError::Memory(error)) => error.code().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn failed_copy(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let sim = ground.consumer.sim();
    let mut target = ground.consumer.memory(ground.g);
    for call in [Call::cuMemcpyDtoDAsync_v2, Call::cuStreamCreate] {
        let published = publish(&pool.publisher(), b"fails");
        let lease = consumers[0].open(published.ticket()).unwrap();
        let wanted = CUresult::CUDA_ERROR_NOT_PERMITTED;
        if call == Call::cuStreamCreate && sim.snapshot().streams > 0 {
            // The consumer has its stream already.
            drop(lease);
        } else {
            sim.inject(Fault::on(call).code(wanted)).unwrap();
            let failed = lease.copy_to(0, &mut target, 0);
            assert_eq!(code_of(failed), Code::ERROR_NOT_PERMITTED);
        }
        assert_eq!(held(&pool), [0, 1]);
        // The lease is gone with it: the ticket opens nothing any more.
        fails(
            consumers[0].open(published.ticket()),
            PoolError::AlreadyAcknowledged { slot: 0 },
        );
        // The other one copies it.
        assert_eq!(read(&consumers[1], published.ticket()), b"fails");
        all_free(&pool);
    }
    assert_eq!(sim.pending_faults(), []);
    target.close().unwrap();
}

fn failed_wait(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let sim = ground.consumer.sim();
    let mut target = ground.consumer.memory(ground.g);
    let published = publish(&pool.publisher(), b"waits");
    let lease = consumers[0].open(published.ticket()).unwrap();
    let lease = lease.copy_to(0, &mut target, 0).unwrap();
    let wanted = CUresult::CUDA_ERROR_NOT_PERMITTED;
    sim.inject(Fault::on(Call::cuStreamSynchronize).code(wanted))
        .unwrap();
    assert_eq!(code_of(lease.finish()), Code::ERROR_NOT_PERMITTED);
    // The acknowledgement comes behind the copy all the same.
    all_free(&pool);
    assert_eq!(consumers[0].leases(), 0);
    assert_eq!(sim.pending_faults(), []);
    target.close().unwrap();
}
