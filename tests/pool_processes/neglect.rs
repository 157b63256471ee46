//! Tickets that are lost, kept, forwarded or not needed, and clean-up that comes too late.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use cuda_vmm::pool::{Payload, PoolError, Published, Source, Taken};

use crate::scene::*;
use crate::side::Side;
use crate::surroundings::{soon, Other};
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    (
        "neglect::a_request_aborted_three_times",
        aborted_three_times,
    ),
    ("neglect::a_cache_hit_acknowledges_for_itself", cache_hit),
    (
        "neglect::clean_up_after_the_slice_was_reused",
        late_clean_up,
    ),
    (
        "neglect::a_reused_slice_has_no_acknowledgement",
        reused_slice,
    ),
    ("neglect::a_ticket_through_a_third_process", third_process),
];

pub const PARTS: &[Part] = &[("forwards", |_, _| forwards()), ("reads", reads)];

const SHORT: Duration = Duration::from_millis(30);

/// Tickets that are published and never delivered. With an expiry the pool goes on; without one it is full.
fn aborted_three_times(side: &Side) {
    let name = name("aborted");
    let pool = serve(side, &name, 1, 2);
    let consumer = attach(side, &name, 0);
    let publisher = pool.publisher().waiting_for_room(Duration::from_secs(5));
    let half = filled(0, side.g / 2);
    let payload = || Payload::bytes(Source::host(&half));
    let mut last: Option<Published> = None;
    for _ in 0..3 {
        for _ in 0..6 {
            let lost = publisher.publish(&payload().expires_in(SHORT)).unwrap();
            last = Some(lost);
        }
    }
    let last = last.unwrap();
    let counters = counters_once(&pool, Duration::from_secs(5), |it| it.busy == 0);
    // Rank 1 never attached: its holds expire too.
    assert_eq!((counters.published, counters.expired), (18, 36));
    is_idle(&counters);
    match consumer.open(last.ticket()) {
        Err(PoolError::TakenBack {
            why: Taken::Expired,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }

    let kept = [(); 2].map(|()| pool.publisher().publish(&payload()).unwrap());
    match pool.publisher().publish(&payload()) {
        Err(PoolError::Exhausted(full)) => {
            assert_eq!((full.free, full.needed), (0, side.g / 2));
            let oldest = full.oldest.unwrap();
            assert_eq!((oldest.bytes, oldest.is_open), (side.g / 2, false));
        }
        other => panic!("{other:?}"),
    }
    let ids = kept.map(|it| it.id());
    assert_eq!(publisher.cancel_all(&ids).unwrap(), 0);
    let counters = pool.counters();
    assert_eq!((counters.cancelled, counters.cancelled_holds), (2, 4));
    is_idle(&counters);
    consumer.close().unwrap();
    is_idle(&pool.close(soon(5)).unwrap());
}

/// A consumer that has the data already drops the ticket. The other one is not affected.
fn cache_hit(side: &Side) {
    let name = name("cache hit");
    let pool = serve(side, &name, 1, 2);
    let (hit, other) = (attach(side, &name, 0), attach(side, &name, 1));
    let published = publish(&pool.publisher(), 7, 5000);
    drop(hit.decode(published.ticket()).unwrap());
    let counters = pool.counters();
    let held = |rank: usize| counters.consumers[rank].held;
    assert_eq!((held(0), held(1), counters.acknowledged), (0, 1, 1));
    match hit.open(published.ticket()) {
        Err(PoolError::AlreadyAcknowledged { slot: 0 }) => {}
        unexpected => panic!("{unexpected:?}"),
    }
    let lease = other.open(published.ticket()).unwrap();
    checked(lease, 7).finish().unwrap();
    is_idle(&pool.counters());
    hit.close().unwrap();
    other.close().unwrap();
    is_idle(&pool.close(soon(5)).unwrap());
}

/// The old id of a slice that is in use again cancels nothing, however often.
fn late_clean_up(side: &Side) {
    let name = name("late clean-up");
    let pool = serve(side, &name, 1, 1);
    let consumer = attach(side, &name, 0);
    let publisher = pool.publisher();
    let old = publish(&publisher, 1, 5000);
    checked(consumer.open(old.ticket()).unwrap(), 1)
        .finish()
        .unwrap();
    is_idle(&pool.counters());
    let new = publish(&publisher, 2, 5000);
    for _ in 0..2 {
        assert_eq!(publisher.cancel(old.id()).unwrap(), 0);
    }
    let counters = pool.counters();
    assert_eq!((counters.slices, counters.cancelled), (1, 0));
    assert_eq!(counters.consumers[0].held, 1);
    match consumer.open(old.ticket()) {
        Err(PoolError::Stale {
            slot: 0,
            generation: 1,
            current: 2,
        }) => {}
        other => panic!("the slot was not reused: {other:?}"),
    }
    checked(consumer.open(new.ticket()).unwrap(), 2)
        .finish()
        .unwrap();
    consumer.close().unwrap();
    is_idle(&pool.close(soon(5)).unwrap());
}

fn reused_slice(side: &Side) {
    let name = name("reused");
    let pool = serve(side, &name, 1, 2);
    let consumers = [0, 1].map(|rank| attach(side, &name, rank));
    let publisher = pool.publisher();
    for sequence in 0..200 {
        let published = publish(&publisher, sequence, 300);
        let counters = pool.counters();
        let held = counters.consumers.iter().map(|it| it.held);
        assert_eq!(held.collect::<Vec<_>>(), [1, 1], "{sequence}");
        assert_eq!((pool.recycle(), counters.slices), (0, 1));
        for (rank, consumer) in consumers.iter().enumerate() {
            let lease = consumer.open(published.ticket()).unwrap();
            checked(lease, sequence).acknowledge();
            assert_eq!(pool.recycle(), rank);
        }
    }
    assert_eq!(pool.counters().acknowledged, 400);
    for consumer in consumers {
        consumer.close().unwrap();
    }
    is_idle(&pool.close(soon(5)).unwrap());
}

/// Repeats lines. It has no part in the pool.
fn forwards() {
    loop {
        match told() {
            line if line.is_empty() => break,
            line => println!("{line}"),
        }
    }
}

/// Reads payloads by the tickets that come.
fn reads(side: &Side, words: &[&str]) {
    let consumer = attach(side, words[0], words[1].parse().unwrap());
    println!("attached");
    for sequence in 0.. {
        let line = told();
        if line.is_empty() {
            break;
        }
        let lease = consumer.open(&from_hex(&line)).unwrap();
        checked(lease, sequence).finish().unwrap();
        println!("{sequence}");
    }
    consumer.close().unwrap();
}

fn third_process(side: &Side) {
    let name = name("third process");
    let pool = serve(side, &name, 1, 1);
    let start = |role: &str| Other::with_stdin(&side.role(role), Stdio::piped());
    let mut forwarder = start("forwards");
    let mut consumer = start(&format!("reads|{name}|0"));
    assert_eq!(consumer.line(), "attached");
    for sequence in 0..20 {
        let published = publish(&pool.publisher(), sequence, 3000);
        let write = |to: &mut Other, line: &str| {
            let stdin = to.child.stdin.as_mut().unwrap();
            writeln!(stdin, "{line}").unwrap();
        };
        write(&mut forwarder, &to_hex(published.ticket()));
        let forwarded = forwarder.line();
        write(&mut consumer, &forwarded);
        assert_eq!(consumer.line(), sequence.to_string());
        assert_eq!(pool.counters().busy, 0);
    }
    for mut other in [forwarder, consumer] {
        drop(other.child.stdin.take());
        assert_eq!(other.ends(), "");
    }
    let counters = pool.close(soon(5)).unwrap();
    assert_eq!(counters.acknowledged, 20);
    is_idle(&counters);
}
