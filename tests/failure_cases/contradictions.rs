//! A refusal contradicts what the crate knows: the error names both, what is in doubt is quarantined, and nothing is
//! lost. Failure case 30 and its neighbours.

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, BackingKind, Code, Error};

use crate::case::Case;
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::sim(
        "an unmap that says nothing is mapped quarantines the mapping",
        unmap_says_not_mapped,
    ),
    Case::sim(
        "an unmap of a range that says so quarantines all of it",
        range_unmap_says_not_mapped,
    ),
    Case::sim(
        "a close that meets it keeps the mapping until the driver agrees",
        close_says_not_mapped,
    ),
    Case::sim(
        "a release that says the handle is none keeps it",
        release_says_not_held,
    ),
    Case::sim(
        "a release and a map that say so in other words",
        says_no_such_handle,
    ),
    Case::sim(
        "a free that says nothing is reserved keeps the reservation",
        free_says_not_reserved,
    ),
    Case::sim(
        "a map that says the place is no place gives the handle back",
        map_says_not_free,
    ),
    Case::sim(
        "a look at rights that says nothing is mapped",
        get_access_says_not_mapped,
    ),
    Case::sim(
        "a count that cannot be taken back since nothing is mapped",
        retain_says_not_mapped,
    ),
];

/// The contradiction, with the words of both sides.
#[track_caller]
pub fn disagrees(error: &Error, ours: &str, theirs: &str) {
    match error.first() {
        Error::Disagreement {
            ours: our,
            theirs: their,
            ..
        } => {
            assert_eq!((our.as_str(), their.as_str()), (ours, theirs));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        error.first().to_string(),
        format!("the driver and this crate disagree: {ours}, but the driver {theirs}")
    );
}

/// The next call of this kind says INVALID_VALUE.
fn contradict(rig: &Rig, call: Call) {
    let fault = Fault::on(call).code(CUresult::CUDA_ERROR_INVALID_VALUE);
    rig.sim.inject(fault).unwrap();
}

/// What the error says of an unmap of these bytes.
#[track_caller]
fn says_not_mapped(error: &Error, address: u64, bytes: &str) {
    disagrees(
        error,
        &format!("{bytes} at {address:#x} are mapped"),
        &format!("says otherwise: cuMemUnmap ({bytes} at {address:#x}) failed with CUDA_ERROR_INVALID_VALUE (1)"),
    );
    assert_eq!(error.code(), Some(Code::ERROR_INVALID_VALUE));
}

fn unmap_says_not_mapped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    let id = kv.map(0, G, &rig.props()).unwrap();
    let before = rig.sim.snapshot();
    contradict(&rig, Call::cuMemUnmap);
    let error = kv.unmap(id).unwrap_err();
    says_not_mapped(&error, kv.base(), "2097152 bytes (2 MiB)");
    assert_eq!(error.undo_failures().len(), 0);
    assert_eq!((rig.sim.snapshot(), kv.quarantined()), (before, 1));
    // It is of no use and in the way until the driver agrees.
    let error = kv.write(0, &[1]).unwrap_err();
    assert!(matches!(error, Error::Quarantined { mapping } if mapping == (0..G)));
    // A policy is for what is not in doubt.
    kv.set_policy(rig.device(), Access::Read).unwrap();
    assert_eq!(kv.access_of(0, rig.device()).unwrap(), Access::ReadWrite);
    kv.set_policy(rig.device(), Access::ReadWrite).unwrap();
    let error = kv.map(0, G, &rig.props()).unwrap_err();
    assert!(matches!(error, Error::Overlap { existing, .. } if existing == (0..G)));
    kv.map(G, G, &rig.props()).unwrap();
    let id = kv.id_at(0).expect("it is still owned");
    kv.unmap(id).unwrap();
    assert_eq!(kv.quarantined(), 0);
    kv.close().unwrap();
    rig.leaves_nothing();
}

fn range_unmap_says_not_mapped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let page = rig.props().create(G).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    kv.map_existing(G, &page).unwrap();
    kv.map_releasing(2 * G, G, &rig.props()).unwrap();
    kv.map(3 * G, G, &rig.props()).unwrap();
    let before = rig.sim.snapshot();
    contradict(&rig, Call::cuMemUnmap);
    let error = kv.unmap_range(0, 3 * G).unwrap_err();
    says_not_mapped(&error, kv.base(), "6291456 bytes (6 MiB)");
    let in_doubt: Vec<_> = kv
        .mappings()
        .map(|mapping| mapping.is_quarantined())
        .collect();
    assert_eq!(in_doubt, [true, true, true, false]);
    assert_eq!(rig.sim.snapshot(), before);
    kv.unmap_range(0, 3 * G).unwrap();
    kv.write(3 * G, b"untouched").unwrap();
    kv.close().unwrap();
    page.release().unwrap();
    rig.leaves_nothing();
}

fn close_says_not_mapped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    kv.map(0, G, &rig.props()).unwrap();
    kv.map(G, G, &rig.props()).unwrap();
    let base = kv.base();
    for _ in 0..3 {
        contradict(&rig, Call::cuMemUnmap);
        let failed = kv.close().unwrap_err();
        let left: Vec<_> = failed
            .reservation
            .mappings()
            .map(|mapping| mapping.address())
            .collect();
        // The first time the later mapping is refused and the other goes.
        assert_eq!(left, [base + G as u64]);
        says_not_mapped(&failed.error, left[0], "2097152 bytes (2 MiB)");
        assert_eq!(
            (failed.further.len(), failed.reservation.quarantined()),
            (0, 1)
        );
        kv = failed.reservation.into_inner();
    }
    kv.close().unwrap();
    rig.leaves_nothing();
}

fn release_says_not_held() {
    let ours = "the handle is held and was not released";
    let theirs = "says otherwise: cuMemRelease (a handle of 2097152 bytes (2 MiB)) failed with CUDA_ERROR_INVALID_VALUE (1)";
    let rig = Rig::new();
    let page = rig.props().create(G).unwrap();
    contradict(&rig, Call::cuMemRelease);
    let failed = page.release().unwrap_err();
    disagrees(&failed.error, ours, theirs);
    failed.allocation.release().unwrap();

    let mut kv = rig.reserve(1);
    let id = kv.map(0, G, &rig.props()).unwrap();
    let before = rig.sim.snapshot();
    contradict(&rig, Call::cuMemRelease);
    disagrees(&kv.unmap(id).unwrap_err(), ours, theirs);
    assert_eq!((rig.sim.snapshot(), kv.quarantined()), (before, 1));
    contradict(&rig, Call::cuMemRelease);
    let failed = kv.close().unwrap_err();
    disagrees(&failed.error, ours, theirs);
    let kv = failed.reservation.into_inner();
    assert_eq!((kv.mapping_count(), kv.quarantined()), (0, 1));
    kv.close().unwrap();
    rig.leaves_nothing();
}

fn says_no_such_handle() {
    let ours = "the handle is held and was not released";
    let rig = Rig::new();
    let deny = |call| {
        let fault = Fault::on(call).code(CUresult::CUDA_ERROR_INVALID_HANDLE);
        rig.sim.inject(fault).unwrap();
    };
    let mut kv = rig.reserve(1);
    let (before, base) = (rig.sim.snapshot(), kv.base());
    deny(Call::cuMemMap);
    disagrees(
        &kv.map(0, G, &rig.props()).unwrap_err(),
        ours,
        &format!("says otherwise: cuMemMap (2097152 bytes (2 MiB) at {base:#x}) failed with CUDA_ERROR_INVALID_HANDLE (400)"),
    );
    assert_eq!(rig.sim.snapshot(), before);

    let id = kv.map(0, G, &rig.props()).unwrap();
    let before = rig.sim.snapshot();
    deny(Call::cuMemRelease);
    let error = kv.unmap(id).unwrap_err();
    let theirs = "says otherwise: cuMemRelease (a handle of 2097152 bytes (2 MiB)) failed with CUDA_ERROR_INVALID_HANDLE (400)";
    disagrees(&error, ours, theirs);
    assert_eq!(error.code(), Some(Code::ERROR_INVALID_HANDLE));
    assert_eq!((rig.sim.snapshot(), kv.quarantined()), (before, 1));
    kv.close().unwrap();
    rig.leaves_nothing();
}

fn free_says_not_reserved() {
    let rig = Rig::new();
    let kv = rig.reserve(1);
    let base = kv.base();
    contradict(&rig, Call::cuMemAddressFree);
    let failed = kv.close().unwrap_err();
    disagrees(
        &failed.error,
        &format!("2097152 bytes (2 MiB) at {base:#x} are reserved, and nothing is mapped there"),
        &format!("says otherwise: cuMemAddressFree (2097152 bytes (2 MiB) at {base:#x}) failed with CUDA_ERROR_INVALID_VALUE (1)"),
    );
    failed.reservation.into_inner().close().unwrap();
    rig.leaves_nothing();
}

fn map_says_not_free() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    let (before, base) = (rig.sim.snapshot(), kv.base());
    contradict(&rig, Call::cuMemMap);
    let error = kv.map(0, G, &rig.props()).unwrap_err();
    disagrees(
        &error,
        &format!("2097152 bytes (2 MiB) at {base:#x} are reserved and free"),
        &format!("says otherwise: cuMemMap (2097152 bytes (2 MiB) at {base:#x}) failed with CUDA_ERROR_INVALID_VALUE (1)"),
    );
    assert_eq!((rig.sim.snapshot(), kv.mapping_count()), (before, 0));
    kv.map(0, G, &rig.props()).unwrap();
    kv.close().unwrap();
    rig.leaves_nothing();
}

fn get_access_says_not_mapped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props()).unwrap();
    contradict(&rig, Call::cuMemGetAccess);
    let at = kv.base() + 5;
    let error = kv.access_of(5, rig.device()).unwrap_err();
    disagrees(
        &error,
        &format!("memory is mapped at {at:#x}"),
        &format!("says otherwise: cuMemGetAccess (device 0 at {at:#x}) failed with CUDA_ERROR_INVALID_VALUE (1)"),
    );
    assert_eq!(kv.access_of(5, rig.device()).unwrap(), Access::ReadWrite);
}

fn retain_says_not_mapped() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    let id = kv.map(0, G, &rig.props()).unwrap();
    let (base, handle) = (kv.base(), rig.sim.snapshot().handles[0].handle);
    rig.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    contradict(&rig, Call::cuMemRetainAllocationHandle);
    let error = kv.unmap(id).unwrap_err();
    assert_eq!(
        error.code(),
        Some(Code::ERROR_UNKNOWN),
        "the first stays the first"
    );
    let [undo] = error.undo_failures() else {
        panic!("{error:?}");
    };
    disagrees(
        undo,
        &format!("handle {handle:#x} is mapped at {base:#x}"),
        &format!("says otherwise: cuMemRetainAllocationHandle (0 bytes at {base:#x}) failed with CUDA_ERROR_INVALID_VALUE (1)"),
    );
    let mapping = kv.mapping_at(0).expect("it is still owned");
    assert_eq!(
        (mapping.backing(), mapping.is_quarantined()),
        (BackingKind::GivenUp, true)
    );
    kv.close().unwrap();
    rig.leaves_nothing();
}
