//! Several threads at one thing: a reservation behind a lock, an allocation, a driver, its faults and its quarantine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::AllocationProps;

use crate::crew::{assert_filled, at_once, Dice, Site, ROUNDS, THREADS};
use crate::rig::{Rig, G};

#[test]
fn one_reservation_behind_a_lock() {
    for site in Site::all() {
        let (g, props) = (site.granule(), site.props());
        // Every thread has two granules of it.
        let kv = Mutex::new(site.reserve(2 * THREADS));
        at_once(|thread| {
            let mut dice = Dice(thread as u64);
            let mut filled = [None; 2];
            for round in 0..ROUNDS {
                let slot = dice.roll(2);
                let start = (2 * thread + slot) * g;
                let mut kv = kv.lock().unwrap();
                match filled[slot].take() {
                    None => {
                        let value = (thread * ROUNDS + round) as u8;
                        kv.map(start, g, &props).unwrap();
                        kv.fill(start, g, value).unwrap();
                        filled[slot] = Some(value);
                    }
                    Some(value) => {
                        assert_filled(&kv, start, g, value);
                        kv.unmap_range(start, g).unwrap();
                    }
                }
            }
            for (slot, value) in filled.into_iter().enumerate() {
                if let Some(value) = value {
                    assert_filled(&kv.lock().unwrap(), (2 * thread + slot) * g, g, value);
                }
            }
        });
        kv.into_inner().unwrap().close().unwrap();
        drop(props);
        site.leaves_nothing();
    }
}

#[test]
fn one_reservation_that_all_read() {
    for site in Site::all() {
        let (g, props) = (site.granule(), site.props());
        let mut kv = site.reserve(THREADS);
        for thread in 0..THREADS {
            kv.map(thread * g, g, &props).unwrap();
            kv.fill(thread * g, g, thread as u8 + 1).unwrap();
        }
        let view = kv.view(0, THREADS * g).unwrap();
        at_once(|_| {
            assert_eq!(view.address(), kv.base());
            for thread in 0..THREADS {
                assert_filled(&kv, thread * g, g, thread as u8 + 1);
                assert_eq!(kv.mapping_at(thread * g).unwrap().size(), g);
            }
        });
        kv.close().unwrap();
        drop(props);
        site.leaves_nothing();
    }
}

#[test]
fn one_allocation_that_all_map_is_released_once() {
    for site in Site::all() {
        for _ in 0..ROUNDS {
            let released = |site: &Site| {
                site.sim
                    .as_ref()
                    .map(|sim| sim.calls_of(Call::cuMemRelease))
            };
            let before = released(&site);
            let g = site.granule();
            let page = Arc::new(site.props().create(g).unwrap());
            let written = Barrier::new(THREADS);
            let shares: Vec<_> = (0..THREADS)
                .map(|_| Mutex::new(Some(page.clone())))
                .collect();
            drop(page);
            at_once(|thread| {
                let page = shares[thread].lock().unwrap().take().unwrap();
                let mut kv = site.reserve(1);
                let block = kv.map_existing(0, &page).unwrap();
                // The caller's own share may go first, or last, or between.
                drop(page);
                kv.write(64 * thread, &[thread as u8 + 1; 64]).unwrap();
                written.wait();
                let mut bytes = [0; 64 * THREADS];
                kv.read(0, &mut bytes).unwrap();
                let all: Vec<u8> = (0..THREADS)
                    .flat_map(|thread| [thread as u8 + 1; 64])
                    .collect();
                assert_eq!(&bytes[..], &all[..]);
                match thread % 3 {
                    0 => kv.unmap(block).unwrap(),
                    1 => kv.close().unwrap(),
                    _ => drop(kv),
                }
            });
            assert_eq!(released(&site), before.map(|count| count + 1));
        }
        site.leaves_nothing();
    }
}

#[test]
fn all_ask_a_new_driver_at_once() {
    for _ in 0..ROUNDS {
        for site in Site::all() {
            at_once(|_| {
                let device = site.device();
                assert_eq!(device.ordinal(), 0);
                let numa = AllocationProps::on_host_numa(&site.driver, 0);
                assert_eq!(
                    numa.granularity().unwrap(),
                    site.props().granularity().unwrap()
                );
                let guard = device.make_current().unwrap();
                assert!(!guard.raw().is_null());
                assert!(device.free_memory().unwrap() > 0);
            });
            // Whoever came second gave its own retain back.
            if let Some(sim) = &site.sim {
                assert_eq!(sim.snapshot().retained_contexts, [1]);
            }
            site.leaves_nothing();
        }
    }
}

#[test]
fn a_fault_strikes_as_often_as_it_was_told_to() {
    const TIMES: usize = 40;
    let rig = Rig::new();
    let fault = Fault::on(Call::cuMemCreate).code(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    rig.sim.inject(fault.times(TIMES as u64)).unwrap();
    let struck = AtomicUsize::new(0);
    at_once(|_| {
        let mut kv = rig.reserve(1);
        for _ in 0..TIMES {
            match kv.map(0, G, &rig.props()) {
                Ok(block) => kv.unmap(block).unwrap(),
                Err(error) => {
                    assert!(error.is_out_of_memory(), "{error}");
                    struck.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        kv.close().unwrap();
    });
    assert_eq!(struck.into_inner(), TIMES);
    assert_eq!(rig.sim.pending_faults(), []);
    assert_eq!(
        rig.sim.calls_of(Call::cuMemCreate),
        (THREADS * TIMES) as u64
    );
    rig.leaves_nothing();
}

#[test]
fn what_is_quarantined_is_given_back_once() {
    const PIECES: usize = 24;
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    let block = kv.map(0, G, &rig.props()).unwrap();
    for _ in 0..PIECES {
        // The count that the look-up took is not given back, not at the second try either.
        let fault = Fault::on(Call::cuMemRelease).code(CUresult::CUDA_ERROR_UNKNOWN);
        rig.sim.inject(fault.times(2)).unwrap();
        rig.driver.is_vmm(kv.base()).unwrap_err();
    }
    assert_eq!(rig.driver.quarantined(), PIECES);
    let before = rig.sim.calls_of(Call::cuMemRelease);
    let given_back = AtomicUsize::new(0);
    at_once(|_| {
        given_back.fetch_add(rig.driver.reclaim().unwrap(), Ordering::Relaxed);
    });
    assert_eq!(given_back.into_inner(), PIECES);
    assert_eq!(rig.driver.quarantined(), 0);
    assert_eq!(rig.sim.calls_of(Call::cuMemRelease), before + PIECES as u64);
    kv.unmap(block).unwrap();
    kv.close().unwrap();
    rig.leaves_nothing();
}
