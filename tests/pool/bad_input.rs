//! Bad input: an error of its own with the values, and nothing changed for anybody.

use std::time::Duration;

use cuda_vmm::pool::{
    Attach, Consumer, ElementType, Layout, LayoutError, Payload, Pool, PoolBuilder, PoolError,
    Publisher, Scope, Source, TicketError,
};
use cuda_vmm::sys::Call;
use cuda_vmm::{Error, Location};

use crate::ground::{
    all_free, counters, fails, fresh_name, held, now, pattern, publish, read, soon, Ground,
};
use crate::Case;

pub const CASES: &[Case] = &[
    ("a pool that cannot be is refused", pools),
    ("a pool above the device is refused", above_the_device),
    ("the most consumers there can be", most_consumers),
    ("what cannot be published is refused", payloads),
    ("what can never fit is refused at once", never_fits),
    ("rows that do not fit are refused", rows),
    ("bytes that are no ticket are refused", tickets),
    ("a ticket of another pool is refused", another_pool),
    (
        "a ticket of an older generation is refused",
        older_generation,
    ),
    ("a ticket is opened once", opened_twice),
    ("nobody acknowledges beyond the allowed scope", scopes),
    ("a rank out of range or taken is refused", ranks),
    ("a slice of another pool is not cancelled", foreign_slices),
    ("parts and targets that do not fit", parts),
];

pub const SIMULATED: &[Case] = &[("a refused pool calls no driver", refused_without_calls)];

/// What a builder is told, and the error of it.
type Told = (fn(PoolBuilder) -> PoolBuilder, PoolError);

fn pools(ground: &Ground) {
    let before = ground.snapshots();
    let device = ground.producer.device();
    let too_small = |size| PoolError::TooSmall {
        size,
        granularity: ground.g,
    };
    for size in [0, 1, ground.g - 1] {
        fails(
            Pool::builder(device, size, 1).serve(&ground.name),
            too_small(size),
        );
    }
    for count in [0, 1025, usize::MAX] {
        let refused = ground.builder(1, count).serve(&ground.name);
        fails(refused, PoolError::ConsumerCount { count, most: 1024 });
    }
    for count in [0, (1 << 24) + 1, usize::MAX] {
        let refused = ground.builder(1, 2).slices(count).serve(&ground.name);
        let most = 1 << 24;
        fails(refused, PoolError::SliceCount { count, most });
    }
    let outside = |start, end| PoolError::GroupOutOfRange {
        start,
        end,
        consumers: 4,
    };
    let groups: [Told; 7] = [
        (|it| it.group(2..2), outside(2, 2)),
        #[allow(clippy::reversed_empty_ranges)]
        (|it| it.group(3..1), outside(3, 1)),
        (|it| it.group(2..5), outside(2, 5)),
        (|it| it.group(4..5), outside(4, 5)),
        (|it| it.group(usize::MAX - 1..usize::MAX), {
            outside(usize::MAX - 1, usize::MAX)
        }),
        (
            |it| it.group(0..2).group(1..3),
            PoolError::GroupsOverlap { rank: 1 },
        ),
        (
            |it| it.group(2..4).group(0..4),
            PoolError::GroupsOverlap { rank: 2 },
        ),
    ];
    for (tell, expected) in groups {
        fails(tell(ground.builder(1, 4)).serve(&ground.name), expected);
    }
    assert_eq!(ground.snapshots(), before);
    // The name is free.
    ground.serve(1, 4).close(soon()).unwrap();
}

fn refused_without_calls(ground: &Ground) {
    ground.producer.sim().clear_log();
    assert!(ground.builder(1, 0).serve(&ground.name).is_err());
    assert!(ground.builder(1, 1).slices(0).serve(&ground.name).is_err());
    assert!(ground
        .builder(1, 1)
        .group(0..2)
        .serve(&ground.name)
        .is_err());
    assert_eq!(ground.producer.log(), []);
    assert!(ground.builder(0, 1).serve(&ground.name).is_err());
    let asked = ground.producer.log();
    let asks = |call: &Call| *call == Call::cuMemGetAllocationGranularity;
    assert!(asked.iter().all(asks), "{asked:?}");
}

fn above_the_device(ground: &Ground) {
    let device = ground.producer.device();
    let size = device.total_memory().unwrap() * 2 / ground.g * ground.g;
    let before = ground.snapshots();
    fails(
        Pool::builder(device, size, 1).serve(&ground.name),
        PoolError::Memory(Error::OutOfMemory {
            size,
            location: Location::Device(0),
        }),
    );
    assert_eq!(ground.snapshots(), before);
    ground.serve(1, 1).close(soon()).unwrap();
}

fn most_consumers(ground: &Ground) {
    let pool = ground
        .builder(1, 1024)
        .slices(64)
        .serve(&ground.name)
        .unwrap();
    let last = ground.attach(1023);
    let publisher = pool.publisher();
    let published = publish(&publisher, b"for all");
    assert_eq!(held(&pool), [1; 1024]);
    assert_eq!(read(&last, published.ticket()), b"for all");
    assert_eq!(held(&pool)[1023], 0);
    assert_eq!(publisher.cancel(published.id()).unwrap(), 0);
    all_free(&pool);
    last.close().unwrap();
    pool.close(soon()).unwrap();
}

/// What is refused changes nothing.
#[track_caller]
fn refused<T>(pool: &Pool, what: Result<T, PoolError>, expected: PoolError) {
    fails(what, expected);
    all_free(pool);
    assert_eq!(pool.counters().published, 0);
}

fn layout(element: ElementType, shape: &[usize]) -> Layout {
    Layout::new(element, shape).unwrap()
}

fn payloads(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let publisher = pool.publisher();
    let (calls, before) = (ground.calls(), ground.snapshots());
    let eight = [1; 8];
    let bytes = Source::host(&eight);
    let u8s = layout(ElementType::U8, &[8]);
    let one = |payload: &Payload<'_>, expected| {
        refused(&pool, publisher.publish(payload), expected);
    };
    one(
        &Payload::bytes(Source::host(&[])),
        PoolError::Empty { part: 0 },
    );
    one(
        &Payload::bytes(bytes).and(Source::host(&[]), u8s),
        PoolError::Empty { part: 1 },
    );
    let no_rows = unsafe { Source::device_rows(0x1000, 8, 8, 0) };
    one(&Payload::bytes(no_rows), PoolError::Empty { part: 0 });
    for shape in [&[7][..], &[9], &[3, 3], &[]] {
        let layout = layout(ElementType::U8, shape);
        let error = LayoutError::Length { layout, length: 8 };
        one(
            &Payload::tensor(bytes, layout),
            PoolError::Layout {
                part: 0,
                error: error.clone(),
            },
        );
        one(
            &Payload::bytes(bytes).and(bytes, layout),
            PoolError::Layout { part: 1, error },
        );
    }
    let mut many = Payload::bytes(bytes);
    for _ in 0..4096 {
        many = many.and(bytes, u8s);
    }
    one(
        &many,
        PoolError::PartCount {
            count: 4097,
            most: 4096,
        },
    );
    // One of a batch: none is published, by either way.
    let batch = [Payload::bytes(bytes), Payload::bytes(Source::host(&[]))];
    let expected = || PoolError::Empty { part: 0 };
    refused(&pool, publisher.publish_all(&batch), expected());
    refused(&pool, publisher.begin(&batch), expected());
    assert_eq!((ground.calls(), ground.snapshots()), (calls, before));
    assert_eq!(publisher.publish_all(&[]).unwrap(), []);
    all_free(&pool);
    drop(consumers);
}

/// Device memory that is never read: the publish is refused before.
fn phantom(size: usize) -> Source<'static> {
    unsafe { Source::device(0x1000, size) }
}

fn never_fits(ground: &Ground) {
    let pool = ground.builder(1, 1).slices(4).serve(&ground.name).unwrap();
    let consumer = ground.attach(0);
    let size = pool.size();
    // What can never fit is not waited for.
    let patient = pool.publisher().waiting_for_room(Duration::from_secs(60));
    let publisher = pool.publisher();
    let (calls, before) = (ground.calls(), ground.snapshots());
    let start = now();
    let too_large = |needed| PoolError::TooLarge { needed, pool: size };
    for publisher in [&publisher, &patient] {
        let one = |payload: Payload<'_>, needed| {
            fails(publisher.publish(&payload), too_large(needed));
            fails(publisher.begin(&[payload]).map(drop), too_large(needed));
        };
        one(Payload::bytes(phantom(size + 1)), size + 1);
        one(Payload::bytes(phantom(usize::MAX)), usize::MAX);
        let endless = unsafe { Source::device_rows(0x1000, 1 << 40, 1 << 40, 1 << 40) };
        one(Payload::bytes(endless), usize::MAX);
        // A pack, of which each part fits: the second part begins at a multiple of 16.
        let half = size / 2 + 1;
        let packed = Payload::bytes(phantom(half)).and(phantom(half), Layout::bytes(half).unwrap());
        one(packed, half + 15 + half);
        let all = Layout::bytes(size).unwrap();
        one(
            Payload::bytes(Source::host(b"x")).and(phantom(size), all),
            16 + size,
        );
        // A batch, of which each payload fits; and one that fits but for the rounding.
        let halves = [0; 2].map(|_| Payload::bytes(phantom(half)));
        let rounded = half.next_multiple_of(256);
        fails(publisher.publish_all(&halves), too_large(2 * rounded));
        let exact = [size / 2 - 1, size / 2 - 255, 1].map(|size| Payload::bytes(phantom(size)));
        fails(publisher.publish_all(&exact), too_large(size + 256));
        let wholes = [0; 2].map(|_| Payload::bytes(phantom(size)));
        fails(publisher.publish_all(&wholes), too_large(2 * size));
        // More slices than the pool has.
        let five = [0; 5].map(|_| Payload::bytes(phantom(1)));
        fails(
            publisher.publish_all(&five),
            PoolError::TooManySlices { count: 5, most: 4 },
        );
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!((ground.calls(), ground.snapshots()), (calls, before));
    all_free(&pool);
    // All of the pool at once does fit.
    let whole = pattern(1, size);
    let published = publish(&publisher, &whole);
    assert!(read(&consumer, published.ticket()) == whole);
    all_free(&pool);
}

fn rows(ground: &Ground) {
    let memory = ground.producer.memory(ground.g);
    let view = memory.view(0, 100).unwrap();
    let refused = |pitch, width, rows| {
        fails(
            Source::rows(&view, pitch, width),
            PoolError::Rows {
                width,
                pitch,
                rows,
                size: 100,
            },
        );
    };
    refused(0, 10, 0);
    refused(10, 101, 0);
    refused(9, 10, 11);
    refused(10, 0, 11);
    refused(usize::MAX, usize::MAX, 0);
    assert!(Source::rows(&view, 90, 10).is_ok());
    assert!(Source::rows(&view, usize::MAX, 100).is_ok());
    memory.close().unwrap();
}

fn tickets(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let layout = layout(ElementType::U16, &[2, 2]);
    let published = publisher
        .publish(&Payload::bytes(Source::host(b"first")).and(Source::host(b"12345678"), layout))
        .unwrap();
    let ticket = published.ticket();
    let (before, calls) = (counters(&pool), ground.calls());
    let consumer = &consumers[0];
    let refused = |bytes: &[u8], expected: &TicketError| {
        let expected = || PoolError::Ticket(expected.clone());
        fails(consumer.decode(bytes), expected());
        fails(consumer.open(bytes), expected());
    };
    for length in 0..ticket.len() {
        let least = 59;
        let expected = match length < least {
            true => TicketError::Truncated { length, least },
            false => TicketError::Altered,
        };
        refused(&ticket[..length], &expected);
    }
    refused(&[ticket, &[0]].concat(), &TicketError::Altered);
    for at in 0..ticket.len() {
        for change in [1, 0x80, 0xff] {
            let mut altered = ticket.to_vec();
            altered[at] ^= change;
            let mut id = [0; 16];
            id.copy_from_slice(&altered[5..21]);
            let expected = match at {
                0..4 => TicketError::NotATicket {
                    found: [altered[0], altered[1], altered[2], altered[3]],
                },
                4 => TicketError::Version {
                    found: altered[4],
                    known: 1,
                },
                5..21 => TicketError::OtherPool {
                    found: cuda_vmm::pool::PoolId::from_bytes(id),
                    expected: pool.id(),
                },
                _ => TicketError::Altered,
            };
            refused(&altered, &expected);
        }
    }
    assert_eq!((counters(&pool), ground.calls()), (before, calls));
    for consumer in &consumers {
        assert_eq!(read(consumer, ticket), b"first");
    }
    all_free(&pool);
}

fn another_pool(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let name = fresh_name();
    let other = ground.builder(1, 1).serve(&name).unwrap();
    let stranger = Consumer::attach(ground.consumer.device(), &name, 0).unwrap();
    // The same slot and generation in both.
    let mine = publish(&pool.publisher(), b"mine");
    let theirs = publish(&other.publisher(), b"theirs");
    let (before, others) = (counters(&pool), counters(&other));
    fails(
        consumers[0].open(theirs.ticket()),
        PoolError::Ticket(TicketError::OtherPool {
            found: other.id(),
            expected: pool.id(),
        }),
    );
    fails(
        stranger.open(mine.ticket()),
        PoolError::Ticket(TicketError::OtherPool {
            found: pool.id(),
            expected: other.id(),
        }),
    );
    assert_eq!((counters(&pool), counters(&other)), (before, others));
    assert_eq!(read(&consumers[0], mine.ticket()), b"mine");
    assert_eq!(read(&stranger, theirs.ticket()), b"theirs");
}

fn older_generation(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let publisher = pool.publisher();
    let old = publish(&publisher, b"old");
    // One of them keeps the old ticket decoded.
    let kept = consumers[1].decode(old.ticket()).unwrap();
    assert_eq!(publisher.cancel(old.id()).unwrap(), 0);
    let new = publish(&publisher, b"new");
    let before = counters(&pool);
    let stale = || PoolError::Stale {
        slot: 0,
        generation: 1,
        current: 2,
    };
    fails(consumers[0].open(old.ticket()), stale());
    fails(kept.open(), stale());
    drop(consumers[0].decode(old.ticket()).unwrap());
    assert_eq!(publisher.cancel(old.id()).unwrap(), 0);
    assert_eq!(counters(&pool), before);
    for consumer in &consumers {
        assert_eq!(read(consumer, new.ticket()), b"new");
    }
    all_free(&pool);
}

fn opened_twice(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let published = publish(&pool.publisher(), b"once");
    let ticket = published.ticket();
    let lease = consumers[0].open(ticket).unwrap();
    let before = counters(&pool);
    fails(
        consumers[0].open(ticket),
        PoolError::AlreadyOpen { slot: 0 },
    );
    // A copy of the ticket that is dropped gives nothing back that is open.
    drop(consumers[0].decode(ticket).unwrap());
    assert_eq!(counters(&pool), before);
    assert_eq!(consumers[0].leases(), 1);
    let mut bytes = [0; 4];
    lease.read(0, &mut bytes).unwrap().acknowledge();
    assert_eq!(&bytes, b"once");
    fails(
        consumers[0].open(ticket),
        PoolError::AlreadyAcknowledged { slot: 0 },
    );
    assert_eq!(held(&pool), [0, 1]);
    assert_eq!(read(&consumers[1], ticket), b"once");
    all_free(&pool);
    // The slice is free, and the old ticket opens nothing.
    fails(
        consumers[1].open(ticket),
        PoolError::AlreadyAcknowledged { slot: 0 },
    );
}

fn scopes(ground: &Ground) {
    let cases = [
        (Scope::Own, vec![Scope::Group, Scope::All]),
        (Scope::Group, vec![Scope::All]),
        (Scope::All, vec![]),
    ];
    for (widest, refused) in cases {
        let builder = ground.builder(1, 4).group(0..2).widest_scope(widest);
        let pool = builder.serve(&ground.name).unwrap();
        let consumers: Vec<Consumer> = (0..4).map(|rank| ground.attach(rank)).collect();
        assert_eq!(consumers[0].widest_scope(), widest);
        for asked in refused {
            for finish in [false, true] {
                let published = publish(&pool.publisher(), b"scope");
                let lease = consumers[0].open(published.ticket()).unwrap();
                let went = match finish {
                    true => lease.finish_for(asked),
                    false => lease.acknowledge_for(asked),
                };
                fails(went, PoolError::ScopeNotAllowed { asked, widest });
                // For itself alone.
                assert_eq!(held(&pool), [0, 1, 1, 1]);
                for consumer in &consumers[1..] {
                    assert_eq!(read(consumer, published.ticket()), b"scope");
                }
                all_free(&pool);
            }
        }
        assert_eq!(
            (pool.counters().covered, pool.counters().refused_scopes),
            (0, 0)
        );
        drop(consumers);
        pool.close(soon()).unwrap();
    }
}

fn ranks(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 2);
    let published = publish(&pool.publisher(), b"theirs");
    let (before, state) = (ground.snapshots(), counters(&pool));
    let device = ground.consumer.device();
    for rank in [2, 3, u32::MAX as usize] {
        fails(
            Consumer::attach(device, &ground.name, rank),
            PoolError::RankOutOfRange { rank, consumers: 2 },
        );
    }
    // More than a hello can say is refused without asking anybody.
    let rank = u32::MAX as usize + 1;
    fails(
        Consumer::attach(device, &ground.name, rank),
        PoolError::RankOutOfRange {
            rank,
            consumers: 1024,
        },
    );
    for rank in [0, 1] {
        fails(
            Consumer::attach(device, &ground.name, rank),
            PoolError::RankTaken { rank },
        );
    }
    let nobody = Attach::new(&fresh_name(), 0).by(soon()).attach(device);
    assert!(matches!(nobody, Err(PoolError::Wire(_))), "{nobody:?}");
    assert!(!pool.evict(2, "out of range"));
    assert!(!pool.evict(usize::MAX, "out of range"));
    assert_eq!((ground.snapshots(), counters(&pool)), (before, state));
    for consumer in &consumers {
        assert_eq!(read(consumer, published.ticket()), b"theirs");
    }
    all_free(&pool);
}

fn foreign_slices(ground: &Ground) {
    let pool = ground.serve(1, 1);
    let name = fresh_name();
    let other = ground.builder(1, 1).serve(&name).unwrap();
    let publisher: Publisher = pool.publisher();
    let mine = publish(&publisher, b"mine");
    let theirs = publish(&other.publisher(), b"theirs");
    let (before, others) = (counters(&pool), counters(&other));
    let unknown = || PoolError::UnknownSlice {
        slot: 0,
        generation: 1,
    };
    fails(publisher.cancel(theirs.id()), unknown());
    fails(publisher.cancel_all(&[mine.id(), theirs.id()]), unknown());
    fails(publisher.cancel_all(&[theirs.id(), mine.id()]), unknown());
    assert_eq!((counters(&pool), counters(&other)), (before, others));
    assert_eq!(publisher.cancel_all(&[]).unwrap(), 0);
    assert_eq!(publisher.cancel_all(&[mine.id(), mine.id()]).unwrap(), 0);
    assert_eq!(pool.counters().cancelled, 1);
    all_free(&pool);
    assert_eq!(other.publisher().cancel(theirs.id()).unwrap(), 0);
    all_free(&other);
}

fn parts(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let consumer = &consumers[0];
    let publisher = pool.publisher();
    let mut target = ground.consumer.memory(ground.g);
    let open = || {
        let published = publish(&publisher, b"12345678");
        consumer.open(published.ticket()).unwrap()
    };
    let no_part = || PoolError::NoSuchPart { part: 1, count: 1 };
    // Looking does not end the lease.
    let lease = open();
    fails(lease.view(1), no_part());
    assert_eq!(lease.view(0).unwrap().size(), 8);
    assert_eq!(held(&pool), [1]);
    drop(lease);
    all_free(&pool);
    // A copy that fails does.
    fails(open().copy_to(1, &mut target, 0), no_part());
    all_free(&pool);
    fails(open().read(1, &mut [0; 8]), no_part());
    all_free(&pool);
    fails(unsafe { open().copy_to_address(1, 0) }, no_part());
    all_free(&pool);
    for size in [0, 7, 9] {
        let mut bytes = vec![0; size];
        let expected = PoolError::TargetSize {
            part: 0,
            size: 8,
            target: size,
        };
        fails(open().read(0, &mut bytes), expected);
        all_free(&pool);
    }
    let outside = open().copy_to(0, &mut target, ground.g - 7);
    fails(
        outside,
        PoolError::Memory(Error::OutOfRange {
            offset: ground.g - 7,
            size: 8,
            len: ground.g,
        }),
    );
    all_free(&pool);
    assert_eq!(consumer.leases(), 0);
    target.close().unwrap();
}
