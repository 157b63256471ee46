//! Launches in the order of their stream, in a batch that fails, and from several threads.

use std::ptr::null_mut;
use std::thread;

use cuda_vmm::pool::{Payload, PoolError, Published, Publisher, Source};
use cuda_vmm::sim::Fault;
use cuda_vmm::sys::{CUresult, CUstream, CUstream_flags, Call, DriverCalls};
use cuda_vmm::Error;

use super::{arrived, calls, close, payloads, source, SMALL};
use crate::ground::{all_free, held, pattern, read, until, Ground, Side};

/// A stream of the test's own, which is held.
fn held_stream(side: &Side) -> CUstream {
    let _current = side.device().make_current().unwrap();
    let mut stream = null_mut();
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
    let created = unsafe { side.sim().cuStreamCreate(&mut stream, flags) };
    assert_eq!(created, CUresult::CUDA_SUCCESS);
    assert!(side.sim().hold_stream(stream));
    stream
}

fn release(side: &Side, stream: CUstream) {
    let _current = side.device().make_current().unwrap();
    assert!(side.sim().release_stream(stream));
    let destroyed = unsafe { side.sim().cuStreamDestroy_v2(stream) };
    assert_eq!(destroyed, CUresult::CUDA_SUCCESS);
}

fn on(publisher: Publisher, stream: CUstream) -> Publisher {
    unsafe { publisher.on_stream(stream) }
}

pub fn stream_order(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let memory = source(ground, &pattern(17, 8 * SMALL));
    let side = &ground.producer;
    let stream = held_stream(side);
    let size = 8 * SMALL;
    let fill = |value| {
        let _current = side.device().make_current().unwrap();
        let filled = unsafe {
            side.sim()
                .cuMemsetD8Async(memory.base(), value, size, stream)
        };
        assert_eq!(filled, CUresult::CUDA_SUCCESS);
    };
    // The launch reads what comes before it in the stream, and not what comes behind it.
    fill(5);
    let payloads = payloads(&memory, 8);
    let publishing = on(pool.publisher(), stream).begin(&payloads).unwrap();
    fill(6);
    assert_eq!(calls(side), [1, 1, 0, 1, 0]);
    assert!(!publishing.is_done().unwrap());
    release(side, stream);
    assert!(publishing.is_done().unwrap());
    let slices = publishing.finish().unwrap();
    arrived(&pool, &consumers[0], &slices, &vec![5; size]);
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn fails_behind_a_launch(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let memory = source(ground, &pattern(18, 8 * SMALL));
    let side = &ground.producer;
    let sim = side.sim();
    let large = Payload::bytes(Source::view(&memory.view(0, 100_000).unwrap()));
    let mut batch = payloads(&memory, 8);
    batch.push(large);
    let stream = held_stream(side);
    let publisher = on(pool.publisher(), stream);
    sim.inject(Fault::on(Call::cuMemcpyDtoDAsync_v2)).unwrap();
    thread::scope(|scope| {
        let publishing = scope.spawn(|| publisher.publish_all(&batch).unwrap_err());
        // The launch is under way: the room is not given to others before it is done.
        until(|| sim.pending_faults().is_empty());
        thread::sleep(std::time::Duration::from_millis(10));
        assert!(!publishing.is_finished());
        assert_eq!(pool.counters().slices, 9);
        release(side, stream);
        match publishing.join().unwrap() {
            PoolError::Memory(Error::Driver(failure)) => {
                assert_eq!(failure.call, Call::cuMemcpyDtoDAsync_v2);
            }
            other => panic!("{other:?}"),
        }
    });
    all_free(&pool);
    assert_eq!((held(&pool), pool.counters().quarantined), (vec![0], 0));
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn threads(ground: &Ground) {
    let (pool, consumers) = ground.pool(4, 1);
    let bytes = pattern(19, 8 * SMALL);
    let memory = source(ground, &bytes);
    let slices: Vec<Vec<Published>> = thread::scope(|scope| {
        let publish = || {
            let publisher = pool.publisher().with_ready_sources();
            publisher.publish_all(&payloads(&memory, 8)).unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(publish)).collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let [load, function, unload, launch, copy] = calls(&ground.producer);
    assert_eq!([load, function, unload], [1, 1, 0]);
    // Who came while it was being loaded did without.
    assert_eq!(8 * launch + copy, 64);
    for slices in slices {
        for (published, expected) in slices.iter().zip(bytes.chunks(SMALL)) {
            assert!(read(&consumers[0], published.ticket()) == expected);
        }
    }
    all_free(&pool);
    close(ground, pool, consumers);
    memory.close().unwrap();
}
