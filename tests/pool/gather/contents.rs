//! What arrives, and which copies are launched.

use cuda_vmm::pool::{ElementType, Layout, Payload, Source};
use cuda_vmm::{Access, AllocationProps, Reservation};

use super::{arrived, calls, close, payloads, source, SMALL};
use crate::ground::{all_free, pattern, read, Ground};

pub fn batch(ground: &Ground) {
    let (pool, consumers) = ground.pool(2, 1);
    let bytes = pattern(1, 64 * SMALL);
    let memory = source(ground, &bytes);
    let payloads = payloads(&memory, 64);
    let launches = |count| {
        if ground.producer.snapshot().is_some() {
            assert_eq!(calls(&ground.producer), [1, 1, 0, count, 0]);
        }
    };
    // Loaded once, and launched once for each batch.
    let slices = pool.publisher().publish_all(&payloads).unwrap();
    launches(1);
    arrived(&pool, &consumers[0], &slices, &bytes);
    let ready = pool.publisher().with_ready_sources();
    let slices = ready.publish_all(&payloads).unwrap();
    launches(2);
    arrived(&pool, &consumers[0], &slices, &bytes);
    // The parts of one payload as well.
    let layout = Layout::new(ElementType::U8, &[SMALL]).unwrap();
    let part = |index| Source::view(&memory.view(index * SMALL, SMALL).unwrap());
    let packed = (1..16).fold(Payload::tensor(part(0), layout), |packed, index| {
        packed.and(part(index), layout)
    });
    let published = ready.publish(&packed).unwrap();
    launches(3);
    let mut lease = consumers[0].open(published.ticket()).unwrap();
    for (index, expected) in bytes.chunks(SMALL).take(16).enumerate() {
        let mut found = vec![0; SMALL];
        lease = lease.read(index, &mut found).unwrap();
        assert!(found == expected, "part {index}");
    }
    lease.finish().unwrap();
    all_free(&pool);
    close(ground, pool, consumers);
    if ground.producer.snapshot().is_some() {
        assert_eq!(calls(&ground.producer), [1, 1, 1, 3, 0]);
    }
    memory.close().unwrap();
}

pub fn odd_pieces(ground: &Ground) {
    let (pool, consumers) = ground.pool(2, 1);
    let bytes = pattern(2, ground.g);
    let memory = source(ground, &bytes);
    // Around each width that the kernel copies in, and around what its threads copy at a time.
    let sizes = [
        1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 100, 1023, 1024, 1025, 4095, 4096, 4097, 16_383, 16_384,
        16_385, 16_400, 32_752, 32_767, 32_768,
    ];
    for shift in [0, 1, 2, 3, 4, 6, 8, 12, 15] {
        let ranges: Vec<_> = (0..sizes.len())
            .map(|index| {
                let start = index * 33_008 + shift;
                start..start + sizes[index]
            })
            .collect();
        let payloads: Vec<Payload<'_>> = ranges
            .iter()
            .map(|range| memory.view(range.start, range.len()).unwrap())
            .map(|view| Payload::bytes(Source::view(&view)))
            .collect();
        let slices = pool.publisher().publish_all(&payloads).unwrap();
        for (published, range) in slices.iter().zip(ranges) {
            let found = read(&consumers[0], published.ticket());
            assert!(found == bytes[range.clone()], "{range:?} at {shift}");
        }
        all_free(&pool);
    }
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn among_others(ground: &Ground) {
    let (pool, consumers) = ground.pool(4, 1);
    let bytes = pattern(3, ground.g);
    let memory = source(ground, &bytes);
    let of_host = pattern(4, 5000);
    let mut payloads = Vec::new();
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for round in 0..6 {
        let start = round * 8192;
        let view = memory.view(start, SMALL).unwrap();
        payloads.push(Payload::bytes(Source::view(&view)));
        expected.push(bytes[start..start + SMALL].to_vec());
        let large = memory.view(start, 100_000).unwrap();
        payloads.push(Payload::bytes(Source::view(&large)));
        expected.push(bytes[start..start + 100_000].to_vec());
        payloads.push(Payload::bytes(Source::host(&of_host)));
        expected.push(of_host.clone());
        payloads.push(Payload::bytes(Source::rows(&view, 100, 10).unwrap()));
        let rows = bytes[start..start + SMALL].chunks(100);
        expected.push(rows.flat_map(|row| &row[..10]).copied().collect());
        let address = memory.base() + start as u64 + 3;
        let by_address = unsafe { Source::device(address, 777) };
        payloads.push(Payload::bytes(by_address));
        expected.push(bytes[start + 3..start + 780].to_vec());
    }
    let slices = pool.publisher().publish_all(&payloads).unwrap();
    for (index, (published, expected)) in slices.iter().zip(expected).enumerate() {
        let found = read(&consumers[0], published.ticket());
        assert!(found == expected, "payload {index}");
    }
    all_free(&pool);
    if ground.producer.snapshot().is_some() {
        assert_eq!(calls(&ground.producer)[3..], [1, 6]);
    }
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn several_launches(ground: &Ground) {
    let (pool, consumers) = ground.pool(2, 1);
    let bytes = pattern(5, 350 * SMALL);
    let memory = source(ground, &bytes);
    let mut launched = 0;
    for (count, launches) in [(160, 1), (161, 2), (320, 2), (350, 3)] {
        let payloads = payloads(&memory, count);
        let slices = pool.publisher().publish_all(&payloads).unwrap();
        arrived(&pool, &consumers[0], &slices, &bytes[..count * SMALL]);
        launched += launches;
        if ground.producer.snapshot().is_some() {
            assert_eq!(calls(&ground.producer), [1, 1, 0, launched, 0]);
        }
    }
    close(ground, pool, consumers);
    memory.close().unwrap();
}

/// Publishes 8 pieces of memory that lies elsewhere, with this right of the pool's device.
fn from_elsewhere(ground: &Ground, props: &AllocationProps, right: Access) {
    let size = props.granularity().unwrap().recommended();
    let device = ground.producer.device();
    let mut builder = Reservation::builder(size).access(device, right);
    if !props.location().is_host() {
        builder = builder.access(props.location(), Access::ReadWrite);
    }
    let mut memory = builder.reserve(&ground.producer.driver).unwrap();
    memory.map(0, size, props).unwrap();
    let bytes = pattern(6, 8 * SMALL);
    memory.write(0, &bytes).unwrap();
    let (pool, consumers) = ground.pool(1, 1);
    let slices = pool.publisher().publish_all(&payloads(&memory, 8)).unwrap();
    arrived(&pool, &consumers[0], &slices, &bytes);
    if ground.producer.snapshot().is_some() {
        assert_eq!(calls(&ground.producer)[3..], [1, 0]);
    }
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn from_the_host(ground: &Ground) {
    let props = AllocationProps::on_host(&ground.producer.driver);
    from_elsewhere(ground, &props, Access::ReadWrite);
}

pub fn from_a_peer(ground: &Ground) {
    match ground.producer.devices.get(1) {
        Some(peer) => from_elsewhere(ground, &AllocationProps::on(peer), Access::Read),
        None => eprintln!("SKIPPED: one device has no peer"),
    }
}

pub fn which(ground: &Ground) {
    let (pool, consumers) = ground.pool(4, 1);
    let bytes = pattern(7, ground.g);
    let memory = source(ground, &bytes);
    let base = memory.base();
    let cases: [(u64, usize, bool); 9] = [
        (0, 1, true),
        (0, 32 << 10, true),
        (0, (32 << 10) + 1, false),
        (4, 32 << 10, true),
        (2, 4 << 10, true),
        (2, (4 << 10) + 1, false),
        (1, 4 << 10, true),
        (1, 32 << 10, false),
        (3, (4 << 10) + 4, false),
    ];
    for (at, size, is_launched) in cases {
        let view = memory.view(at as usize, size).unwrap();
        let by_address = unsafe { Source::device(base + at, size) };
        for source in [Source::view(&view), by_address] {
            let before = calls(&ground.producer);
            let slices = pool
                .publisher()
                .publish_all(&vec![Payload::bytes(source); 4]);
            for published in slices.unwrap() {
                let found = read(&consumers[0], published.ticket());
                assert!(found == bytes[at as usize..at as usize + size]);
            }
            let after = calls(&ground.producer);
            let made = [after[3] - before[3], after[4] - before[4]];
            let expected = if is_launched { [1, 0] } else { [0, 4] };
            assert_eq!(made, expected, "{size} bytes at {at}");
        }
    }
    all_free(&pool);
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn few(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(8, 3 * SMALL);
    let memory = source(ground, &bytes);
    let slices = pool.publisher().publish_all(&payloads(&memory, 3)).unwrap();
    arrived(&pool, &consumers[0], &slices, &bytes);
    // Nor with others beside them.
    let mut mixed = payloads(&memory, 3);
    mixed.extend(vec![Payload::bytes(Source::host(b"host")); 5]);
    for published in pool.publisher().publish_all(&mixed).unwrap() {
        drop(consumers[0].open(published.ticket()).unwrap());
    }
    all_free(&pool);
    assert_eq!(calls(&ground.producer), [0, 0, 0, 0, 6]);
    close(ground, pool, consumers);
    memory.close().unwrap();
}
