//! Unmapping: one mapping by its id, or a range of whole ones.

use cuda_vmm::sim::{Fault, Simulation};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{BackingKind, Code, Error};

use crate::rig::{same, says, Rig, G};

#[test]
fn an_id_is_good_for_its_own_mapping() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let first = kv.map(0, G, &rig.props()).unwrap();
    let second = kv.map(G, 2 * G, &rig.props()).unwrap();
    kv.unmap(first).unwrap();
    let left: Vec<_> = kv.mappings().map(|mapping| mapping.range()).collect();
    assert_eq!(left, [G..3 * G]);
    let snapshot = rig.sim.snapshot();
    assert_eq!((snapshot.mappings.len(), snapshot.handles.len()), (1, 1));
    kv.unmap(second).unwrap();
    assert_eq!(kv.holes().collect::<Vec<_>>(), [0..4 * G]);
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn an_id_whose_mapping_is_gone() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let stale = kv.map(G, G, &rig.props()).unwrap();
    kv.unmap_range(G, G).unwrap();
    assert!(kv.mapping(&stale).is_none());
    // Another mapping at the same place is another mapping.
    kv.map(G, G, &rig.props()).unwrap();
    assert!(kv.mapping(&stale).is_none());
    let error = rig.refused(&mut kv, |kv| kv.unmap(stale));
    says(
        &error,
        &Error::NotMapped { offset: G },
        "the mapping made at offset 0x200000 is no longer in this reservation: it was unmapped by range, \
         or the id is another reservation's",
    );
}

#[test]
fn an_id_of_another_reservation() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.reserve(2), rig.reserve(2));
    let of_one = one.map(G, G, &rig.props()).unwrap();
    let of_two = two.map(G, G, &rig.props()).unwrap();
    assert!(one.mapping(&of_two).is_none());
    assert_ne!(of_one, of_two);
    let error = rig.refused(&mut one, |kv| kv.unmap(of_two));
    same(&error, &Error::NotMapped { offset: G });
    one.unmap(of_one).unwrap();
    assert_eq!((one.mapping_count(), two.mapping_count()), (0, 1));
}

#[test]
fn a_range_of_whole_mappings_goes_by_one_call() {
    let rig = Rig::new();
    let mut kv = rig.reserve(8);
    for at in [0, 1, 3] {
        kv.map(at * G, G, &rig.props()).unwrap();
    }
    kv.map(4 * G, 2 * G, &rig.props()).unwrap();
    let before = rig.sim.calls_of(Call::cuMemUnmap);
    kv.unmap_range(3 * G, 3 * G).unwrap();
    assert_eq!(rig.sim.calls_of(Call::cuMemUnmap), before + 1);
    let left: Vec<_> = kv.mappings().map(|mapping| mapping.range()).collect();
    assert_eq!(left, [0..G, G..2 * G]);
    let snapshot = rig.sim.snapshot();
    assert_eq!((snapshot.mappings.len(), snapshot.handles.len()), (2, 2));
}

#[test]
fn a_page_of_the_caller_stays_the_callers() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    let page = rig.props().create(G).unwrap();
    let id = kv.map_existing(0, &page).unwrap();
    kv.write(0, b"mine").unwrap();
    let before = rig.sim.calls_of(Call::cuMemRelease);
    kv.unmap(id).unwrap();
    assert_eq!(rig.sim.calls_of(Call::cuMemRelease), before);
    kv.map_existing(G, &page).unwrap();
    let mut bytes = [0; 4];
    kv.read(G, &mut bytes).unwrap();
    assert_eq!(&bytes, b"mine");
}

#[test]
fn a_handle_that_cannot_be_taken_back_is_given_up() {
    // A driver without the call that would give the count again.
    let retain = Call::cuMemRetainAllocationHandle;
    let rig = Rig::with(Simulation::builder().without(retain));
    let mut kv = rig.reserve(1);
    let id = kv.map(0, G, &rig.props()).unwrap();
    kv.write(0, b"kept").unwrap();
    let unmap = Fault::on(Call::cuMemUnmap).code(CUresult::CUDA_ERROR_UNKNOWN);
    rig.sim.inject(unmap).unwrap();
    let error = kv.unmap(id).unwrap_err();
    assert_eq!(error.code(), Some(Code::ERROR_UNKNOWN));
    let undo = error.undo_failures();
    assert_eq!(undo.len(), 1);
    same(&undo[0], &Error::MissingCall { call: retain });
    assert_eq!(
        error.to_string(),
        format!(
            "cuMemUnmap (2097152 bytes (2 MiB) at {:#x}) failed with CUDA_ERROR_UNKNOWN (999); undoing it failed too: \
             this driver has no cuMemRetainAllocationHandle: update it, or do without what needs the call; \
             what is left is kept and is undone by a later close or reclaim",
            kv.base()
        )
    );
    let mapping = kv.mapping_at(0).unwrap();
    assert_eq!(mapping.backing(), BackingKind::GivenUp);
    assert!(!mapping.is_quarantined(), "it is mapped, and in use");
    let mut bytes = [0; 4];
    kv.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn a_page_that_is_released_after_the_unmap_and_is_not() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    let page = rig.props().create(G).unwrap();
    kv.map_existing(0, &page).unwrap();
    kv.map_existing(G, &page).unwrap();
    drop(page);
    // Two mappings of the range share the count, so it is given back when both are unmapped.
    rig.sim.inject(Fault::on(Call::cuMemRelease)).unwrap();
    let error = kv.unmap_range(0, 2 * G).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cuMemRelease (a handle of 2097152 bytes (2 MiB)) failed with CUDA_ERROR_UNKNOWN (999); \
         what is left is kept and is undone by a later close or reclaim"
    );
    assert_eq!((kv.mapping_count(), kv.quarantined()), (0, 1));
    kv.close().unwrap();
    rig.leaves_nothing();
}
