//! What has a lock or an atomic, under a scheduler that tries many orders of threads.
//!
//! Only built with `RUSTFLAGS="--cfg shuttle"`. Every test runs twice: in random orders, and in orders with few,
//! well-placed switches, which find other mistakes. A thread that is never woken, or waits for itself, is a failure
//! that the scheduler reports. It takes all atomics for sequentially consistent; weaker orderings are thread
//! sanitizer's to judge.
#![allow(unsafe_code)]

use std::sync::Arc;

use shuttle::thread;

use crate::sim::{Fault, Simulation};
use crate::sys::{CUevent, CUresult, CUstream, Call, DriverCalls};
use crate::{Access, AllocationProps, Driver, Fence, HandleTypes, Reservation};

const ORDERS: usize = 1000;

/// How many switches that are not forced an order of the second kind has.
const SWITCHES: usize = 3;

const G: usize = 2 << 20;

fn in_many_orders(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let again = test.clone();
    shuttle::check_random(move || test(), ORDERS);
    shuttle::check_pct(move || again(), ORDERS, SWITCHES);
}

fn driver() -> (Simulation, Driver) {
    let sim = Simulation::builder().ledger_only().build().unwrap();
    let driver = Driver::simulated(&sim).unwrap();
    (sim, driver)
}

fn props(driver: &Driver) -> AllocationProps {
    AllocationProps::on(&driver.device(0).unwrap())
}

fn reserve(driver: &Driver, granules: usize) -> Reservation {
    Reservation::builder(granules * G)
        .access(&driver.device(0).unwrap(), Access::ReadWrite)
        .reserve(driver)
        .unwrap()
}

/// The driver is gone, and nothing was left with it.
fn nothing_is_left(sim: &Simulation, driver: Driver) {
    drop(driver);
    assert!(sim.snapshot().is_empty(), "{}", sim.snapshot());
    assert_eq!(sim.misuses(), []);
}

fn both<T: Send + 'static>(
    one: impl FnOnce() -> T + Send + 'static,
    other: impl FnOnce() -> T + Send + 'static,
) -> [T; 2] {
    let thread = thread::spawn(one);
    let other = other();
    [thread.join().unwrap(), other]
}

/// Asks for free memory on two threads of a new driver, with these calls failing once each; how many answers there
/// were.
fn context_users(failing: &[Call]) -> (Simulation, Driver, usize) {
    let (sim, driver) = driver();
    for call in failing {
        sim.inject(Fault::on(*call)).unwrap();
    }
    let ask = || {
        let driver = driver.clone();
        move || driver.device(0).unwrap().free_memory().is_ok()
    };
    let answers = both(ask(), ask());
    (sim, driver, answers.into_iter().filter(|ok| *ok).count())
}

#[test]
fn two_enter_a_context_at_once() {
    in_many_orders(|| {
        let (sim, driver, answers) = context_users(&[]);
        assert_eq!(answers, 2);
        assert_eq!(sim.snapshot().retained_contexts, [1]);
        nothing_is_left(&sim, driver);
    });
}

#[test]
fn one_of_two_in_a_context_fails() {
    for failing in [
        Call::cuMemGetInfo_v2,
        Call::cuCtxPushCurrent_v2,
        Call::cuDevicePrimaryCtxRetain,
    ] {
        in_many_orders(move || {
            let (sim, driver, answers) = context_users(&[failing]);
            assert_eq!(answers, 1);
            assert_eq!(sim.snapshot().retained_contexts, [1]);
            nothing_is_left(&sim, driver);
        });
    }
}

/// The retain of whoever fails cannot be given back at once; that of the other is kept.
#[test]
fn a_retain_that_is_not_given_back_is_not_forgotten() {
    for failing in [Call::cuMemGetInfo_v2, Call::cuCtxPushCurrent_v2] {
        in_many_orders(move || {
            let (sim, driver, answers) =
                context_users(&[failing, Call::cuDevicePrimaryCtxRelease_v2]);
            assert_eq!(answers, 1);
            sim.clear_faults();
            nothing_is_left(&sim, driver);
        });
    }
}

/// Both succeed; the second one's retain is too many, and the driver does not take it.
#[test]
fn a_retain_too_many_fails_nobody() {
    in_many_orders(|| {
        let (sim, driver, answers) = context_users(&[Call::cuDevicePrimaryCtxRelease_v2]);
        assert_eq!(answers, 2);
        sim.clear_faults();
        nothing_is_left(&sim, driver);
    });
}

#[test]
fn a_granularity_is_asked_for_at_once() {
    in_many_orders(|| {
        let (sim, driver) = driver();
        let ask = || {
            let props = props(&driver).shareable_as(HandleTypes::POSIX_FD);
            move || props.granularity().unwrap().minimum()
        };
        assert_eq!(both(ask(), ask()), [G, G]);
        let asked = || sim.calls_of(Call::cuMemGetAllocationGranularity);
        let before = asked();
        assert_eq!(ask()(), G);
        assert_eq!(asked(), before);
        nothing_is_left(&sim, driver);
    });
}

#[test]
fn a_piece_is_quarantined_and_reclaimed_at_once() {
    in_many_orders(|| {
        let (sim, driver) = driver();
        let mut kv = reserve(&driver, 1);
        kv.map(0, G, &props(&driver)).unwrap();
        let address = kv.base();
        // The first look-up cannot give its count back; nor can whoever tries next.
        sim.inject(Fault::on(Call::cuMemRelease).times(2)).unwrap();
        let looker = driver.clone();
        let look = move || looker.is_vmm(address).map_or(0, usize::from);
        let reclaimer = driver.clone();
        let reclaim = move || reclaimer.reclaim().unwrap_or(0);
        both(look, reclaim);
        driver.reclaim().unwrap();
        assert_eq!(driver.quarantined(), 0);
        kv.close().unwrap();
        nothing_is_left(&sim, driver);
    });
}

/// An allocation of which two reservations have shares, while its owner lets go.
#[test]
fn the_last_share_releases() {
    in_many_orders(|| {
        let (sim, driver) = driver();
        let page = props(&driver).create(G).unwrap();
        let (mut one, mut other) = (reserve(&driver, 1), reserve(&driver, 1));
        let block = one.map_existing(0, &page).unwrap();
        other.map_existing(0, &page).unwrap();
        let unmapping = thread::spawn(move || {
            one.unmap(block).unwrap();
            one.close().unwrap();
        });
        let closing = thread::spawn(move || other.close().unwrap());
        thread::yield_now();
        page.release().unwrap();
        unmapping.join().unwrap();
        closing.join().unwrap();
        assert_eq!(sim.calls_of(Call::cuMemRelease), 1);
        nothing_is_left(&sim, driver);
    });
}

/// The unmap of whoever comes first fails, perhaps with the last share in hand: its count is taken back, and released
/// once in the end.
#[test]
fn a_share_whose_unmap_fails_is_kept() {
    in_many_orders(|| {
        let (sim, driver) = driver();
        let page = props(&driver).create(G).unwrap();
        let (mut one, mut other) = (reserve(&driver, 1), reserve(&driver, 1));
        one.map_existing(0, &page).unwrap();
        other.map_existing(0, &page).unwrap();
        sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
        let unmap = |mut kv: Reservation| {
            move || {
                let failed = kv.unmap_range(0, G).is_err();
                kv.close().unwrap();
                failed
            }
        };
        let owner = thread::spawn(move || {
            thread::yield_now();
            drop(page);
        });
        let failures = both(unmap(one), unmap(other));
        owner.join().unwrap();
        assert_eq!(failures.into_iter().filter(|failed| *failed).count(), 1);
        nothing_is_left(&sim, driver);
    });
}

#[test]
fn the_handle_is_handed_out_to_one() {
    in_many_orders(|| {
        let (sim, driver) = driver();
        let page = props(&driver).create(G).unwrap();
        let mut kv = reserve(&driver, 1);
        let block = kv.map_existing(0, &page).unwrap();
        let unmapping = thread::spawn(move || {
            kv.unmap(block).unwrap();
            kv.close().unwrap();
        });
        thread::yield_now();
        let handed_out = page.into_raw();
        unmapping.join().unwrap();
        match handed_out {
            // SAFETY: the handle and its count are this test's now.
            Ok(raw) => assert_eq!(unsafe { sim.cuMemRelease(raw) }, CUresult::CUDA_SUCCESS),
            Err(page) => page.release().unwrap(),
        }
        nothing_is_left(&sim, driver);
    });
}

#[test]
fn a_fault_strikes_one_of_two() {
    in_many_orders(|| {
        let (sim, driver) = driver();
        let props = props(&driver);
        props.granularity().unwrap();
        let create = || {
            let props = props.clone();
            move || props.create(G).is_err()
        };
        let injector = sim.clone();
        let inject = thread::spawn(move || injector.inject(Fault::on(Call::cuMemCreate)).unwrap());
        let struck = both(create(), create());
        inject.join().unwrap();
        let struck = struck.into_iter().filter(|struck| *struck).count();
        assert_eq!(struck + sim.pending_faults().len(), 1);
        nothing_is_left(&sim, driver);
    });
}

/// A stream and an event of the first device.
fn stream_and_event(driver: &Driver) -> (CUstream, CUevent) {
    let device = driver.device(0).unwrap();
    let _current = device.make_current().unwrap();
    let (mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
    let calls = driver.calls_raw();
    // SAFETY: the pointers are locals'.
    let made = unsafe {
        [
            calls.cuStreamCreate(&mut stream, 0),
            calls.cuEventCreate(&mut event, 0),
        ]
    };
    assert_eq!(made, [CUresult::CUDA_SUCCESS; 2]);
    (stream, event)
}

#[test]
fn who_waits_for_a_stream_or_an_event_is_woken() {
    in_many_orders(|| {
        let (sim, driver) = driver();
        let device = driver.device(0).unwrap();
        let (stream, event) = stream_and_event(&driver);
        let mut kv = reserve(&driver, 2);
        let first = kv.map(0, G, &props(&driver)).unwrap();
        kv.map(G, G, &props(&driver)).unwrap();
        assert!(sim.hold_stream(stream));
        let current = device.make_current().unwrap();
        // SAFETY: the event and the stream live until the driver's end.
        let recorded = unsafe { sim.cuEventRecord(event, stream) };
        assert_eq!(recorded, CUresult::CUDA_SUCCESS);
        drop(current);
        // SAFETY: as above.
        let fences = unsafe { [Fence::stream(&device, stream), Fence::event(&device, event)] };
        let waiting = thread::spawn(move || {
            let [until_idle, until_reached] = fences;
            kv.unmap_after(first, until_idle).unwrap();
            kv.close_after(until_reached).unwrap();
        });
        let (running, number) = (sim.clone(), stream as usize);
        let running = thread::spawn(move || assert!(running.release_stream(number as CUstream)));
        waiting.join().unwrap();
        running.join().unwrap();
        drop(device);
        nothing_is_left(&sim, driver);
    });
}
