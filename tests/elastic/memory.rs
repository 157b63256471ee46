//! Out of memory: an ordinary result, with the numbers, and the range as before.

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{AllocationProps, Driver, Error, Location};

use crate::case::{blocks, ran_out, says, state, Case, Machine};

pub const CASES: &[Case] = &[
    Case::simulated("out of memory names asked, free and cached", numbers),
    Case::simulated("the cache is emptied before memory is out", cache_first),
    Case::simulated(
        "out of memory within many blocks takes all down",
        many_blocks,
    ),
    Case::simulated("free bytes that cannot be asked are left out", not_asked),
    Case::simulated("a cache that cannot be emptied is told", stuck_cache),
    Case::everywhere("more than the device has", everything),
];

/// A machine whose device has so many granules.
fn small(granules: u64) -> Machine {
    let sim = Simulation::builder()
        .device(SimDevice::new().memory((granules * 2) << 20))
        .build()
        .unwrap();
    Machine::of(Driver::simulated(&sim).unwrap(), Some(sim))
}

fn numbers(_: &Machine) {
    let machine = small(16);
    let g = machine.g;
    let mut range = machine
        .builder(64)
        .blocks(g..=8 * g)
        .cache(2 * g)
        .reserve()
        .unwrap();
    range.commit(0, 10 * g).unwrap();
    range.commit(32 * g, 2 * g).unwrap();
    range.decommit(32 * g, 2 * g).unwrap();
    range.write(3, b"stays").unwrap();
    let before = (state(&range), range.cached_bytes());
    assert_eq!(before.1, 2 * g);
    let error = range.commit(8 * g, 9 * g).unwrap_err();
    says(
        &error,
        &Error::CommitOutOfMemory {
            asked: 7 * g,
            free: Some(6 * g),
            cached: 2 * g,
            location: Location::Device(0),
        },
        "not enough free memory on device 0 for the 14680064 bytes (14 MiB) that committing needs, \
         with 12582912 bytes (12 MiB) free, after 4194304 bytes (4 MiB) of cached blocks were released",
    );
    assert!(error.is_out_of_memory());
    assert_eq!(range.cached_bytes(), 0);
    let cached = |text: &str| {
        text.replace("4 MiB cached", "0 B cached")
            .replace("cached: 4194304", "cached: 0")
    };
    assert_eq!(state(&range), cached(&before.0));
    let mut back = [0; 5];
    range.read(3, &mut back).unwrap();
    assert_eq!(&back, b"stays");
    assert_eq!(range.commit(10 * g, 5 * g).unwrap().mapped, 5 * g);
    range.close().unwrap();
}

fn cache_first(_: &Machine) {
    let machine = small(16);
    let g = machine.g;
    let mut range = machine
        .builder(64)
        .blocks(g..=8 * g)
        .cache(8 * g)
        .reserve()
        .unwrap();
    range.commit(0, 8 * g).unwrap();
    range.decommit(0, 8 * g).unwrap();
    range.commit(g, g).unwrap();
    assert_eq!(range.cached_bytes(), 8 * g);
    // Nine are free, and eight more are cached in one block, where blocks of 1, 4 and 8 granules are needed.
    let done = range.commit(2 * g, 12 * g).unwrap();
    assert_eq!(
        (done.mapped, done.from_cache, range.cached_bytes()),
        (12 * g, 0, 0)
    );
    assert_eq!(blocks(&range), [1, 2, 4, 4, 2]);
    range.close().unwrap();
}

fn many_blocks(_: &Machine) {
    let machine = small(16);
    let g = machine.g;
    let mut range = machine.builder(64).blocks(g..=g).reserve().unwrap();
    for granule in [1, 5, 17] {
        range.commit(granule * g, g).unwrap();
    }
    let before = (state(&range), machine.sim().snapshot());
    let error = range.commit(0, 20 * g).unwrap_err();
    assert_eq!(ran_out(&error), (17 * g, Some(13 * g), 0));
    // Asking for the free bytes has retained the context.
    machine.devices[0].free_memory().unwrap();
    assert_eq!(state(&range), before.0);
    assert_eq!(machine.sim().snapshot().handles, before.1.handles);
    assert_eq!(machine.sim().snapshot().mappings, before.1.mappings);
    range.close().unwrap();
}

fn not_asked(machine: &Machine) {
    let (sim, g) = (machine.sim(), machine.g);
    let mut range = machine.builder(4).reserve().unwrap();
    let out = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    sim.inject(Fault::on(Call::cuMemCreate).code(out)).unwrap();
    sim.inject(Fault::on(Call::cuMemGetInfo_v2)).unwrap();
    says(
        &range.commit(0, g).unwrap_err(),
        &Error::CommitOutOfMemory {
            asked: g,
            free: None,
            cached: 0,
            location: Location::Device(0),
        },
        "not enough free memory on device 0 for the 2097152 bytes (2 MiB) that committing needs",
    );
    range.close().unwrap();
}

fn stuck_cache(machine: &Machine) {
    let (sim, g) = (machine.sim(), machine.g);
    let mut range = machine
        .builder(8)
        .blocks(g..=2 * g)
        .cache(4 * g)
        .reserve()
        .unwrap();
    range.commit(0, 4 * g).unwrap();
    range.decommit(0, 4 * g).unwrap();
    let out = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    sim.inject(Fault::on(Call::cuMemCreate).code(out)).unwrap();
    sim.inject(Fault::on(Call::cuMemRelease).nth(2)).unwrap();
    let error = range.commit(0, g).unwrap_err();
    let (asked, _, cached) = ran_out(error.first());
    assert_eq!((asked, cached), (g, 2 * g));
    assert_eq!(error.undo_failures().len(), 1);
    assert_eq!(
        error.undo_failures()[0].code(),
        Some(cuda_vmm::Code::ERROR_UNKNOWN)
    );
    // The block that would not go is still in the cache, and goes the next time.
    assert_eq!(range.cached_bytes(), 2 * g);
    assert_eq!(range.trim(0).unwrap(), 2 * g);
    range.close().unwrap();
}

fn everything(machine: &Machine) {
    let g = machine.g;
    let free = machine.devices[0].free_memory().unwrap();
    let granules = (free / g).next_multiple_of(512) + 512;
    let props = AllocationProps::on(&machine.devices[0]);
    assert_eq!(props.location(), Location::Device(0));
    let mut range = machine
        .builder(granules)
        .blocks(512 * g..=1024 * g)
        .reserve()
        .unwrap();
    range.commit(0, g).unwrap();
    let before = state(&range);
    let error = range.commit(0, granules * g).unwrap_err();
    let Error::CommitOutOfMemory {
        asked,
        free: Some(left),
        cached: 0,
        location,
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (asked, location),
        ((granules - 512) * g, Location::Device(0))
    );
    assert!(
        left < asked && left.abs_diff(free - 512 * g) <= 8 * g,
        "{left} bytes are free"
    );
    assert_eq!(state(&range), before);
    range.close().unwrap();
}
