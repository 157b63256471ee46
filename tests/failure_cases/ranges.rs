//! C. Range, size, alignment, granularity.

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::{Allocation, Error, Reservation};

use crate::case::{Case, Machine};
use crate::rig::Rig;

pub const CASES: &[Case] = &[
    Case::sim(
        "a multiple of the minimum granularity is enough",
        minimum_and_recommended,
    ),
    Case::both("an alignment that was asked for is given", alignments),
    Case::both(
        "a hint that is taken gives another address, and an exact one an error",
        a_taken_hint,
    ),
    Case::both("a chunk is told from the span around it", chunk_and_span),
    Case::both("bytes cross the seams of chunks", across_seams),
];

/// Failure case 38.
fn minimum_and_recommended() {
    let (minimum, recommended) = (64 << 10, 2 << 20);
    let device = SimDevice::new().granularity(minimum, recommended);
    let rig = Rig::with(Simulation::builder().device(device));
    let granularity = rig.props().granularity().unwrap();
    assert_eq!(
        (granularity.minimum(), granularity.recommended()),
        (minimum, recommended)
    );
    let mut kv = Reservation::builder(5 * minimum)
        .reserve(&rig.driver)
        .unwrap();
    kv.map(minimum, 3 * minimum, &rig.props()).unwrap();
    let error = kv.map(0, minimum / 2, &rig.props()).unwrap_err();
    assert!(matches!(error, Error::Misaligned { granularity, .. } if granularity == minimum));
    kv.close().unwrap();
    rig.leaves_nothing();
}

/// Failure case 36.
fn alignments(on: &Machine) {
    for alignment in [0, 1, 4096, on.g, 1 << 30, 64 << 30] {
        let kv = Reservation::builder(on.g)
            .alignment(alignment)
            .reserve(&on.driver)
            .unwrap();
        let multiple = alignment.max(on.g) as u64;
        assert_eq!(kv.base() % multiple, 0, "{:#x}", kv.base());
        kv.close().unwrap();
    }
    for alignment in [3, on.g * 3, usize::MAX] {
        let error = Reservation::builder(on.g)
            .alignment(alignment)
            .reserve(&on.driver)
            .unwrap_err();
        assert!(
            matches!(error, Error::BadAlignment { alignment: of } if of == alignment),
            "{error:?}"
        );
    }
}

/// Failure case 43.
fn a_taken_hint(on: &Machine) {
    let taken = on.reserve(4);
    let hint = taken.base() + on.g as u64;
    let elsewhere = Reservation::builder(2 * on.g)
        .hint(hint)
        .reserve(&on.driver)
        .unwrap();
    let (ours, theirs) = (taken.base(), elsewhere.base());
    assert!(theirs + 2 * on.g as u64 <= ours || ours + 4 * on.g as u64 <= theirs);
    let exactly = Reservation::builder(2 * on.g).exact_address(hint);
    let error = exactly.reserve(&on.driver).unwrap_err();
    assert!(
        matches!(error, Error::HintNotHonoured { wanted, got } if wanted == hint && got != hint),
        "{error:?}"
    );
    taken.close().unwrap();
    elsewhere.close().unwrap();
}

/// Failure case 45.
fn chunk_and_span(on: &Machine) {
    let g = on.g;
    let mut kv = on.reserve(4);
    for at in 0..4 {
        kv.map(at * g, g, &on.props).unwrap();
    }
    let inside = g + g / 2;
    assert_eq!(kv.mapping_at(inside).unwrap().range(), g..2 * g);
    let retained = Allocation::retain(&on.driver, kv.base() + inside as u64).unwrap();
    assert_eq!(retained.size(), g);
    let span = kv.view(0, 4 * g).unwrap();
    assert_eq!((span.address(), span.size()), (kv.base(), 4 * g));
    retained.release().unwrap();
    kv.close().unwrap();
}

/// Failure case 46.
fn across_seams(on: &Machine) {
    let g = on.g;
    let mut kv = on.reserve(4);
    for at in 0..4 {
        kv.map(at * g, g, &on.props).unwrap();
    }
    let pattern: Vec<u8> = (0..3 * g + 7).map(|at| (at % 251) as u8).collect();
    kv.write(3, &pattern).unwrap();
    let mut bytes = vec![0; pattern.len()];
    kv.read(3, &mut bytes).unwrap();
    assert!(bytes == pattern);
    let mut other = on.reserve(4);
    other.map(0, 4 * g, &on.props).unwrap();
    other.copy_from(9, &kv, 3, pattern.len()).unwrap();
    other.read(9, &mut bytes).unwrap();
    assert!(bytes == pattern);
    kv.close().unwrap();
    other.close().unwrap();
}
