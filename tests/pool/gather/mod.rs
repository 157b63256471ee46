//! Small copies of one call as one launch: which go out so, what arrives, and what is done where it cannot be.

mod contents;
mod order;
mod refusals;
mod sources;

use cuda_vmm::pool::{Consumer, Payload, Pool, Published, Source};
use cuda_vmm::sim::{SimDevice, SimulationBuilder};
use cuda_vmm::sys::Call;
use cuda_vmm::Reservation;

use crate::ground::{all_free, read, simulation, soon, Ground, Side};
use crate::Case;

pub const CASES: &[Case] = &[
    ("a batch of small copies arrives", contents::batch),
    (
        "small copies of any size and alignment arrive",
        contents::odd_pieces,
    ),
    ("small copies among others arrive", contents::among_others),
    (
        "more small copies than a launch takes arrive",
        contents::several_launches,
    ),
    (
        "small copies from granted host memory arrive",
        contents::from_the_host,
    ),
    (
        "small copies from another device arrive",
        contents::from_a_peer,
    ),
];

pub const SIMULATED: &[Case] = &[
    (
        "only small copies of a readable source are launched",
        contents::which,
    ),
    ("few copies are not launched", contents::few),
    ("a device without a compiler copies one by one", |_| {
        refusals::without(small().jit_compiler(false), None)
    }),
    ("a driver without the calls copies one by one", |_| {
        for call in [
            Call::cuModuleLoadData,
            Call::cuModuleGetFunction,
            Call::cuLaunchKernel,
        ] {
            refusals::without(small(), Some(call));
        }
    }),
    (
        "a driver that cannot have the kernel is asked once",
        refusals::for_good,
    ),
    (
        "a kernel that is refused now is asked for again",
        refusals::for_now,
    ),
    ("a second launch that is refused", refusals::second_launch),
    (
        "a function that is refused leaves no module",
        refusals::no_function,
    ),
    (
        "a module that is not unloaded is unloaded by the next close",
        refusals::unload_refused,
    ),
    ("a dropped pool unloads the kernel", refusals::dropped),
    (
        "what the device may not read is refused and loses nothing",
        sources::not_readable,
    ),
    (
        "a source of another driver is refused and loses nothing",
        sources::another_driver,
    ),
    (
        "a source that is not certain goes by a checked copy",
        sources::not_certain,
    ),
    (
        "a launch comes in the order of its stream",
        order::stream_order,
    ),
    (
        "a batch that fails behind a launch is taken back",
        order::fails_behind_a_launch,
    ),
    ("threads load the kernel once", order::threads),
];

/// Bytes of most pieces.
const SMALL: usize = 4096;

fn small() -> SimDevice {
    SimDevice::new().memory(256 << 20)
}

fn with(device: SimDevice) -> SimulationBuilder {
    simulation().devices([device, small()])
}

/// Memory of the producer's device with these bytes.
fn source(ground: &Ground, bytes: &[u8]) -> Reservation {
    let mut memory = ground
        .producer
        .memory(bytes.len().next_multiple_of(ground.g));
    memory.write(0, bytes).unwrap();
    memory
}

/// As many payloads of `SMALL` bytes, one behind the other.
fn payloads(memory: &Reservation, count: usize) -> Vec<Payload<'_>> {
    let payload = |index| {
        let view = memory.view(index * SMALL, SMALL).unwrap();
        Payload::bytes(Source::view(&view))
    };
    (0..count).map(payload).collect()
}

/// Each slice has its part of the bytes; afterwards everything is free.
#[track_caller]
fn arrived(pool: &Pool, consumer: &Consumer, slices: &[Published], bytes: &[u8]) {
    assert_eq!(slices.len() * SMALL, bytes.len());
    for (published, expected) in slices.iter().zip(bytes.chunks(SMALL)) {
        assert!(read(consumer, published.ticket()) == expected);
    }
    all_free(pool);
}

/// How often each was called: load, function, unload, launch, copy.
fn calls(side: &Side) -> [u64; 5] {
    [
        Call::cuModuleLoadData,
        Call::cuModuleGetFunction,
        Call::cuModuleUnload,
        Call::cuLaunchKernel,
        Call::cuMemcpyDtoDAsync_v2,
    ]
    .map(|call| side.sim().calls_of(call))
}

fn modules(side: &Side) -> usize {
    side.sim().snapshot().modules
}

/// Closes the pool, after which the driver has nothing of it.
#[track_caller]
fn close(ground: &Ground, pool: Pool, consumers: Vec<Consumer>) {
    drop(consumers);
    pool.close(soon()).unwrap();
    if let Some(left) = ground.producer.snapshot() {
        assert_eq!((left.modules, left.streams, left.events), (0, 0, 0));
    }
}
