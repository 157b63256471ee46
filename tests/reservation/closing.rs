//! Closing: everything given back, or handed over, or tried again.

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Location, Origin};

use crate::rig::{Rig, G};

#[test]
fn an_empty_one() {
    let rig = Rig::new();
    rig.reserve(4).close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn what_was_mapped_is_kept_and_can_be_mapped_again() {
    let rig = Rig::new();
    let mut kv = rig.reserve(8);
    let page = rig.props().create(G).unwrap();
    let sole = rig.props().create(G).unwrap();
    kv.map(6 * G, 2 * G, &rig.props()).unwrap();
    kv.map_existing(G, &page).unwrap();
    kv.map_releasing(2 * G, G, &rig.props()).unwrap();
    kv.map_existing(3 * G, &sole).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    kv.fill(6 * G, 2 * G, 6).unwrap();
    kv.fill(0, 4 * G, 1).unwrap();
    drop(sole);

    let kept = kv.close_keeping().unwrap();
    // By order of mapping. The page is still the caller's, and the handle that was given up is gone.
    let offsets: Vec<_> = kept.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [6 * G, 3 * G, 0]);
    let sizes: Vec<_> = kept.iter().map(|(_, page)| page.size()).collect();
    assert_eq!(sizes, [2 * G, G, G]);
    for (_, page) in &kept {
        assert_eq!(page.origin(), Origin::Created);
        assert_eq!(page.location(), Location::Device(0));
    }
    let snapshot = rig.sim.snapshot();
    assert_eq!(
        (snapshot.reservations.len(), snapshot.mappings.len()),
        (0, 0)
    );
    assert_eq!(snapshot.handles.len(), 4);

    let mut again = rig.reserve(8);
    for (offset, page) in &kept {
        again.map_existing(*offset, page).unwrap();
    }
    let mut byte = [0];
    for (offset, expected) in [(6 * G, 6), (8 * G - 1, 6), (3 * G, 1), (0, 1)] {
        again.read(offset, &mut byte).unwrap();
        assert_eq!(byte, [expected], "at {offset}");
    }
    drop((kept, page));
    again.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn one_failure_does_not_stop_the_rest() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    for at in 0..3 {
        kv.map(at * G, G, &rig.props()).unwrap();
    }
    // The second unmap, and the release after the third.
    let unmap = Fault::on(Call::cuMemUnmap).nth(2);
    rig.sim
        .inject(unmap.code(CUresult::CUDA_ERROR_NOT_PERMITTED))
        .unwrap();
    rig.sim
        .inject(Fault::on(Call::cuMemRelease).nth(2))
        .unwrap();
    let base = kv.base();
    let error = kv.close().unwrap_err();
    let at = base + G as u64;
    let first = format!(
        "cuMemUnmap (2097152 bytes (2 MiB) at {at:#x}) failed with CUDA_ERROR_NOT_PERMITTED (800)"
    );
    let second =
        "cuMemRelease (a handle of 2097152 bytes (2 MiB)) failed with CUDA_ERROR_UNKNOWN (999)";
    assert_eq!(error.error.to_string(), first);
    let further: Vec<_> = error.further.iter().map(ToString::to_string).collect();
    assert_eq!(further, [second]);
    assert_eq!(
        error.to_string(),
        format!("the reservation is not closed (still held: 1 mapping, 1 handle, the addresses): {first}; {second}")
    );

    let left = error.reservation.into_inner();
    let ranges: Vec<_> = left.mappings().map(|mapping| mapping.range()).collect();
    assert_eq!(ranges, [G..2 * G]);
    assert_eq!(left.quarantined(), 1, "the handle that was not released");
    let snapshot = rig.sim.snapshot();
    let counts: Vec<_> = snapshot
        .handles
        .iter()
        .map(|handle| (handle.count, handle.mapped))
        .collect();
    assert_eq!(counts, [(1, 0), (1, 1)]);
    left.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn what_is_left_is_as_good_as_before() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    kv.map(0, G, &rig.props()).unwrap();
    rig.sim.inject(Fault::on(Call::cuMemAddressFree)).unwrap();
    let error = kv.close().unwrap_err();
    assert_eq!(error.further.len(), 0);
    let mut kv = error.reservation.into_inner();
    assert_eq!(kv.mapping_count(), 0);
    kv.map(G, G, &rig.props()).unwrap();
    kv.write(G, b"again").unwrap();
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn what_was_kept_before_a_failure_is_in_the_error() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    kv.map(0, G, &rig.props()).unwrap();
    kv.map(2 * G, G, &rig.props()).unwrap();
    kv.fill(2 * G, G, 4).unwrap();
    rig.sim.inject(Fault::on(Call::cuMemUnmap).nth(2)).unwrap();
    let error = kv.close_keeping().unwrap_err();
    let offsets: Vec<_> = error.kept.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [2 * G]);
    let rest = error.reservation.into_inner().close_keeping().unwrap();
    let offsets: Vec<_> = rest.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [0]);
    drop((rest, error.kept));
    rig.leaves_nothing();
}

#[test]
fn dropping_is_closing() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let page = rig.props().create(G).unwrap();
    kv.map(0, G, &rig.props()).unwrap();
    kv.map_existing(G, &page).unwrap();
    kv.map_existing(2 * G, &page).unwrap();
    kv.map_releasing(3 * G, G, &rig.props()).unwrap();
    drop((kv, page));
    rig.leaves_nothing();
}
