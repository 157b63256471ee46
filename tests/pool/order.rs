//! The order of copies, tickets and acknowledgements: held streams show what comes before what.
//!
//! On a simulated driver work is done when it is enqueued, unless its stream is held. So each case holds the stream that
//! copies, and looks at what the other side can see until it runs again.

use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Consumer, Payload, Pool, PoolError, Publisher, Publishing, Scope, Source};
use cuda_vmm::sim::{Fault, LogMode, SimDevice, Simulation, SimulationBuilder, Value};
use cuda_vmm::sys::{CUresult, CUstream, CUstream_flags, Call, DriverCalls};
use cuda_vmm::{Code, Error, Reservation};

use crate::ground::{
    all_free, counters, held, now, pattern, publish, read, simulation, soon, until, Ground, Side,
};
use crate::Case;

pub const SIMULATED: &[Case] = &[
    ("a ticket exists after the copy", ticket_after_the_copy),
    ("a publish that is begun tells when it is done", begun),
    (
        "a descriptor becomes readable when the copies are done",
        descriptor,
    ),
    ("a publish that is dropped is cancelled", dropped),
    ("an acknowledgement comes behind the copy", behind_the_copy),
    ("a dropped lease comes behind its copies", dropped_lease),
    (
        "an acknowledgement comes behind work of the caller's stream",
        behind_kernels,
    ),
    (
        "an acknowledgement comes behind copies of two streams",
        two_streams,
    ),
    ("a device that writes no words calls the host", |_| {
        by_host_function(Ground::with(simulation(), wordless()))
    }),
    ("a word that is refused is written by the host", |ground| {
        refused_word(ground, Call::cuStreamWriteValue32_v2, true)
    }),
    (
        "words that cannot be registered are written by the host",
        |ground| refused_word(ground, Call::cuMemHostRegister_v2, true),
    ),
    (
        "where nothing can be enqueued the copy is waited for",
        |ground| refused_word(ground, Call::cuLaunchHostFunc, false),
    ),
    (
        "an acknowledgement that nothing can be said of is tried again",
        tried_again,
    ),
    ("a consumer that closes waits for its copies", close_waits),
    (
        "an acknowledgement of the host's comes behind nothing",
        without_copies,
    ),
];

/// Devices that cannot write words in stream order.
fn wordless() -> SimulationBuilder {
    let device = || {
        let device = SimDevice::new().memory(256 << 20);
        device.stream_memory_operations(false)
    };
    Simulation::builder()
        .device(device())
        .device(device())
        .log(LogMode::All)
}

/// The stream that was created last.
fn last_stream(side: &Side) -> CUstream {
    let log = side.sim().log();
    let mut created = log.iter().rev().filter(|record| {
        record.call == Call::cuStreamCreate && record.result == CUresult::CUDA_SUCCESS
    });
    match created.next().and_then(|record| record.arg("stream")) {
        Some(Value::Pointer(stream)) => *stream as CUstream,
        other => panic!("{other:?}"),
    }
}

/// A stream that is held until it is released or this is dropped.
pub struct Held<'a> {
    side: &'a Side,
    stream: usize,
    created: bool,
}

impl<'a> Held<'a> {
    fn last(side: &'a Side) -> Held<'a> {
        let stream = last_stream(side);
        assert!(side.sim().hold_stream(stream));
        Held {
            side,
            stream: stream as usize,
            created: false,
        }
    }

    /// A stream of the test's own.
    pub fn fresh(side: &'a Side) -> Held<'a> {
        let _current = side.device().make_current().unwrap();
        let mut stream = null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        let created = unsafe { side.sim().cuStreamCreate(&mut stream, flags) };
        assert_eq!(created, CUresult::CUDA_SUCCESS);
        assert!(side.sim().hold_stream(stream));
        Held {
            side,
            stream: stream as usize,
            created: true,
        }
    }

    /// The default stream of the first device, which runs.
    pub fn default(side: &'a Side) -> Held<'a> {
        Held {
            side,
            stream: 0,
            created: false,
        }
    }

    fn raw(&self) -> CUstream {
        self.stream as CUstream
    }

    pub fn hold(&self) {
        let _current = self.side.device().make_current().unwrap();
        assert!(self.side.sim().hold_stream(self.raw()));
    }

    pub fn release(&self) {
        let _current = self.side.device().make_current().unwrap();
        assert!(self.side.sim().release_stream(self.raw()));
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let _current = self.side.device().make_current().unwrap();
        // The pool's own streams may be gone.
        let _ = self.side.sim().release_stream(self.raw());
        if self.created {
            let destroyed = unsafe { self.side.sim().cuStreamDestroy_v2(self.raw()) };
            assert_eq!(destroyed, CUresult::CUDA_SUCCESS);
        }
    }
}

/// Device memory with these bytes.
pub fn source(ground: &Ground, bytes: &[u8]) -> Reservation {
    let mut memory = ground.producer.memory(ground.g);
    memory.write(0, bytes).unwrap();
    memory
}

pub fn on(publisher: Publisher, held: &Held<'_>) -> Publisher {
    unsafe { publisher.on_stream(held.raw()) }
}

/// Nothing happens for a while.
pub fn nothing_happens(mut state: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_millis(20);
    while Instant::now() < end {
        assert!(state(), "it happened too early");
        thread::sleep(Duration::from_millis(1));
    }
}

fn ticket_after_the_copy(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(1, 5000);
    let memory = source(ground, &bytes);
    let payload = Payload::bytes(Source::view(&memory.view(0, 5000).unwrap()));
    // The pool's own stream, one of the caller's, and the default one.
    let ready = pool.publisher().with_ready_sources();
    let first = ready.publish(&payload).unwrap();
    assert!(read(&consumers[0], first.ticket()) == bytes);
    let own = Held::last(&ground.producer);
    let callers = Held::fresh(&ground.producer);
    let default = Held::default(&ground.producer);
    for (publisher, stream) in [
        (ready, &own),
        (on(pool.publisher(), &callers), &callers),
        (pool.publisher(), &default),
    ] {
        for batch in [1, 3] {
            stream.hold();
            let before = pool.counters().published;
            let slices = thread::scope(|scope| {
                let publishing = scope.spawn(|| {
                    let slices = publisher.publish_all(&vec![payload.clone(); batch]);
                    slices.unwrap()
                });
                until(|| pool.counters().slices == batch);
                nothing_happens(|| {
                    let published = pool.counters().published;
                    !publishing.is_finished() && published == before && held(&pool) == [0]
                });
                stream.release();
                publishing.join().unwrap()
            });
            assert_eq!(held(&pool), [batch]);
            for published in slices {
                assert!(read(&consumers[0], published.ticket()) == bytes);
            }
            all_free(&pool);
        }
    }
    drop((own, callers, default));
    memory.close().unwrap();
}

/// A publish whose copy is held.
pub fn begin<'a>(publisher: &Publisher, memory: &'a Reservation, count: usize) -> Publishing<'a> {
    let payload = Payload::bytes(Source::view(&memory.view(0, 5000).unwrap()));
    publisher.begin(&vec![payload; count]).unwrap()
}

fn begun(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(2, 5000);
    let memory = source(ground, &bytes);
    let stream = Held::fresh(&ground.producer);
    let publisher = on(pool.publisher(), &stream);
    let publishing = begin(&publisher, &memory, 2);
    assert!(!publishing.is_done().unwrap());
    let patience = Duration::from_millis(10);
    match publishing.wait_until(now() + patience) {
        Err(PoolError::NotDone { waited }) => assert!(waited >= patience, "{waited:?}"),
        other => panic!("{other:?}"),
    }
    match publishing.wait_until(now()) {
        Err(PoolError::NotDone { .. }) => {}
        other => panic!("{other:?}"),
    }
    let state = pool.counters();
    assert_eq!(
        (state.published, state.slices, state.busy),
        (0, 2, 2 * 5120)
    );
    assert_eq!(held(&pool), [0]);
    stream.release();
    assert!(publishing.is_done().unwrap());
    publishing.wait_until(now()).unwrap();
    // It is done, and still not published.
    assert_eq!((pool.counters().published, held(&pool)), (0, vec![0]));
    let slices = publishing.finish().unwrap();
    assert_eq!(held(&pool), [2]);
    for published in slices {
        assert!(read(&consumers[0], published.ticket()) == bytes);
    }
    all_free(&pool);
    // Finishing waits.
    stream.hold();
    let publishing = begin(&publisher, &memory, 1);
    let slices = thread::scope(|scope| {
        let finishing = scope.spawn(|| publishing.finish().unwrap());
        nothing_happens(|| !finishing.is_finished() && held(&pool) == [0]);
        stream.release();
        finishing.join().unwrap()
    });
    assert!(read(&consumers[0], slices[0].ticket()) == bytes);
    all_free(&pool);
    memory.close().unwrap();
}

pub fn readable(fd: &impl AsRawFd) -> bool {
    let mut watched = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    unsafe { libc::poll(&mut watched, 1, 0) == 1 }
}

fn descriptor(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(3, 5000);
    let memory = source(ground, &bytes);
    let stream = Held::fresh(&ground.producer);
    let publisher = on(pool.publisher(), &stream);
    let streams = ground.producer.sim().snapshot().streams;
    for _ in 0..3 {
        stream.hold();
        let mut publishing = begin(&publisher, &memory, 2);
        let fd = publishing.descriptor().unwrap().as_raw_fd();
        nothing_happens(|| !readable(&fd));
        // Asked for again it is the same one.
        assert_eq!(publishing.descriptor().unwrap().as_raw_fd(), fd);
        stream.release();
        until(|| readable(&fd));
        assert!(publishing.is_done().unwrap());
        for published in publishing.finish().unwrap() {
            assert!(read(&consumers[0], published.ticket()) == bytes);
        }
        // One stream for notifications, used again each time.
        let now_open = ground.producer.sim().snapshot().streams;
        assert_eq!(now_open, streams + 1);
    }
    // What is done already is readable at once.
    let mut publishing = begin(&publisher, &memory, 1);
    let fd = publishing.descriptor().unwrap().as_raw_fd();
    until(|| readable(&fd));
    drop(publishing);
    let _ = publish(&pool.publisher(), b"takes the room");
    assert_eq!(pool.counters().slices, 1);
    drop(consumers);
    memory.close().unwrap();
}

fn dropped(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let size = pool.size();
    let memory = source(ground, &pattern(4, 5000));
    let stream = Held::fresh(&ground.producer);
    let publisher = on(pool.publisher(), &stream);
    let mut publishing = begin(&publisher, &memory, 2);
    let _ = publishing.descriptor().unwrap();
    drop(publishing);
    // Its copies may still write: the room is kept.
    let state = pool.counters();
    assert_eq!((state.quarantined, state.slices), (2, 2));
    assert_eq!((state.busy, state.published), (2 * 5120, 0));
    let all = vec![1; size];
    let whole = Payload::bytes(Source::host(&all));
    match pool.publisher().publish(&whole) {
        Err(PoolError::Exhausted(told)) => {
            assert_eq!((told.needed, told.busy), (size, 2 * 5120));
            assert_eq!(told.oldest, None);
        }
        other => panic!("{other:?}"),
    }
    // The pool does not close over it.
    let unclosed = pool.close(now() + Duration::from_millis(20)).unwrap_err();
    match unclosed.error {
        PoolError::Quarantined {
            slices: 2,
            error: Error::DeadlinePassed { .. },
        } => {}
        other => panic!("{other:?}"),
    }
    let pool = unclosed.pool;
    assert_eq!(pool.counters().quarantined, 2);
    stream.release();
    let last = pool.close(soon()).unwrap();
    assert_eq!((last.quarantined, last.busy, last.published), (0, 0, 0));
    drop(consumers);
    // Without closing: the next publish finds the room.
    let name = crate::ground::fresh_name();
    let pool = ground.builder(1, 1).serve(&name).unwrap();
    let consumer = Consumer::attach(ground.consumer.device(), &name, 0).unwrap();
    let publisher = on(pool.publisher(), &stream);
    stream.hold();
    drop(begin(&publisher, &memory, 2));
    assert_eq!(pool.counters().quarantined, 2);
    stream.release();
    let published = pool.publisher().publish(&whole).unwrap();
    assert_eq!(pool.counters().quarantined, 0);
    assert!(read(&consumer, published.ticket()) == all);
    all_free(&pool);
    memory.close().unwrap();
}

/// A consumer's copy that is held: what the producer sees before, and what it sees when the stream runs.
fn is_behind(
    ground: &Ground,
    pool: &Pool,
    consumer: &Consumer,
    target: &mut Reservation,
    acknowledge: impl FnOnce(cuda_vmm::pool::Lease),
) {
    let bytes = pattern(5, 3000);
    let published = publish(&pool.publisher(), &bytes);
    // The consumer's stream exists after its first copy.
    let stream = Held::last(&ground.consumer);
    target.fill(0, 4096, 0).unwrap();
    let lease = consumer.open(published.ticket()).unwrap();
    acknowledge(lease.copy_to(0, target, 0).unwrap());
    assert_eq!(consumer.leases(), 0);
    let before = counters(pool);
    nothing_happens(|| {
        // The producer looks, and finds nothing to recycle.
        pool.recycle() == 0 && held(pool) == [1] && pool.counters().busy == 3072
    });
    assert_eq!(counters(pool), before);
    // Nor is the room taken for something else.
    let all = vec![1; pool.size()];
    let full = pool
        .publisher()
        .publish(&Payload::bytes(Source::host(&all)));
    assert!(matches!(full, Err(PoolError::Exhausted(_))), "{full:?}");
    let mut found = vec![1; 3000];
    target.read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 0), "the copy was not held");
    stream.release();
    until(|| held(pool) == [0]);
    all_free(pool);
    target.read(0, &mut found).unwrap();
    assert!(found == bytes);
}

/// A pool, a consumer that has copied once, and the copy's target.
fn warm(ground: &Ground) -> (Pool, Consumer, Reservation) {
    let (pool, mut consumers) = ground.pool(1, 1);
    let consumer = consumers.remove(0);
    let mut target = ground.consumer.memory(ground.g);
    let published = publish(&pool.publisher(), b"warm");
    let lease = consumer.open(published.ticket()).unwrap();
    lease.copy_to(0, &mut target, 0).unwrap().finish().unwrap();
    all_free(&pool);
    (pool, consumer, target)
}

fn behind_the_copy(ground: &Ground) {
    let (pool, consumer, mut target) = warm(ground);
    ground.consumer.sim().clear_log();
    // The stream's creation is in the log that was cleared: it is found by its use.
    let published = publish(&pool.publisher(), b"once more");
    let lease = consumer.open(published.ticket()).unwrap();
    lease.copy_to(0, &mut target, 0).unwrap().acknowledge();
    all_free(&pool);
    let log = ground.consumer.log();
    assert!(log.contains(&Call::cuStreamWriteValue32_v2), "{log:?}");
    assert!(!log.contains(&Call::cuLaunchHostFunc), "{log:?}");
    drop(consumer);
    target.close().unwrap();
    pool.close(soon()).unwrap();

    let (pool, consumer, mut target) = warm(ground);
    is_behind(ground, &pool, &consumer, &mut target, |lease| {
        lease.acknowledge();
    });
    is_behind(ground, &pool, &consumer, &mut target, |lease| {
        lease.acknowledge_for(Scope::Group).unwrap();
    });
    assert_eq!(pool.counters().acknowledged, 3);
    target.close().unwrap();
}

fn dropped_lease(ground: &Ground) {
    let (pool, consumer, mut target) = warm(ground);
    is_behind(ground, &pool, &consumer, &mut target, drop);
    target.close().unwrap();
}

fn behind_kernels(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let published = publish(&pool.publisher(), b"in place");
    let stream = Held::fresh(&ground.consumer);
    let mut target = ground.consumer.memory(ground.g);
    target.fill(0, 4096, 0).unwrap();
    let lease = consumers[0].open(published.ticket()).unwrap();
    let lease = unsafe { lease.on_stream(ground.consumer.device(), stream.raw()) };
    // Work that reads in place, as a kernel does.
    let address = lease.view(0).unwrap().address();
    {
        let _current = ground.consumer.device().make_current().unwrap();
        let sim = ground.consumer.sim();
        let copied = unsafe { sim.cuMemcpyDtoDAsync_v2(target.base(), address, 8, stream.raw()) };
        assert_eq!(copied, CUresult::CUDA_SUCCESS);
    }
    match lease.wait_until(now() + Duration::from_millis(5)) {
        Err(PoolError::NotDone { waited }) => assert!(waited >= Duration::from_millis(5)),
        other => panic!("{other:?}"),
    }
    lease.acknowledge();
    nothing_happens(|| pool.recycle() == 0 && held(&pool) == [1]);
    stream.release();
    until(|| held(&pool) == [0]);
    let mut found = [0; 8];
    target.read(0, &mut found).unwrap();
    assert_eq!(&found, b"in place");
    all_free(&pool);
    drop(stream);
    target.close().unwrap();
}

fn two_streams(ground: &Ground) {
    let (pool, consumer, mut target) = warm(ground);
    let own = Held::last(&ground.consumer);
    let callers = Held::fresh(&ground.consumer);
    for first in [&own, &callers] {
        own.hold();
        callers.hold();
        let published = publish(&pool.publisher(), b"two copies");
        let lease = consumer.open(published.ticket()).unwrap();
        let lease = lease.copy_to(0, &mut target, 0).unwrap();
        let lease = unsafe { lease.on_stream(ground.consumer.device(), callers.raw()) };
        let lease = lease.copy_to(0, &mut target, 512).unwrap();
        thread::scope(|scope| {
            // It may wait for the one stream, and is behind both.
            let acknowledging = scope.spawn(move || lease.acknowledge());
            nothing_happens(|| pool.recycle() == 0 && held(&pool) == [1]);
            first.release();
            nothing_happens(|| pool.recycle() == 0 && held(&pool) == [1]);
            own.release();
            callers.release();
            acknowledging.join().unwrap();
        });
        until(|| held(&pool) == [0]);
        all_free(&pool);
    }
    drop((own, callers, consumer));
    target.close().unwrap();
}

fn by_host_function(ground: Ground) {
    let (pool, consumer, mut target) = warm(&ground);
    is_behind(&ground, &pool, &consumer, &mut target, |lease| {
        lease.acknowledge();
    });
    is_behind(&ground, &pool, &consumer, &mut target, drop);
    let sim = ground.consumer.sim();
    // It is asked once whether the device can, and not again.
    assert_eq!(sim.calls_of(Call::cuLaunchHostFunc), 2);
    assert_eq!(sim.calls_of(Call::cuStreamWriteValue32_v2), 1);
    target.close().unwrap();
    drop((consumer, pool));
    ground.leaves_nothing().unwrap();
}

/// The call fails for ever. Where `enqueued`, the acknowledgement still is in stream order; else the caller waits.
fn refused_word(ground: &Ground, call: Call, enqueued: bool) {
    let (pool, consumer, mut target) = warm(ground);
    let sim = ground.consumer.sim();
    let fault = Fault::on(call).code(CUresult::CUDA_ERROR_NOT_PERMITTED);
    sim.inject(fault.forever()).unwrap();
    if enqueued {
        is_behind(ground, &pool, &consumer, &mut target, |lease| {
            lease.acknowledge();
        });
        assert!(sim.calls_of(Call::cuLaunchHostFunc) > 0);
    } else {
        let word = Fault::on(Call::cuStreamWriteValue32_v2);
        sim.inject(word.code(CUresult::CUDA_ERROR_UNKNOWN).forever())
            .unwrap();
        let published = publish(&pool.publisher(), b"waits");
        let stream = Held::last(&ground.consumer);
        let lease = consumer.open(published.ticket()).unwrap();
        let lease = lease.copy_to(0, &mut target, 0).unwrap();
        thread::scope(|scope| {
            let acknowledging = scope.spawn(move || lease.acknowledge());
            nothing_happens(|| !acknowledging.is_finished() && held(&pool) == [1]);
            stream.release();
            acknowledging.join().unwrap();
        });
        all_free(&pool);
    }
    sim.clear_faults();
    drop(consumer);
    target.close().unwrap();
}

fn tried_again(ground: &Ground) {
    let (pool, consumer, mut target) = warm(ground);
    let sim = ground.consumer.sim();
    let first = publish(&pool.publisher(), b"first");
    let second = publish(&pool.publisher(), b"second");
    let lease = consumer.open(first.ticket()).unwrap();
    let lease = lease.copy_to(0, &mut target, 0).unwrap();
    let calls = [
        Call::cuStreamWriteValue32_v2,
        Call::cuLaunchHostFunc,
        Call::cuStreamSynchronize,
    ];
    for call in calls {
        let fault = Fault::on(call).code(CUresult::CUDA_ERROR_NOT_PERMITTED);
        sim.inject(fault.forever()).unwrap();
    }
    match lease.finish() {
        Err(PoolError::Memory(error)) => {
            assert_eq!(error.code(), Some(Code::ERROR_NOT_PERMITTED));
        }
        other => panic!("{other:?}"),
    }
    // Nobody knows whether the copy is done: the slice stays held, and nothing else does.
    nothing_happens(|| held(&pool) == [2]);
    assert_eq!(consumer.leases(), 0);
    sim.clear_faults();
    // The next acknowledgement takes it along.
    drop(consumer.open(second.ticket()).unwrap());
    until(|| held(&pool) == [0]);
    all_free(&pool);
    drop(consumer);
    target.close().unwrap();
}

fn close_waits(ground: &Ground) {
    let (pool, consumer, mut target) = warm(ground);
    let published = publish(&pool.publisher(), b"closing");
    let stream = Held::last(&ground.consumer);
    let lease = consumer.open(published.ticket()).unwrap();
    lease.copy_to(0, &mut target, 0).unwrap().acknowledge();
    thread::scope(|scope| {
        let closing = scope.spawn(move || consumer.close().unwrap());
        nothing_happens(|| !closing.is_finished() && held(&pool) == [1]);
        stream.release();
        closing.join().unwrap();
    });
    until(|| held(&pool) == [0]);
    let counters = pool.counters();
    assert_eq!((counters.acknowledged, counters.reclaimed), (2, 0));
    let mut found = [0; 7];
    target.read(0, &mut found).unwrap();
    assert_eq!(&found, b"closing");
    target.close().unwrap();
}

fn without_copies(ground: &Ground) {
    let (pool, consumer, target) = warm(ground);
    // A stream that is held for something else holds no acknowledgement back.
    let stream = Held::last(&ground.consumer);
    let published = publish(&pool.publisher(), b"in place");
    let calls = ground.consumer.calls();
    consumer.open(published.ticket()).unwrap().acknowledge();
    all_free(&pool);
    assert_eq!(ground.consumer.calls(), calls);
    drop((stream, consumer));
    target.close().unwrap();
}
