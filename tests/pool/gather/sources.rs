//! Sources that the kernel must not read: the driver checks their copies, refuses, and loses nothing.

use cuda_vmm::pool::{Payload, PoolError, Source};
use cuda_vmm::sim::Fault;
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, AllocationProps, Code, Error, Reservation};

use super::{arrived, calls, close, payloads, source, SMALL};
use crate::ground::{all_free, counters, held, pattern, read, Ground};

/// A batch whose last source cannot be read is refused by the driver, and taken back; the device is as before.
fn refused_source(ground: &Ground, last: &Reservation, loads: u64) {
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(15, 8 * SMALL);
    let memory = source(ground, &bytes);
    let good = payloads(&memory, 8);
    for count in [1, 4] {
        let mut bad = good.clone();
        bad.extend(payloads(last, count));
        let before = counters(&pool);
        let [.., launched, _] = calls(&ground.producer);
        let error = pool.publisher().publish_all(&bad).unwrap_err();
        match error {
            PoolError::Memory(Error::Driver(failure)) => assert_eq!(
                (failure.call, failure.code),
                (Call::cuMemcpyDtoDAsync_v2, Code::ERROR_INVALID_VALUE)
            ),
            other => panic!("{other:?}"),
        }
        // Nothing is kept, nothing was published.
        assert_eq!(counters(&pool), before);
        assert_eq!(held(&pool), [0]);
        all_free(&pool);
        // The others were launched before.
        assert_eq!(calls(&ground.producer)[3], launched + 1);
        let slices = pool.publisher().publish_all(&good).unwrap();
        arrived(&pool, &consumers[0], &slices, &bytes);
    }
    assert_eq!(calls(&ground.producer)[0], loads);
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn not_readable(ground: &Ground) {
    // Memory of the other device, which was granted to that one alone.
    let other = ground
        .producer
        .memory_on(&ground.producer.devices[1], ground.g);
    refused_source(ground, &other, 1);
    other.close().unwrap();
    // Memory that the device was granted and that was taken from it.
    let mut taken = ground.producer.memory(ground.g);
    let device = ground.producer.device();
    taken.set_access(0, ground.g, device, Access::None).unwrap();
    refused_source(ground, &taken, 2);
    taken.close().unwrap();
    // A view over two mappings, of which the device may read the first.
    let mut half = ground.producer.memory(2 * ground.g);
    half.unmap_range(0, 2 * ground.g).unwrap();
    let props = AllocationProps::on(device);
    half.map(0, ground.g, &props).unwrap();
    half.map(ground.g, ground.g, &props).unwrap();
    half.set_access(ground.g, ground.g, device, Access::None)
        .unwrap();
    let (pool, consumers) = ground.pool(1, 1);
    let view = |size| half.view(ground.g - SMALL, size).unwrap();
    let seam = Payload::bytes(Source::view(&view(SMALL + 1)));
    let whole = Payload::bytes(Source::view(&view(SMALL)));
    let before = calls(&ground.producer)[3];
    let error = pool.publisher().publish_all(&vec![seam; 4]).unwrap_err();
    match error {
        PoolError::Memory(Error::Driver(failure)) => {
            assert_eq!(failure.code, Code::ERROR_INVALID_VALUE);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(calls(&ground.producer)[3], before);
    for published in pool.publisher().publish_all(&vec![whole; 4]).unwrap() {
        assert!(read(&consumers[0], published.ticket()) == [0; SMALL]);
    }
    assert_eq!(calls(&ground.producer)[3], before + 1);
    all_free(&pool);
    close(ground, pool, consumers);
    half.close().unwrap();
}

pub fn another_driver(ground: &Ground) {
    // Its ordinals are granted, but they are another driver's.
    let theirs = ground.consumer.memory(ground.g);
    refused_source(ground, &theirs, 1);
    theirs.close().unwrap();
}

pub fn not_certain(ground: &Ground) {
    let mut memory = ground.producer.memory(ground.g);
    memory.unmap_range(0, ground.g).unwrap();
    let sim = ground.producer.sim();
    // The policy names the device, but it was granted nothing.
    sim.inject(Fault::on(Call::cuMemSetAccess)).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let props = AllocationProps::on(ground.producer.device());
    memory.map(0, ground.g, &props).unwrap_err();
    assert!(memory.mapping_at(0).unwrap().is_quarantined());
    refused_source(ground, &memory, 1);
    memory.close().unwrap();
}
