//! Every driver call of every operation made to fail: once, and with all behind it.
//!
//! The error is that failure, nothing is changed but what the operation says, what was not done can be done when the
//! driver is well again, and at the end nothing is left on either side.

use std::sync::{Mutex, OnceLock};

use cuda_vmm::pool::{Consumer, Layout, Lease, Payload, Pool, PoolError, Publisher, Source};
use cuda_vmm::sim::{Fault, Snapshot};
use cuda_vmm::sys::{CUresult, Call, DriverCalls};
use cuda_vmm::{Code, Reservation};

use crate::ground::{
    all_free, counters, held, pattern, publish, read, simulation, soon, until, Ground, Side,
};
use crate::Case;

pub const SIMULATED: &[Case] = &[
    ("faults while a pool is made", |_| matrix(&SERVE)),
    ("faults while a consumer attaches", |_| matrix(&ATTACH)),
    ("faults while host memory is published", |_| matrix(&HOST)),
    ("faults while device memory is published", |_| {
        matrix(&DEVICE)
    }),
    ("faults while rows are published", |_| matrix(&ROWS)),
    ("faults while a pack is published", |_| matrix(&PACK)),
    ("faults while a batch is published", |_| matrix(&BATCH)),
    ("faults while a publish is begun and finished", |_| {
        matrix(&BEGIN)
    }),
    ("faults while a descriptor is made", |_| matrix(&DESCRIPTOR)),
    ("faults while a slice is copied and waited for", |_| {
        matrix(&FINISH)
    }),
    ("faults while a slice is copied and acknowledged", |_| {
        matrix(&ACKNOWLEDGE)
    }),
    ("faults while a slice is read", |_| matrix(&READ)),
    ("faults while a consumer is closed", |_| matrix(&DETACH)),
    ("faults while a pool is closed", |_| matrix(&CLOSE)),
    (
        "an attach that fails loses nothing that is pending",
        pending,
    ),
    ("a lost context of the producer's", producer_lost),
    ("a lost context of the consumer's", consumer_lost),
];

/// What is used in the cases, made before the faults.
struct Scene {
    ground: Ground,
    pool: Option<Pool>,
    /// The one that acts, and one that is there.
    consumer: Option<Consumer>,
    witness: Option<Consumer>,
    source: Reservation,
    target: Reservation,
    /// What was published, with its parts.
    tickets: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Producer,
    Consumer,
}

struct Operation {
    side: Where,
    prepare: fn(&mut Scene),
    run: fn(&mut Scene) -> Result<(), PoolError>,
    /// Calls that may fail without an error of the operation.
    passed_over: &'static [Call],
    /// Whether a failure leaves less than there was before.
    ends: bool,
}

const BYTES: usize = 4000;

impl Scene {
    fn new() -> Scene {
        let ground = Ground::with(simulation(), simulation());
        let mut source = ground.producer.memory(ground.g);
        source.write(0, &pattern(1, BYTES)).unwrap();
        let target = ground.consumer.memory(ground.g);
        Scene {
            pool: None,
            consumer: None,
            witness: None,
            source,
            target,
            tickets: Vec::new(),
            ground,
        }
    }

    fn serve(&mut self) -> Result<(), PoolError> {
        let pool = self.ground.builder(1, 2).serve(&self.ground.name)?;
        self.pool = Some(pool);
        Ok(())
    }

    fn attach(&mut self) -> Result<(), PoolError> {
        let device = self.ground.consumer.device();
        self.consumer = Some(Consumer::attach(device, &self.ground.name, 0)?);
        Ok(())
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }

    fn publisher(&self) -> Publisher {
        self.pool().publisher()
    }

    fn consumer(&self) -> &Consumer {
        self.consumer.as_ref().unwrap()
    }

    fn side(&self, which: Where) -> &Side {
        match which {
            Where::Producer => &self.ground.producer,
            Where::Consumer => &self.ground.consumer,
        }
    }

    /// Both sides, without what a pool keeps for its next copies.
    fn snapshots(&self) -> [Snapshot; 2] {
        [Where::Producer, Where::Consumer].map(|which| {
            let mut snapshot = self.side(which).snapshot().unwrap();
            snapshot.streams = 0;
            snapshot.events = 0;
            snapshot.retained_contexts.clear();
            snapshot.registered.clear();
            snapshot
        })
    }

    /// A slice that nothing was done with, open.
    fn open(&mut self) -> Lease {
        let published = publish(&self.publisher(), &pattern(2, BYTES));
        drop(self.witness.as_ref().unwrap().decode(published.ticket()));
        self.consumer().open(published.ticket()).unwrap()
    }

    /// Everything that was published is what it should be, and then gone.
    fn consume(&mut self) {
        for (ticket, parts) in self.tickets.drain(..) {
            for consumer in [&self.consumer, &self.witness] {
                let mut lease = consumer.as_ref().unwrap().open(&ticket).unwrap();
                for (index, part) in parts.iter().enumerate() {
                    let mut bytes = vec![0; part.len()];
                    lease = lease.read(index, &mut bytes).unwrap();
                    assert!(bytes == *part);
                }
                lease.finish().unwrap();
            }
        }
    }

    /// Ends everything in the ordinary way; nothing is left.
    fn end(mut self, what: &str) {
        self.consume();
        if let Some(consumer) = self.consumer.take() {
            if let Some(pool) = &self.pool {
                // What could not be acknowledged goes with the next acknowledgement.
                let published = publish(&pool.publisher(), b"the last");
                for one in [&consumer, self.witness.as_ref().unwrap()] {
                    assert_eq!(read(one, published.ticket()), b"the last", "{what}");
                }
                until(|| held(pool) == [0, 0]);
            }
            consumer.close().unwrap();
        }
        drop(self.witness.take());
        if let Some(pool) = self.pool.take() {
            let last = pool.close(soon()).unwrap();
            let state = (last.busy, last.largest_free, last.quarantined);
            assert_eq!(state, (0, last.size, 0), "{what}");
        }
        self.source.close().unwrap();
        self.target.close().unwrap();
        if let Err(left) = self.ground.leaves_nothing() {
            panic!("{what}: {left:?}");
        }
    }
}

fn attached(scene: &mut Scene) {
    scene.serve().unwrap();
    scene.attach().unwrap();
    scene.witness = Some(scene.ground.attach(1));
}

const SERVE: Operation = Operation {
    side: Where::Producer,
    prepare: |_| {},
    run: Scene::serve,
    passed_over: &[],
    ends: false,
};

const ATTACH: Operation = Operation {
    side: Where::Consumer,
    prepare: |scene| {
        scene.serve().unwrap();
        scene.witness = Some(scene.ground.attach(1));
    },
    run: Scene::attach,
    passed_over: &[],
    ends: false,
};

/// An operation that publishes these payloads.
fn published(
    scene: &mut Scene,
    payloads: &[Payload<'_>],
    parts: &[Vec<u8>],
    publish: impl FnOnce(&Publisher, &[Payload<'_>]) -> Result<Vec<Vec<u8>>, PoolError>,
) -> Result<(), PoolError> {
    let tickets = publish(&scene.publisher(), payloads)?;
    assert_eq!(tickets.len(), payloads.len());
    let parts = || parts.to_vec();
    scene
        .tickets
        .extend(tickets.into_iter().map(|ticket| (ticket, parts())));
    Ok(())
}

fn all(publisher: &Publisher, payloads: &[Payload<'_>]) -> Result<Vec<Vec<u8>>, PoolError> {
    let published = publisher.publish_all(payloads)?;
    Ok(published.into_iter().map(|one| one.into_ticket()).collect())
}

fn device(scene: &Scene) -> Source<'static> {
    unsafe { Source::device(scene.source.base(), BYTES) }
}

fn rows(scene: &Scene) -> (Source<'static>, Vec<u8>) {
    let source = unsafe { Source::device_rows(scene.source.base(), 100, 10, 40) };
    let bytes = pattern(1, BYTES);
    let rows = bytes.chunks(100).flat_map(|row| &row[..10]);
    (source, rows.copied().collect())
}

const HOST: Operation = Operation {
    side: Where::Producer,
    prepare: attached,
    run: |scene| {
        let bytes = pattern(3, BYTES);
        let payload = [Payload::bytes(Source::host(&bytes))];
        published(scene, &payload, std::slice::from_ref(&bytes), all)
    },
    passed_over: &[],
    ends: false,
};

const DEVICE: Operation = Operation {
    side: Where::Producer,
    prepare: attached,
    run: |scene| {
        let payload = [Payload::bytes(device(scene))];
        published(scene, &payload, &[pattern(1, BYTES)], |publisher, all| {
            let publisher = publisher.clone().with_ready_sources();
            let one = publisher.publish(&all[0])?;
            Ok(vec![one.into_ticket()])
        })
    },
    passed_over: &[],
    ends: false,
};

const ROWS: Operation = Operation {
    side: Where::Producer,
    prepare: attached,
    run: |scene| {
        let (source, bytes) = rows(scene);
        published(scene, &[Payload::bytes(source)], &[bytes], all)
    },
    passed_over: &[],
    ends: false,
};

const PACK: Operation = Operation {
    side: Where::Producer,
    prepare: attached,
    run: |scene| {
        let (rows, of_rows) = rows(scene);
        let host = pattern(4, 77);
        let pack = Payload::bytes(device(scene))
            .and(Source::host(&host), Layout::bytes(77).unwrap())
            .and(rows, Layout::bytes(of_rows.len()).unwrap());
        let parts = [pattern(1, BYTES), host.clone(), of_rows];
        published(scene, &[pack], &parts, all)
    },
    passed_over: &[],
    ends: false,
};

const BATCH: Operation = Operation {
    side: Where::Producer,
    prepare: attached,
    run: |scene| {
        let payload = Payload::bytes(device(scene));
        let batch = [payload.clone(), payload.clone(), payload];
        published(scene, &batch, &[pattern(1, BYTES)], all)
    },
    passed_over: &[],
    ends: false,
};

const BEGIN: Operation = Operation {
    side: Where::Producer,
    prepare: attached,
    run: |scene| {
        let payload = Payload::bytes(device(scene));
        let batch = [payload.clone(), payload];
        published(scene, &batch, &[pattern(1, BYTES)], |publisher, all| {
            let begun = publisher.begin(all)?;
            let done = begun.finish()?;
            Ok(done.into_iter().map(|one| one.into_ticket()).collect())
        })
    },
    passed_over: &[],
    ends: false,
};

const DESCRIPTOR: Operation = Operation {
    side: Where::Producer,
    prepare: attached,
    run: |scene| {
        let payload = [Payload::bytes(device(scene))];
        published(scene, &payload, &[pattern(1, BYTES)], |publisher, all| {
            let mut begun = publisher.begin(all)?;
            begun.descriptor()?;
            begun.wait_until(soon())?;
            if !begun.is_done()? {
                panic!("it was waited for");
            }
            let done = begun.finish()?;
            Ok(done.into_iter().map(|one| one.into_ticket()).collect())
        })
    },
    passed_over: &[],
    ends: false,
};

/// Calls by which an acknowledgement is enqueued, each of which has another in its place.
const WORDS: &[Call] = &[
    Call::cuMemHostRegister_v2,
    Call::cuMemHostGetDevicePointer_v2,
    Call::cuMemHostUnregister,
    Call::cuStreamWriteValue32_v2,
    Call::cuLaunchHostFunc,
    Call::cuStreamSynchronize,
    Call::cuCtxPushCurrent_v2,
    Call::cuCtxPopCurrent_v2,
];

const FINISH: Operation = Operation {
    side: Where::Consumer,
    prepare: attached,
    run: |scene| {
        let lease = scene.open();
        let lease = lease.copy_to(0, &mut scene.target, 0)?;
        lease.finish()?;
        let mut bytes = vec![0; BYTES];
        scene.target.read(0, &mut bytes)?;
        assert!(bytes == pattern(2, BYTES));
        Ok(())
    },
    passed_over: WORDS,
    ends: false,
};

const ACKNOWLEDGE: Operation = Operation {
    side: Where::Consumer,
    prepare: attached,
    run: |scene| {
        let lease = scene.open();
        let lease = lease.copy_to(0, &mut scene.target, 0)?;
        lease.acknowledge();
        Ok(())
    },
    passed_over: WORDS,
    ends: false,
};

const READ: Operation = Operation {
    side: Where::Consumer,
    prepare: attached,
    run: |scene| {
        let mut bytes = vec![0; BYTES];
        scene.open().read(0, &mut bytes)?.finish()?;
        assert!(bytes == pattern(2, BYTES));
        Ok(())
    },
    passed_over: &[],
    ends: false,
};

const DETACH: Operation = Operation {
    side: Where::Consumer,
    prepare: |scene| {
        attached(scene);
        (ACKNOWLEDGE.run)(scene).unwrap();
    },
    run: |scene| {
        scene.consumer.take().unwrap().close().unwrap();
        Ok(())
    },
    // There is nothing that the caller could do: what stays is reported to the leak hook, or tried again.
    passed_over: &[
        Call::cuCtxPushCurrent_v2,
        Call::cuCtxPopCurrent_v2,
        Call::cuCtxSynchronize,
        Call::cuStreamDestroy_v2,
        Call::cuMemHostUnregister,
        Call::cuMemUnmap,
        Call::cuMemRelease,
        Call::cuMemAddressFree,
    ],
    ends: true,
};

const CLOSE: Operation = Operation {
    side: Where::Producer,
    prepare: |scene| {
        attached(scene);
        (BEGIN.run)(scene).unwrap();
        scene.consume();
        until(|| held(scene.pool()) == [0, 0]);
        drop((scene.consumer.take(), scene.witness.take()));
    },
    run: |scene| {
        let pool = scene.pool.take().unwrap();
        match pool.close(soon()) {
            Ok(_) => Ok(()),
            Err(unclosed) => {
                let unclosed = *unclosed;
                scene.pool = Some(unclosed.pool);
                Err(unclosed.error)
            }
        }
    },
    passed_over: &[],
    ends: true,
};

const CODES: [CUresult; 2] = [
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// What the leak hook was told since this was asked last.
fn leaks() -> Vec<String> {
    static TOLD: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    let told = TOLD.get_or_init(|| {
        cuda_vmm::set_leak_hook(|leak| {
            let told = TOLD.get().expect("it is being told");
            told.lock().unwrap().push(leak.to_string());
        });
        Mutex::default()
    });
    std::mem::take(&mut *told.lock().unwrap())
}

fn prepared(operation: &Operation) -> Scene {
    let mut scene = Scene::new();
    (operation.prepare)(&mut scene);
    scene.side(operation.side).sim().clear_log();
    scene
}

fn matrix(operation: &Operation) {
    leaks();
    let mut scene = prepared(operation);
    (operation.run)(&mut scene).unwrap();
    let calls = scene.side(operation.side).log().len() as u64;
    scene.end("without a fault");
    assert!(calls > 1);
    let mut tried = 0;
    for nth in 1..=calls {
        for code in CODES {
            let fault = Fault::any_nth(nth).code(code);
            disturbed(operation, fault, false);
            disturbed(operation, fault.forever(), true);
            tried += 2;
        }
    }
    println!("{calls} calls, {tried} combinations");
}

fn code_of(error: &PoolError) -> Option<Code> {
    match error {
        PoolError::Memory(error) | PoolError::Quarantined { error, .. } => error.code(),
        _ => None,
    }
}

fn disturbed(operation: &Operation, fault: Fault, forever: bool) {
    let mut scene = prepared(operation);
    let before = scene.snapshots();
    let state = scene.pool.as_ref().map(counters);
    let side = scene.side(operation.side).clone();
    let sim = side.sim();
    sim.inject(fault).unwrap();
    let result = (operation.run)(&mut scene);
    sim.clear_faults();
    // A context stays current only where taking it off failed twice.
    while sim.snapshot().context_depth > 0 {
        let popped = unsafe { sim.cuCtxPopCurrent_v2(std::ptr::null_mut()) };
        assert_eq!(popped, CUresult::CUDA_SUCCESS);
    }
    let log = sim.log();
    let mut failed = log
        .iter()
        .filter(|record| record.result != CUresult::CUDA_SUCCESS);
    let first = failed.next().expect("the fault has struck");
    let what = format!("{fault} ({}): {result:?}", first.call);
    match &result {
        Ok(()) => {
            let passed = |call: &Call| operation.passed_over.contains(call);
            assert!(passed(&first.call), "{what} was passed over");
        }
        Err(error) => assert_eq!(code_of(error), Some(first.result.into()), "{what}"),
    }
    let leaked = leaks();
    if let (Err(_), Some(pool)) = (&result, &scene.pool) {
        let mut after = counters(pool);
        let mut expected = state.clone().unwrap_or_else(|| after.clone());
        let acts = [Where::Consumer].contains(&operation.side);
        if acts {
            // The slice was published, and given back or is held until the next acknowledgement.
            assert!(after.slices <= 1, "{what}: {after:?}");
            if !forever {
                assert_eq!(after.slices, 0, "{what}: {after:?}");
            }
        } else {
            // What may still be written to is kept, and nothing else.
            assert!(after.quarantined == after.slices, "{what}: {after:?}");
            for counters in [&mut after, &mut expected] {
                counters.quarantined = 0;
                counters.slices = 0;
                (counters.busy, counters.free, counters.largest_free) = (0, 0, 0);
            }
            assert_eq!(after.published, expected.published, "{what}");
            assert_eq!(after.consumers[1].held, 0, "{what}");
        }
    }
    let undone = leaked.is_empty() && side.driver.quarantined() == 0;
    if result.is_err() && !forever && undone && scene.pool.is_some() == state.is_some() {
        assert!(
            operation.ends || scene.snapshots() == before,
            "{what}\n{}",
            sim.snapshot()
        );
    }
    if !forever {
        assert_eq!(leaked, Vec::<String>::new(), "{what}");
    }
    // The driver is well again: what was not done can be done.
    if result.is_err() {
        (operation.run)(&mut scene).unwrap_or_else(|error| panic!("{what}, then {error:?}"));
    }
    if side.driver.quarantined() > 0 {
        side.driver.reclaim().unwrap();
    }
    if leaked.is_empty() {
        drop(side);
        scene.end(&what);
    } else {
        // What was reported stays, and only that: the other side is as it should be.
        assert!(forever, "{what}: {leaked:?}");
        let Scene { pool, .. } = &scene;
        if let Some(pool) = pool {
            until(|| held(pool).iter().all(|held| *held == 0));
            all_free(pool);
        }
    }
}

fn pending(ground: &Ground) {
    let pool = ground.serve(1, 1);
    let publisher = pool.publisher();
    let device = ground.consumer.device();
    let first = publish(&publisher, b"first");
    let fault = Fault::on(Call::cuMemImportFromShareableHandle);
    let fail = || {
        ground.consumer.sim().inject(fault).unwrap();
        let failed = Consumer::attach(device, &ground.name, 0);
        assert!(matches!(failed, Err(PoolError::Memory(_))), "{failed:?}");
        until(|| !pool.counters().consumers[0].is_attached);
    };
    fail();
    assert_eq!(held(&pool), [1]);
    // It is still one that can come.
    let second = publish(&publisher, b"second");
    assert_eq!((held(&pool), pool.counters().reclaimed), (vec![2], 0));
    let consumer = ground.attach(0);
    assert_eq!(read(&consumer, first.ticket()), b"first");
    assert_eq!(read(&consumer, second.ticket()), b"second");
    all_free(&pool);
    // One that was attached and is gone is not waited for, whether it tries to come back or not.
    consumer.close().unwrap();
    until(|| !pool.counters().consumers[0].is_attached);
    fail();
    let nobody = publisher.publish(&Payload::bytes(Source::host(b"nobody")));
    assert!(matches!(
        nobody,
        Err(PoolError::NoConsumer { consumers: 1 })
    ));
    let consumer = ground.attach(0);
    let third = publish(&publisher, b"third");
    assert_eq!(read(&consumer, third.ticket()), b"third");
    all_free(&pool);
}

fn is_lost<T: std::fmt::Debug>(result: Result<T, PoolError>) {
    match result {
        Err(PoolError::Memory(error)) => assert!(error.is_context_lost(), "{error:?}"),
        other => panic!("{other:?}"),
    }
}

fn producer_lost(_: &Ground) {
    leaks();
    let mut scene = Scene::new();
    attached(&mut scene);
    let kept = publish(&scene.publisher(), b"before");
    let publisher = scene.publisher();
    let payload = Payload::bytes(device(&scene));
    let begun = publisher
        .begin(&[payload.clone(), payload.clone()])
        .unwrap();
    let dropped = publisher.begin(std::slice::from_ref(&payload)).unwrap();
    assert!(scene.ground.producer.sim().poison(0));
    is_lost(publisher.publish(&payload));
    is_lost(publisher.publish(&Payload::bytes(Source::host(b"host"))));
    is_lost(publisher.begin(&[payload]).map(drop));
    is_lost(begun.is_done());
    is_lost(begun.finish());
    drop(dropped);
    let state = scene.pool().counters();
    assert_eq!(state.published, 1);
    // The consumers' devices are well: what was published before is read.
    for consumer in [&scene.consumer, &scene.witness] {
        assert_eq!(read(consumer.as_ref().unwrap(), kept.ticket()), b"before");
    }
    until(|| held(scene.pool()) == [0, 0]);
    // A lost context writes no more: nothing keeps the pool.
    let last = scene.pool.take().unwrap().close(soon()).unwrap();
    assert_eq!((last.quarantined, last.busy, last.acknowledged), (0, 0, 2));
    scene.consumer.take().unwrap().close().unwrap();
    drop((scene.witness.take(), publisher));
    let Scene {
        ground,
        source,
        target,
        ..
    } = scene;
    source.close().unwrap();
    target.close().unwrap();
    assert_eq!(leaks(), Vec::<String>::new());
    // Streams, events and registrations went with their context.
    ground.ends().unwrap();
}

fn consumer_lost(_: &Ground) {
    leaks();
    let mut scene = Scene::new();
    attached(&mut scene);
    (ACKNOWLEDGE.run)(&mut scene).unwrap();
    let (first, second) = (scene.open(), scene.open());
    let first = first.copy_to(0, &mut scene.target, 0).unwrap();
    assert!(scene.ground.consumer.sim().poison(0));
    is_lost(second.copy_to(0, &mut scene.target, 0));
    is_lost(first.finish());
    // What a lost context was to copy is over, and given back.
    until(|| held(scene.pool()) == [0, 0]);
    all_free(scene.pool());
    let third = scene.open();
    is_lost(third.read(0, &mut [0; BYTES]));
    drop(scene.open());
    all_free(scene.pool());
    scene.consumer.take().unwrap().close().unwrap();
    until(|| !scene.pool().counters().consumers[0].is_attached);
    drop(scene.witness.take());
    scene.pool.take().unwrap().close(soon()).unwrap();
    let Scene {
        ground,
        source,
        target,
        ..
    } = scene;
    source.close().unwrap();
    target.close().unwrap();
    assert_eq!(leaks(), Vec::<String>::new());
    // Streams, events and registrations went with their context.
    ground.ends().unwrap();
}
