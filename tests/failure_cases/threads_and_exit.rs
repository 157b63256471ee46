//! I. Contexts, threads, sticky faults, panics. What a fork and an exit do is in tests/process.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::CUresult;
use cuda_vmm::{
    Allocation, AllocationProps, Device, Driver, Error, Mapping, MappingId, Reservation,
};

use crate::case::{Case, Machine, Told};
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::both(
        "made on one thread, ended on another without a context",
        another_thread,
    ),
    Case::sim(
        "managing memory goes on after a sticky fault",
        after_a_sticky_fault,
    ),
    Case::sim(
        "a hundred things dropped while unwinding, every call refused",
        dropped_while_unwinding,
    ),
    Case::sim("what may go to another thread and be shared", send_and_sync),
];

/// Failure case 114.
fn another_thread(on: &Machine) {
    let mut kv = on.reserve(4);
    kv.map(0, on.g, &on.props).unwrap();
    kv.write(0, b"here").unwrap();
    let page = on.props.create(on.g).unwrap();
    kv.map_existing(on.g, &page).unwrap();
    let mut dropped = on.reserve(1);
    dropped.map(0, on.g, &on.props).unwrap();
    // A thread that never had a context: to manage memory it needs none, to copy it gets one and is left without.
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 4];
            kv.read(0, &mut bytes).unwrap();
            assert_eq!(&bytes, b"here");
            kv.map(2 * on.g, on.g, &on.props).unwrap();
            kv.unmap_range(2 * on.g, on.g).unwrap();
            if let Some(sim) = &on.sim {
                assert_eq!(sim.snapshot().context_depth, 0);
            }
            drop(dropped);
            kv.close().unwrap();
            page.release().unwrap();
        });
    });
}

/// Failure case 116.
fn after_a_sticky_fault() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    kv.map(0, G, &rig.props()).unwrap();
    kv.write(0, &[1]).unwrap();
    assert!(rig.sim.poison(0));
    let error = kv.write(0, &[2]).unwrap_err();
    assert_eq!(error.code(), Some(cuda_vmm::Code::ERROR_ILLEGAL_ADDRESS));
    kv.map(G, G, &rig.props()).unwrap();
    kv.unmap_range(0, 2 * G).unwrap();
    kv.close().unwrap();
    rig.leaves_nothing();
}

/// Failure case 116: the driver answers ILLEGAL_ADDRESS to everything.
fn dropped_while_unwinding() {
    let rig = Rig::new();
    let things: Vec<_> = (0..50)
        .map(|_| {
            let mut kv = rig.reserve(2);
            kv.map(0, G, &rig.props()).unwrap();
            (kv, rig.props().create(G).unwrap())
        })
        .collect();
    let told = Told::listen();
    let fault = Fault::any_nth(1).code(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    rig.sim.inject(fault.forever()).unwrap();
    let before = rig.sim.snapshot();
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _things = things;
        std::panic::resume_unwind(Box::new("on the way out"));
    }));
    assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"on the way out"));
    let told = told.take();
    // Of each: the mapping, its handle, and the page. The addresses stay with the mapping.
    let count = |what: &str| told.iter().filter(|leak| leak.starts_with(what)).count();
    assert_eq!(count("leaked the mapping of 2097152 bytes (2 MiB)"), 50);
    assert_eq!(count("leaked 2097152 bytes (2 MiB) of memory"), 100);
    assert_eq!(told.len(), 150);
    assert!(told
        .iter()
        .all(|leak| leak.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)")));
    assert_eq!(rig.sim.snapshot(), before);
}

/// Failure case 121. That a current context's guard may not go to another thread is an example that does not compile,
/// at `CurrentContext`.
fn send_and_sync() {
    fn both<T: Send + Sync>() {}
    both::<Driver>();
    both::<Device>();
    both::<AllocationProps>();
    both::<Allocation>();
    both::<Reservation>();
    both::<Mapping>();
    both::<MappingId>();
    both::<Error>();
}
