//! No lock of a pool is held while the driver is called: as [`crate::unlocked`] shows of the rest of the crate.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{Consumer, Payload, Pool, PoolError, Published, Source};
use crate::unlocked::{calls_in, run_on_watched, Watched};
use crate::wire::Name;
use crate::{Access, AllocationProps, Driver, Error, HandleType, Reservation};

const G: usize = 2 << 20;

/// What a pool and a consumer do with the driver. By fabric handles: a ledger has no descriptors to give.
fn everything(driver: &Driver, watched: &Watched) -> Result<(), PoolError> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = Name::new(format!("unlocked {} {number}", std::process::id()));
    let device = driver.device(0)?;
    let mut own = Reservation::builder(G)
        .access(&device, Access::ReadWrite)
        .reserve(driver)?;
    own.map(0, G, &AllocationProps::on(&device))?;

    let pool = Pool::builder(&device, 4 * G, 1)
        .handle_type(HandleType::Fabric)
        .serve(&name)?;
    let shared = pool.shared();
    watched.also(move || shared.go_through_locks());
    let publisher = pool.publisher().with_ready_sources();
    let consumer = Consumer::attach(&device, &name, 0)?;
    let of_consumer = consumer.locks();
    let shared = pool.shared();
    watched.also(move || {
        shared.go_through_locks();
        of_consumer();
    });

    let view = own.view(0, 4096)?;
    let first = publisher.publish(&Payload::bytes(Source::view(&view)))?;
    let rows = Source::rows(&view, 1024, 512)?;
    let second = publisher.publish_all(&[Payload::bytes(rows)])?;
    let small = Payload::bytes(Source::view(&view));
    let batch = publisher.publish_all(&[small.clone(), small.clone(), small.clone(), small])?;
    let batch: Vec<_> = batch.iter().map(Published::id).collect();
    publisher.cancel_all(&batch)?;
    let mut begun = publisher.begin(&[Payload::bytes(Source::host(b"host"))])?;
    begun.descriptor()?;
    begun.wait_until(Instant::now() + Duration::from_secs(9))?;
    let third = begun.finish()?;

    consumer
        .open(first.ticket())?
        .copy_to(0, &mut own, 8192)?
        .acknowledge();
    let lease = consumer.open(second[0].ticket())?;
    lease.copy_to(0, &mut own, 8192)?.finish()?;
    consumer
        .open(third[0].ticket())?
        .read(0, &mut [0; 4])?
        .finish()?;
    // The locks of what is about to go hold it.
    watched.also(|| {});
    consumer.close().map_err(|_| PoolError::Detached)?;
    let closed = pool.close(Instant::now() + Duration::from_secs(9));
    closed.map_err(|unclosed| unclosed.error)?;
    own.close().map_err(|failed| failed.into_error())?;
    Ok(())
}

/// Runs it; a failure that is not the driver's is none of this test.
fn run(fails_at: i64) -> (Watched, Result<(), Error>) {
    run_on_watched(fails_at, |driver, watched| {
        let result = everything(driver, watched);
        watched.also(|| {});
        match result {
            Ok(()) => Ok(()),
            Err(PoolError::Memory(error) | PoolError::Quarantined { error, .. }) => Err(error),
            Err(other) => panic!("{other}"),
        }
    })
}

#[test]
fn no_lock_is_held_over_a_driver_call() {
    let (watched, result) = run(0);
    result.unwrap();
    let mut made = calls_in(&[
        include_str!("../driver/calls/stream.rs"),
        include_str!("../driver/calls/kernel.rs"),
    ]);
    // A pool looks at events where it waits until a time, and reads to the host at once.
    made.remove("MemcpyHtoDAsync_v2");
    made.remove("MemcpyDtoHAsync_v2");
    let missed: Vec<_> = made.difference(&watched.seen()).copied().collect();
    assert_eq!(missed, Vec::<&str>::new(), "never made here");
    assert_eq!(watched.locked(), BTreeSet::new());
}

#[test]
fn none_is_held_while_what_failed_is_undone() {
    for number in 1.. {
        let (watched, result) = run(number);
        assert_eq!(
            watched.locked(),
            BTreeSet::new(),
            "when call {number} failed"
        );
        if !watched.has_failed() {
            // There are not so many calls.
            result.unwrap();
            assert!(number > 60, "only {number} calls were made");
            return;
        }
    }
}
