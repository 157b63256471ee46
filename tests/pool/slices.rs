//! Slices: how parts are packed, which room is taken, and what is told where there is none.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{
    Consumer, ElementType, Exhausted, Layout, Payload, Pool, PoolError, Published, Publisher,
    Source,
};

use crate::ground::{
    all_free, counters, fails, held, now, pattern, publish, read, soon, until, Ground,
};
use crate::Case;

pub const CASES: &[Case] = &[
    ("parts are packed, aligned and shaped", packed),
    ("strided rows are published one behind the other", strided),
    ("device memory is published by its address", device_memory),
    ("a batch is published, or nothing of it", batches),
    ("the smallest piece that fits is taken", best_fit),
    ("free pieces merge in any order", merging),
    ("there are no more slices than were asked for", slice_limit),
    ("a pool without room tells who holds it", exhausted),
    ("a publish waits for room", waiting_for_room),
    ("a reused slice begins without an acknowledgement", reused),
    (
        "a sequence of random publishes keeps the books",
        random_sizes,
    ),
];

pub const SIMULATED: &[Case] = &[("100,000 live slices are as fast as 100", many_slices)];

fn layout(element: ElementType, shape: &[usize]) -> Layout {
    Layout::new(element, shape).unwrap()
}

fn packed(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let parts = [
        (pattern(1, 3), layout(ElementType::U8, &[3])),
        (pattern(2, 24), layout(ElementType::F32, &[2, 3])),
        (pattern(3, 1), layout(ElementType::BOOL, &[])),
        (pattern(4, 32), layout(ElementType::C128, &[2, 1])),
        (pattern(5, 300), layout(ElementType::F16, &[1, 150])),
    ];
    let mut payload = Payload::bytes(Source::host(&parts[0].0));
    for (bytes, layout) in &parts[1..] {
        payload = payload.and(Source::host(bytes), *layout);
    }
    let published = pool.publisher().publish(&payload).unwrap();
    let ticket = consumers[0].decode(published.ticket()).unwrap();
    let offsets: Vec<usize> = ticket.parts().iter().map(|part| part.offset()).collect();
    // Each at a multiple of 16.
    assert_eq!(offsets, [0, 16, 48, 64, 96]);
    assert_eq!(ticket.size(), 396);
    assert_eq!(pool.counters().busy, 512);
    let mut lease = ticket.open().unwrap();
    assert_eq!((lease.size(), lease.parts().len()), (396, 5));
    for (index, (bytes, layout)) in parts.iter().enumerate() {
        assert_eq!(lease.parts()[index].layout(), layout);
        let view = lease.view(index).unwrap();
        assert_eq!(view.address() % layout.element().bytes() as u64, 0);
        assert_eq!(view.size(), bytes.len());
        let mut found = vec![0; bytes.len()];
        lease = lease.read(index, &mut found).unwrap();
        assert_eq!(found, *bytes, "part {index}");
    }
    // All parts are one lease.
    assert_eq!(consumers[0].leases(), 1);
    lease.finish().unwrap();
    all_free(&pool);
}

fn strided(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let mut memory = ground.producer.memory(ground.g);
    let source = pattern(7, 5000);
    memory.write(100, &source).unwrap();
    let view = memory.view(100, 5000).unwrap();
    for (pitch, width) in [
        (100, 10),
        (100, 100),
        (7, 3),
        (4999, 1),
        (1, 1),
        (5000, 5000),
    ] {
        let rows = (5000 - width) / pitch + 1;
        let expected: Vec<u8> = (0..rows)
            .flat_map(|row| &source[row * pitch..row * pitch + width])
            .copied()
            .collect();
        let shape = layout(ElementType::U8, &[rows, width]);
        let of_view = Source::rows(&view, pitch, width).unwrap();
        let by_address = unsafe { Source::device_rows(view.address(), pitch, width, rows) };
        for source in [of_view, by_address] {
            let payload = Payload::tensor(source, shape)
                .and(Source::host(b"after"), layout(ElementType::U8, &[5]));
            let published = pool.publisher().publish(&payload).unwrap();
            let lease = consumers[0].open(published.ticket()).unwrap();
            assert_eq!(lease.parts()[0].layout(), &shape);
            let (mut found, mut after) = (vec![0; rows * width], [0; 5]);
            let lease = lease.read(0, &mut found).unwrap();
            lease.read(1, &mut after).unwrap().finish().unwrap();
            assert!(found == expected, "rows of {width} at {pitch}");
            assert_eq!(&after, b"after");
            all_free(&pool);
        }
    }
    memory.close().unwrap();
}

fn device_memory(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let mut memory = ground.producer.memory(ground.g);
    let source = pattern(8, 70_000);
    memory.write(5, &source).unwrap();
    let view = memory.view(5, source.len()).unwrap();
    let by_address = unsafe { Source::device(view.address(), view.size()) };
    for publisher in [pool.publisher(), pool.publisher().with_ready_sources()] {
        for source_of in [Source::view(&view), by_address] {
            let payload = Payload::bytes(source_of);
            let published = publisher.publish(&payload).unwrap();
            assert!(read(&consumers[0], published.ticket()) == source);
            let begun = publisher.begin(&[payload.clone(), payload]).unwrap();
            for published in begun.finish().unwrap() {
                assert!(read(&consumers[0], published.ticket()) == source);
            }
            all_free(&pool);
        }
    }
    memory.close().unwrap();
}

fn sizes(publisher: &Publisher, sizes: &[usize]) -> Result<Vec<Published>, PoolError> {
    let bytes: Vec<Vec<u8>> = sizes.iter().map(|size| vec![7; *size]).collect();
    let payloads: Vec<Payload<'_>> = bytes
        .iter()
        .map(|bytes| Payload::bytes(Source::host(bytes)))
        .collect();
    publisher.publish_all(&payloads)
}

fn room(pool: &Pool) -> (usize, usize, usize) {
    let counters = pool.counters();
    (counters.busy, counters.largest_free, counters.slices)
}

#[track_caller]
fn is_exhausted<T: std::fmt::Debug>(result: Result<T, PoolError>) -> Exhausted {
    match result {
        Err(PoolError::Exhausted(exhausted)) => *exhausted,
        other => panic!("{other:?}"),
    }
}

fn batches(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    let size = pool.size();
    let batch = sizes(&publisher, &[1, 256, 257, 1000]).unwrap();
    assert_eq!(room(&pool), (256 + 256 + 512 + 1024, size - 2048, 4));
    // The k-th does not fit; the free space is exactly as before.
    let before = (counters(&pool), room(&pool));
    let free = size - 2048;
    for k in 0..4 {
        let mut batch = [256; 4];
        batch[k] = free - 512;
        let told = is_exhausted(sizes(&publisher, &batch));
        assert!(told.needed == batch[k] || told.needed == 256, "{told:?}");
        assert_eq!((counters(&pool), room(&pool)), before);
        let payloads = [1, 1, free].map(|size| vec![0; size]);
        let payloads = payloads
            .each_ref()
            .map(|bytes| Payload::bytes(Source::host(bytes)));
        is_exhausted(publisher.begin(&payloads).map(drop));
        assert_eq!((counters(&pool), room(&pool)), before);
    }
    for published in &batch {
        let bytes = read(&consumers[0], published.ticket());
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
    all_free(&pool);
    // A batch of all there is.
    let half = size / 2;
    let all = sizes(&publisher, &[half, half - 256, 256]).unwrap();
    assert_eq!(room(&pool), (size, 0, 3));
    let ids: Vec<_> = all.iter().map(Published::id).collect();
    assert_eq!(publisher.cancel_all(&ids).unwrap(), 0);
    assert_eq!(pool.counters().cancelled, 3);
    all_free(&pool);
}

fn best_fit(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    // Holes of 1024, 512 and 768 bytes between slices that stay.
    let taken = sizes(&publisher, &[1024, 256, 512, 256, 768, 256]).unwrap();
    for hole in [0, 2, 4] {
        let _ = read(&consumers[0], taken[hole].ticket());
    }
    let size = pool.size();
    assert_eq!(room(&pool), (768, size - 3072, 3));
    let place = |bytes: &[u8]| {
        let published = publish(&publisher, bytes);
        let lease = consumers[0].open(published.ticket()).unwrap();
        let address = lease.view(0).unwrap().address();
        (address, lease)
    };
    let (kept, first) = {
        let lease = consumers[0].open(taken[1].ticket()).unwrap();
        let address = lease.view(0).unwrap().address() - 1024;
        (lease, address)
    };
    let (at, one) = place(&[1; 700]);
    assert_eq!(at - first, 1024 + 256 + 512 + 256, "768 bytes are best");
    let (at, two) = place(&[1; 512]);
    assert_eq!(at - first, 1024 + 256, "512 bytes are best");
    let (at, three) = place(&[1; 257]);
    assert_eq!(at - first, 0, "1024 bytes are all that is left");
    let (at, four) = place(&[1; 512]);
    assert_eq!(at - first, 512, "the rest of them");
    drop((kept, one, two, three, four));
    for index in [3, 5] {
        let _ = read(&consumers[0], taken[index].ticket());
    }
    all_free(&pool);
}

/// A generator of small numbers.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

fn merging(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    for round in 0..24 {
        let mut dice = Dice::new(round + 1);
        let many: Vec<usize> = (0..40).map(|_| 1 + dice.below(40_000)).collect();
        let busy: usize = many.iter().map(|size| size.next_multiple_of(256)).sum();
        let mut live = sizes(&publisher, &many).unwrap();
        assert_eq!(pool.counters().busy, busy);
        while !live.is_empty() {
            let at = match round {
                0 => 0,
                1 => live.len() - 1,
                2 => live.len() / 2,
                _ => dice.below(live.len()),
            };
            let one = live.remove(at);
            match dice.below(3) {
                0 => drop(read(&consumers[0], one.ticket())),
                1 => drop(consumers[0].decode(one.ticket()).unwrap()),
                _ => assert_eq!(publisher.cancel(one.id()).unwrap(), 0),
            }
        }
        all_free(&pool);
    }
}

fn slice_limit(ground: &Ground) {
    let pool = ground.builder(1, 1).slices(3).serve(&ground.name).unwrap();
    let consumer = ground.attach(0);
    let publisher = pool.publisher();
    let first = publish(&publisher, b"1");
    let _two = sizes(&publisher, &[1, 1]).unwrap();
    let size = pool.size();
    let before = counters(&pool);
    let told = is_exhausted(publisher.publish(&Payload::bytes(Source::host(b"4"))));
    assert_eq!((told.needed, told.busy, told.free), (1, 768, size - 768));
    assert_eq!((told.largest_free, told.free_slices), (size - 768, 0));
    assert_eq!(told.oldest.as_ref().unwrap().rank, 0);
    assert_eq!(counters(&pool), before);
    // One goes, one comes; two do not.
    assert_eq!(read(&consumer, first.ticket()), b"1");
    let told = is_exhausted(sizes(&publisher, &[1, 1]));
    assert_eq!((told.needed, told.busy, told.free_slices), (1, 768, 0));
    // The first slice, and what lies behind all, are free.
    assert_eq!(room(&pool), (512, size - 768, 2));
    let again = publish(&publisher, b"5");
    fails(
        consumer.open(first.ticket()),
        PoolError::Stale {
            slot: 0,
            generation: 1,
            current: 3,
        },
    );
    assert_eq!(read(&consumer, again.ticket()), b"5");
}

fn exhausted(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 3);
    let publisher = pool.publisher();
    let size = pool.size();
    let part = size / 4;
    let first = publish(&publisher, &vec![1; part]);
    let leases: Vec<_> = consumers[..2]
        .iter()
        .map(|consumer| consumer.open(first.ticket()).unwrap())
        .collect();
    thread::sleep(Duration::from_millis(20));
    let second = publish(&publisher, &vec![2; part]);
    let third = publish(&publisher, &vec![3; part]);
    // The second is free: a quarter lies alone, and a quarter behind.
    assert_eq!(publisher.cancel(second.id()).unwrap(), 0);
    let (before, snapshots) = (counters(&pool), ground.snapshots());
    let whole = vec![4; part + 1];
    let error = publisher
        .publish(&Payload::bytes(Source::host(&whole)))
        .unwrap_err();
    assert!(error.is_exhausted());
    let words = error.to_string();
    let told = is_exhausted::<()>(Err(error));
    assert_eq!(
        (told.needed, told.busy, told.free, told.largest_free),
        (part + 1, 2 * part, 2 * part, part)
    );
    assert_eq!(told.free_slices, (1 << 16) - 2);
    let oldest = told.oldest.unwrap();
    assert_eq!((oldest.rank, oldest.slices, oldest.bytes), (0, 1, part));
    assert!(oldest.since >= Duration::from_millis(20), "{oldest:?}");
    assert!(oldest.is_open && oldest.is_attached);
    assert!(words.contains("longest held by consumer 0 for"), "{words}");
    assert_eq!((counters(&pool), ground.snapshots()), (before, snapshots));
    let holders = pool.holders();
    assert_eq!(holders.len(), 3);
    for (rank, holder) in holders.iter().enumerate() {
        let found = (holder.rank, holder.slices, holder.bytes);
        assert_eq!(found, (rank, 2, 2 * part));
        assert_eq!(holder.is_open, rank < 2);
    }
    // The one that was opened by nobody else goes; the oldest is another consumer's then.
    drop(leases);
    let told = is_exhausted(publisher.publish(&Payload::bytes(Source::host(&whole))));
    let oldest = told.oldest.unwrap();
    assert_eq!((oldest.rank, oldest.is_open), (2, false));
    for consumer in &consumers {
        drop(consumer.decode(first.ticket()).unwrap());
        drop(consumer.decode(third.ticket()).unwrap());
    }
    all_free(&pool);
}

fn waiting_for_room(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let all = vec![1; pool.size()];
    let full = publish(&pool.publisher(), &all);
    let publisher = pool.publisher().waiting_for_room(Duration::from_millis(60));
    // Nobody acknowledges.
    let (before, start) = (counters(&pool), Instant::now());
    let told = is_exhausted(publisher.publish(&Payload::bytes(Source::host(b"no room"))));
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(60), "{waited:?}");
    assert_eq!((told.needed, told.busy, told.free), (7, pool.size(), 0));
    assert_eq!(counters(&pool), before);
    // Somebody does.
    let publisher = pool.publisher().waiting_for_room(Duration::from_secs(20));
    let lease = consumers[0].open(full.ticket()).unwrap();
    let published = thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(30));
            lease.acknowledge();
        });
        publish(&publisher, b"room")
    });
    assert_eq!(read(&consumers[0], published.ticket()), b"room");
    // Several wait for the same room: each gets it in turn.
    thread::scope(|scope| {
        let (send, tickets) = mpsc::channel();
        for _ in 0..4 {
            let (publisher, all, send) = (&publisher, &all, send.clone());
            scope.spawn(move || send.send(publish(publisher, all)).unwrap());
        }
        drop(send);
        for published in tickets {
            assert_eq!(room(&pool), (pool.size(), 0, 1));
            assert_eq!(read(&consumers[0], published.ticket()), all);
        }
    });
    all_free(&pool);
    // A pool that closes lets them go.
    let full = publish(&publisher, &all);
    let closing = thread::scope(|scope| {
        let waiting = scope.spawn(|| publisher.publish(&Payload::bytes(Source::host(b"late"))));
        thread::sleep(Duration::from_millis(30));
        let unclosed = pool.close(now() + Duration::from_millis(50)).unwrap_err();
        fails(waiting.join().unwrap(), PoolError::Closing);
        unclosed
    });
    assert!(
        matches!(closing.error, PoolError::StillHeld { .. }),
        "{closing}"
    );
    assert_eq!(read(&consumers[0], full.ticket()), all);
    closing.pool.close(soon()).unwrap();
}

fn reused(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 3);
    let publisher = pool.publisher();
    for round in 0..300_u64 {
        let bytes = pattern(round, 100);
        let published = publish(&publisher, &bytes);
        // One slot, over and over: no acknowledgement of the round before stands.
        let mut expected = [1; 3];
        assert_eq!(held(&pool), expected);
        for step in 0..3 {
            let rank = (round as usize + step) % 3;
            assert_eq!(read(&consumers[rank], published.ticket()), bytes);
            expected[rank] = 0;
            assert_eq!(held(&pool), expected);
        }
        all_free(&pool);
    }
    let counters = pool.counters();
    assert_eq!((counters.published, counters.acknowledged), (300, 900));
    // The last ticket is of generation 300.
    let published = publish(&publisher, b"last");
    let stale = publisher.cancel(published.id());
    assert_eq!(stale.unwrap(), 0);
    let next = publish(&publisher, b"next");
    fails(
        consumers[0].open(published.ticket()),
        PoolError::Stale {
            slot: 0,
            generation: 301,
            current: 302,
        },
    );
    drop(next);
}

fn random_sizes(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let mut dice = Dice::new(99);
    let mut live: Vec<(Published, u64, usize, [bool; 2])> = Vec::new();
    let mut refusals = 0;
    for seed in 0..1000 {
        let size = match dice.below(15) {
            0 => 1 + dice.below(pool.size() / 2),
            _ => 1 + dice.below(20_000),
        };
        let bytes = pattern(seed, size);
        let busy: usize = live
            .iter()
            .map(|(_, _, size, _)| size.next_multiple_of(256))
            .sum();
        match publisher.publish(&Payload::bytes(Source::host(&bytes))) {
            Ok(published) => live.push((published, seed, size, [true; 2])),
            Err(PoolError::Exhausted(told)) => {
                assert_eq!((told.needed, told.busy), (size, busy));
                assert!(told.largest_free < size.next_multiple_of(256));
                refusals += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
        while live.len() > 12 || (!live.is_empty() && dice.below(3) == 0) {
            let at = dice.below(live.len());
            let rank = dice.below(2);
            let (published, seed, size, holds) = &mut live[at];
            if holds[rank] {
                let found = read(&consumers[rank], published.ticket());
                assert!(found == pattern(*seed, *size), "slice of seed {seed}");
                holds[rank] = false;
            }
            if *holds == [false; 2] {
                drop(live.remove(at));
            }
        }
    }
    assert!(refusals > 0);
    for (published, _, _, holds) in live {
        for (consumer, _) in consumers.iter().zip(holds).filter(|(_, holds)| *holds) {
            let _ = read(consumer, published.ticket());
        }
    }
    all_free(&pool);
}

/// The time of a publish, at its median.
fn typical(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn many_slices(ground: &Ground) {
    let live = |slices: usize| -> (Pool, Consumer, Duration, Duration) {
        let name = crate::ground::fresh_name();
        let pool = ground.builder(32, 1).slices(110_000).serve(&name).unwrap();
        let consumer = Consumer::attach(ground.consumer.device(), &name, 0).unwrap();
        let publisher = pool.publisher();
        let bytes = [9; 100];
        let payloads = vec![Payload::bytes(Source::host(&bytes)); 1000];
        let mut left = slices;
        while left > 0 {
            let now = left.min(1000);
            drop(publisher.publish_all(&payloads[..now]).unwrap());
            left -= now;
        }
        assert_eq!(held(&pool), [slices]);
        let (mut publishes, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..2000 {
            let start = Instant::now();
            let published = publish(&publisher, &bytes);
            publishes.push(start.elapsed());
            let start = Instant::now();
            assert_eq!(read(&consumer, published.ticket()), bytes);
            reads.push(start.elapsed());
        }
        assert!(pool.counters().published == slices as u64 + 2000);
        until(|| held(&pool) == [slices]);
        (pool, consumer, typical(&mut publishes), typical(&mut reads))
    };
    let (few, _one, quick, read_quick) = live(100);
    let (many, _two, slow, read_slow) = live(100_000);
    println!(
        "publish with 100 live slices {quick:?}, with 100,000 {slow:?}; \
         read {read_quick:?} and {read_slow:?}"
    );
    // Measured on an unoptimised build, beside other work.
    assert!(
        slow < quick * 5 + Duration::from_micros(50),
        "{quick:?}, {slow:?}"
    );
    // The end: everything goes with the consumer.
    drop((_one, _two));
    for pool in [few, many] {
        until(|| held(&pool) == [0]);
        all_free(&pool);
        pool.close(soon()).unwrap();
    }
}
