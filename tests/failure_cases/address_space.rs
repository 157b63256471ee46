//! J. Address space, limits.

use std::time::{Duration, Instant};

use cuda_vmm::sim::Simulation;
use cuda_vmm::{Error, Reservation};

use crate::case::{Case, Machine};
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::sim(
        "little address space is told from little memory",
        little_address_space,
    ),
    Case::both("more addresses than there are", too_many_addresses),
    Case::both(
        "twenty thousand small mappings cost each what the first did",
        many_small_mappings,
    ),
];

/// Failure case 123.
fn little_address_space() {
    let rig = Rig::with(Simulation::builder().address_space(16 << 30));
    let error = Reservation::builder(32 << 30)
        .reserve(&rig.driver)
        .unwrap_err();
    assert!(
        matches!(error, Error::OutOfAddressSpace { size } if size == 32 << 30),
        "{error:?}"
    );
    assert!(!error.is_out_of_memory());
    let kv = rig.reserve((16 << 30) / G);
    let error = Reservation::builder(G).reserve(&rig.driver).unwrap_err();
    assert!(
        matches!(error, Error::OutOfAddressSpace { size: G }),
        "{error:?}"
    );
    kv.close().unwrap();
    rig.leaves_nothing();
}

fn too_many_addresses(on: &Machine) {
    for size in [1 << 47, 1 << 50, 1 << 62] {
        let error = Reservation::builder(size).reserve(&on.driver).unwrap_err();
        assert!(
            matches!(error, Error::OutOfAddressSpace { size: of } if of == size),
            "{error:?}"
        );
    }
    Reservation::builder(1 << 40)
        .reserve(&on.driver)
        .unwrap()
        .close()
        .unwrap();
}

/// Failure case 125. Times are those of a real driver; the simulated one does it in the books alone.
fn many_small_mappings(on: &Machine) {
    const COUNT: usize = 20_000;
    const BATCH: usize = 1000;
    let books = Simulation::builder().ledger_only();
    let rig = on.sim.as_ref().map(|_| Rig::with(books));
    let (driver, props) = match &rig {
        Some(rig) => (&rig.driver, rig.props()),
        None => (&on.driver, on.props.clone()),
    };
    // Half of what is free, where that is less.
    let count = COUNT.min(on.free() / on.g / 2 / BATCH * BATCH);
    let mut kv = Reservation::builder(count * on.g)
        .access(cuda_vmm::Location::Device(0), cuda_vmm::Access::ReadWrite)
        .reserve(driver)
        .unwrap();
    let timed = |each: &mut dyn FnMut(usize)| -> Vec<Duration> {
        let batch = |from: usize| {
            let start = Instant::now();
            (from..from + BATCH).for_each(&mut *each);
            start.elapsed()
        };
        (0..count).step_by(BATCH).map(batch).collect()
    };
    let _current = on.device.make_current().unwrap();
    let mapping = timed(&mut |at| {
        kv.map(at * on.g, on.g, &props).unwrap();
    });
    assert_eq!(
        (kv.mapping_count(), kv.mapped_bytes()),
        (count, count * on.g)
    );
    let unmapping = timed(&mut |at| kv.unmap_range(at * on.g, on.g).unwrap());
    assert_eq!(kv.mapping_count(), 0);
    kv.close().unwrap();
    for (what, batches) in [("map", mapping), ("unmap", unmapping)] {
        let sum = |batches: &[Duration]| batches.iter().sum::<Duration>();
        let quarter = batches.len() / 4;
        let (first, last) = (
            sum(&batches[..quarter]),
            sum(&batches[batches.len() - quarter..]),
        );
        println!(
            "{what}: {count} of {} bytes, first quarter {first:?}, last {last:?}",
            on.g
        );
        if on.sim.is_none() {
            assert!(last < 3 * first && first < 3 * last, "{what}: {batches:?}");
        }
    }
    drop((props, _current));
    if let Some(rig) = rig {
        rig.leaves_nothing();
    }
}
