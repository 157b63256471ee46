//! A consumer or the producer ends at every step, or hangs: what the other side has stays, and what the dead one held
//! is back at once.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Attach, Consumer, Lease, Payload, PoolError, Source};
use cuda_vmm::sys::{CUresult, CUstream_flags};
use cuda_vmm::wire::Name;

use crate::scene::*;
use crate::side::Side;
use crate::support;
use crate::surroundings::{soon, Other};
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("deaths::a_consumer_killed_at_each_step", |side| {
        consumer_ends(side, "killed")
    }),
    ("deaths::a_consumer_exits_at_each_step", |side| {
        consumer_ends(side, "exits")
    }),
    ("deaths::a_consumer_execs_at_each_step", |side| {
        consumer_ends(side, "execs")
    }),
    ("deaths::the_producer_killed_at_each_step", producer_killed),
    ("deaths::a_consumer_that_hangs", consumer_hangs),
];

pub const PARTS: &[Part] = &[
    ("ends_at", ends_at),
    ("sits", |_, _| sits()),
    ("produces", produces),
    ("reads_slowly", reads_slowly),
];

/// What a consumer has done when it ends.
const STEPS: [&str; 5] = ["attached", "decoded", "opened", "copied", "acknowledged"];

const AT_ONCE: Duration = Duration::from_secs(1);
const LENGTH: usize = 9000;

fn sits() -> ! {
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

fn write(to: &mut Other, line: &str) {
    writeln!(to.child.stdin.as_mut().unwrap(), "{line}").unwrap();
}

/// Consumes a ticket up to a step, and ends there in this way when it is told to.
fn ends_at(side: &Side, words: &[&str]) {
    let [name, step, how] = words else {
        panic!("{words:?}");
    };
    let end_if_at = |at: &str| {
        if at == *step {
            println!("there");
            told();
            match *how {
                "exits" => unsafe { libc::_exit(0) },
                "execs" => {
                    let role = side.role("sits");
                    panic!("{}", support::again(&role).unwrap().exec());
                }
                _ => sits(),
            }
        }
    };
    let consumer = attach(side, name, 1);
    let old = told();
    if !old.is_empty() {
        // The consumer that had this rank before held it.
        match consumer.open(&from_hex(&old)) {
            Err(PoolError::Stale { .. } | PoolError::NotPublished { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    println!("attached");
    let ticket = from_hex(&told());
    end_if_at("attached");
    let decoded = consumer.decode(&ticket).unwrap();
    end_if_at("decoded");
    let lease = decoded.open().unwrap();
    end_if_at("opened");
    let mut target = side.reserve(1);
    target.map(0, side.g, &side.props()).unwrap();
    let _current = side.device.make_current().unwrap();
    let mut stream = std::ptr::null_mut();
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
    let created = unsafe { side.driver.calls_raw().cuStreamCreate(&mut stream, flags) };
    assert_eq!(created, CUresult::CUDA_SUCCESS);
    if let Some(sim) = &side.sim {
        // The copy and what comes behind it stay pending.
        assert!(sim.hold_stream(stream));
    }
    let lease = unsafe { lease.on_stream(&side.device, stream) };
    let lease = lease.copy_to(0, &mut target, 0).unwrap();
    end_if_at("copied");
    lease.acknowledge();
    end_if_at("acknowledged");
    panic!("there is no step {step}");
}

/// Rank 1 ends at each step; rank 0 has a lease open all the time.
fn consumer_ends(side: &Side, how: &str) {
    let name = name(how);
    let pool = serve(side, &name, 1, 2);
    let witness = attach(side, &name, 0);
    let mut old = String::new();
    let mut slowest = Duration::ZERO;
    for (sequence, step) in (0..).zip(STEPS) {
        let role = format!("ends_at|{name}|{step}|{how}");
        let mut other = Other::with_stdin(&side.role(&role), Stdio::piped());
        write(&mut other, &old);
        assert_eq!(other.line(), "attached");
        let published = publish(&pool.publisher(), sequence, LENGTH);
        let further = publish(&pool.publisher(), sequence + 100, LENGTH);
        let lease = witness.open(published.ticket()).unwrap();
        old = to_hex(published.ticket());
        write(&mut other, &old);
        assert_eq!(other.line(), "there");
        let before = pool.counters();
        let finished = step == "acknowledged" && side.sim.is_none();
        if !finished {
            let held = before.consumers.iter().map(|it| it.held);
            assert_eq!(held.collect::<Vec<_>>(), [2, 2], "{step}");
        }

        let started = Instant::now();
        let sitting = match how {
            "killed" => {
                other.kill();
                None
            }
            _ => {
                write(&mut other, "go");
                Some(other)
            }
        };
        let after = counters_once(&pool, AT_ONCE, |it| {
            !it.consumers[1].is_attached && it.consumers[1].held == 0
        });
        slowest = slowest.max(started.elapsed());
        if let Some(mut other) = sitting {
            if how == "execs" {
                assert_eq!(other.child.try_wait().unwrap(), None);
                other.child.kill().unwrap();
            }
            other.child.wait().unwrap();
        }
        let ended = after.reclaimed + after.acknowledged - before.reclaimed - before.acknowledged;
        match finished {
            false => assert_eq!(
                (ended, after.reclaimed - before.reclaimed),
                (2, 2),
                "{step}"
            ),
            true => assert!((1..=2).contains(&ended), "{step}"),
        }
        assert_eq!(after.consumers[1].held, 0, "{step}");
        assert_eq!(after.consumers[0].held, 2, "{step}");
        adds_up(&after);

        checked(lease, sequence).finish().unwrap();
        let lease = witness.open(further.ticket()).unwrap();
        checked(lease, sequence + 100).finish().unwrap();
        assert_eq!(pool.counters().busy, 0, "{step}");
    }
    witness.close().unwrap();
    counters_once(&pool, AT_ONCE, |it| !it.consumers[0].is_attached);
    match pool
        .publisher()
        .publish(&Payload::bytes(Source::host(b"x")))
    {
        Err(PoolError::NoConsumer { consumers: 2 }) => {}
        other => panic!("{other:?}"),
    }
    let counters = pool.close(soon(5)).unwrap();
    assert_eq!(counters.published, 2 * STEPS.len() as u64);
    is_idle(&counters);
    println!("leases of a dead consumer were back after {slowest:?} at most");
}

/// Serves a pool up to a step, and waits there to be killed.
fn produces(side: &Side, words: &[&str]) {
    let [name, step] = words else {
        panic!("{words:?}");
    };
    let pool = serve(side, name, 1, 1);
    told();
    if *step != "idle" {
        for sequence in 0..3 {
            let published = publish(&pool.publisher(), sequence, LENGTH);
            println!("{}", to_hex(published.ticket()));
        }
    }
    if *step == "publishing" {
        let bytes = filled(9, LENGTH);
        let payload = Payload::bytes(Source::host(&bytes)).expires_in(Duration::from_millis(1));
        let publisher = pool.publisher().waiting_for_room(Duration::from_secs(5));
        println!("publishing");
        loop {
            let _ = publisher.publish(&payload).unwrap();
        }
    }
    println!("there");
    sits();
}

fn producer_killed(side: &Side) {
    for step in ["idle", "leases", "publishing"] {
        let name = name(step);
        let role = format!("produces|{name}|{step}");
        let mut producer = Other::with_stdin(&side.role(&role), Stdio::piped());
        let consumer = attach(side, &name, 0);
        write(&mut producer, "go");
        let tickets: Vec<Vec<u8>> = match step {
            "idle" => Vec::new(),
            _ => (0..3).map(|_| from_hex(&producer.line())).collect(),
        };
        let leases: Vec<_> = tickets
            .iter()
            .take(2)
            .map(|ticket| consumer.open(ticket).unwrap())
            .collect();
        let decoded = tickets.get(2).map(|it| consumer.decode(it).unwrap());
        producer.line();
        assert!(consumer.is_connected());
        producer.kill();
        let until = Instant::now() + AT_ONCE;
        while consumer.is_connected() {
            assert!(Instant::now() < until, "{step}");
        }
        after_the_producer(side, &consumer, &tickets, leases);
        if let Some(decoded) = decoded {
            match decoded.open() {
                Err(PoolError::ProducerGone) => {}
                other => panic!("{other:?}"),
            }
        }
        consumer.close().unwrap();
        match Attach::new(&Name::new(&name), 0).attach(&side.device) {
            Err(PoolError::Wire(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Open leases are readable in every way; nothing else works.
fn after_the_producer(side: &Side, consumer: &Consumer, tickets: &[Vec<u8>], leases: Vec<Lease>) {
    if let Some(ticket) = tickets.get(2) {
        for _ in 0..2 {
            match consumer.open(ticket) {
                Err(PoolError::ProducerGone) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(consumer.leases(), leases.len());
    for (sequence, lease) in (0..).zip(leases) {
        let mut target = side.reserve(1);
        target.map(0, side.g, &side.props()).unwrap();
        let lease = checked(lease, sequence);
        let lease = lease.copy_to(0, &mut target, 0).unwrap();
        lease.finish().unwrap();
        let mut bytes = vec![0; LENGTH];
        target.read(0, &mut bytes).unwrap();
        assert!(is_payload(sequence, &bytes));
        target.close().unwrap();
    }
    assert_eq!(consumer.leases(), 0);
}

/// Opens a ticket and keeps it, then is told of another one.
fn reads_slowly(side: &Side, words: &[&str]) {
    let consumer = attach(side, words[0], 1);
    let lease = consumer.open(&from_hex(&told())).unwrap();
    println!("open");
    match consumer.open(&from_hex(&told())) {
        Err(error @ PoolError::Ended { .. }) => println!("{error}"),
        other => panic!("{other:?}"),
    }
    assert!(!consumer.is_connected());
    lease.acknowledge();
    consumer.close().unwrap();
}

fn consumer_hangs(side: &Side) {
    let name = name("hangs");
    let pool = serve(side, &name, 2, 2);
    let witness = attach(side, &name, 0);
    let mut slow = side_with_stdin(side, &format!("reads_slowly|{name}"));
    counters_once(&pool, Duration::from_secs(20), |it| {
        it.consumers[1].is_attached
    });
    let first = publish(&pool.publisher(), 0, LENGTH);
    write(&mut slow, &to_hex(first.ticket()));
    assert_eq!(slow.line(), "open");
    checked(witness.open(first.ticket()).unwrap(), 0)
        .finish()
        .unwrap();
    let pid = slow.child.id() as i32;
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);

    // What is published meanwhile is held for it, and costs the other consumer nothing.
    let mut last = first;
    for sequence in 1..50 {
        last = publish(&pool.publisher(), sequence, LENGTH);
        checked(witness.open(last.ticket()).unwrap(), sequence)
            .finish()
            .unwrap();
    }
    let holders = pool.holders();
    let [holder] = &holders[..] else {
        panic!("{holders:?}");
    };
    assert_eq!((holder.rank, holder.slices, holder.is_open), (1, 50, true));
    assert!(!pool.evict(2, "no such rank"));
    assert!(pool.evict(1, "it does not answer"));
    let counters = counters_once(&pool, AT_ONCE, |it| it.busy == 0);
    assert!(!counters.consumers[1].is_attached);
    assert_eq!((counters.reclaimed, counters.busy), (50, 0));
    adds_up(&counters);
    assert!(!pool.evict(1, "it is gone already"));

    write(&mut slow, &to_hex(last.ticket()));
    assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
    assert_eq!(
        slow.ends(),
        "the producer ended the session: it does not answer"
    );
    // The acknowledgement of its lease came late, and freed nothing. Its unopened tickets were taken back.
    let counters = counters_once(&pool, AT_ONCE, |it| it.late == 1);
    assert_eq!((counters.reclaimed, counters.busy), (50, 0));
    let again = attach(side, &name, 1);
    let published = publish(&pool.publisher(), 77, LENGTH);
    for consumer in [&witness, &again] {
        checked(consumer.open(published.ticket()).unwrap(), 77)
            .finish()
            .unwrap();
    }
    witness.close().unwrap();
    again.close().unwrap();
    is_idle(&pool.close(soon(5)).unwrap());
}

fn side_with_stdin(side: &Side, part: &str) -> Other {
    Other::with_stdin(&side.role(part), Stdio::piped())
}
