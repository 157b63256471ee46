//! The producer: publishes, sends tickets, kills a consumer half-way, and verifies the totals.

use std::process;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Counters, ElementType, Layout, Payload, Pool, Publisher, Source};
use cuda_vmm::wire::Name;

use crate::bodies::{Bodies, HEADER, LARGEST};
use crate::children::Consumer;
use crate::machine::Machine;
use crate::{must, Outcome, CONSUMERS};

/// How long it publishes if no count is given.
const RUN: Duration = Duration::from_secs(5);
/// Time between two lines.
const LINE: Duration = Duration::from_millis(500);
/// Bytes of the pool: on a GPU, and on a simulated one.
const POOL: (usize, usize) = (512 << 20, 16 << 20);
/// The consumer that is killed.
const VICTIM: usize = 1;

/// When to stop.
#[derive(Clone, Copy)]
enum Until {
    Count(u64),
    Time(Instant),
}

pub fn run(count: Option<u64>) -> Outcome {
    let machine = Machine::find()?;
    println!("driver: {machine}");
    let device = machine.driver.device(0)?;
    let pick = |(real, simulated): (usize, usize)| match machine.simulated {
        None => real,
        Some(_) => simulated,
    };
    let mut bodies = Bodies::new(&device, pick(LARGEST))?;
    let name = format!("cuda-vmm pool example {}", process::id());
    let pool = Pool::builder(&device, pick(POOL), CONSUMERS).serve(&Name::new(&name))?;
    let mib = pool.size() >> 20;
    println!("producer {}: a pool of {mib} MiB", process::id());
    let consumers: Outcome<Vec<Consumer>> = (0..CONSUMERS)
        .map(|rank| Consumer::start(&name, rank))
        .collect();
    let mut consumers = consumers?;
    until_attached(&pool)?;

    let (sent, bytes) = publish(&pool, &mut bodies, &mut consumers, &name, count)?;
    let mut verified = Vec::new();
    for (rank, consumer) in consumers.iter_mut().enumerate() {
        let totals = consumer.finish()?;
        let all = totals.verified + totals.not_for_it == consumer.sent;
        must(all, || format!("consumer {rank} lost payloads"))?;
        let missed = rank != VICTIM && totals.verified != sent;
        must(!missed, || format!("consumer {rank} missed payloads"))?;
        verified.push(totals.verified);
    }
    // It waits until no consumer holds a slice.
    let counters = pool.close(Instant::now() + Duration::from_secs(5))?;
    println!("published {sent} payloads, {} MiB", bytes >> 20);
    println!("verified by the consumers: {verified:?}, consumer {VICTIM} since it was replaced");
    println!(
        "holds: {} acknowledged, {} reclaimed from the killed consumer, {} that it was not there for",
        counters.acknowledged, counters.reclaimed, counters.absent
    );
    is_idle(&counters)?;
    bodies.close()?;
    println!("pool: nothing lost");
    Ok(())
}

fn until_attached(pool: &Pool) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !pool.counters().consumers.iter().all(|it| it.is_attached) {
        must(Instant::now() < deadline, || {
            "the consumers do not attach".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Publishes to all consumers; how many payloads, and how many bytes.
fn publish(
    pool: &Pool,
    bodies: &mut Bodies,
    consumers: &mut [Consumer],
    name: &str,
    count: Option<u64>,
) -> Outcome<(u64, u64)> {
    let publisher = pool
        .publisher()
        .with_ready_sources()
        .waiting_for_room(Duration::from_secs(20));
    let start = Instant::now();
    let (end, half) = match count {
        Some(count) => (Until::Count(count), Until::Count(count / 2)),
        None => (Until::Time(start + RUN), Until::Time(start + RUN / 2)),
    };
    let is_over = |until, sent| match until {
        Until::Count(count) => sent >= count,
        Until::Time(at) => Instant::now() >= at,
    };
    let (mut sent, mut bytes, mut replaced) = (0_u64, 0_u64, false);
    let (mut line, mut bytes_then) = (start, 0);
    while !is_over(end, sent) {
        if !replaced && is_over(half, sent) {
            replaced = true;
            let killed = consumers[VICTIM].id();
            consumers[VICTIM].kill()?;
            consumers[VICTIM] = Consumer::start(name, VICTIM)?;
            let fresh = consumers[VICTIM].id();
            println!("killed consumer {VICTIM}, process {killed}: process {fresh} takes its rank");
        }
        let (ticket, size) = publish_one(&publisher, bodies, sent)?;
        for consumer in consumers.iter_mut() {
            consumer.send(&ticket)?;
        }
        sent += 1;
        bytes += size as u64;
        let since = line.elapsed();
        if since >= LINE {
            let rate = (bytes - bytes_then) as f64 / since.as_secs_f64() / (1 << 20) as f64;
            progress(start.elapsed(), sent, rate, &pool.counters());
            (line, bytes_then) = (Instant::now(), bytes);
        }
    }
    must(replaced, || {
        "too few payloads to kill a consumer".to_owned()
    })?;
    Ok((sent, bytes))
}

/// A header and a body, packed into one slice: its ticket, and its bytes.
fn publish_one(
    publisher: &Publisher,
    bodies: &mut Bodies,
    sequence: u64,
) -> Outcome<(Vec<u8>, usize)> {
    let (header, body, length) = bodies.next(sequence)?;
    let u8s = |length: usize| Layout::new(ElementType::U8, &[length]);
    let payload = Payload::tensor(Source::host(&header), u8s(HEADER)?).and(body, u8s(length)?);
    let published = publisher.publish(&payload)?;
    Ok((published.into_ticket(), HEADER + length))
}

fn progress(time: Duration, sent: u64, rate: f64, counters: &Counters) {
    println!(
        "{:4.1} s: {sent:7} published, {rate:8.1} MiB/s, {:4} slices and {:3} MiB in use",
        time.as_secs_f64(),
        counters.slices,
        counters.busy >> 20
    );
}

/// No slice is in use, and every hold has ended in one way.
fn is_idle(counters: &Counters) -> Outcome {
    let holds = counters.published * CONSUMERS as u64;
    let ended = counters.acknowledged
        + counters.covered
        + counters.cancelled_holds
        + counters.expired
        + counters.reclaimed;
    must(
        counters.busy == 0 && counters.largest_free == counters.size,
        || format!("slices are still in use: {counters:?}"),
    )?;
    must(ended + counters.absent == holds, || {
        format!("holds are missing: {counters:?}")
    })
}
