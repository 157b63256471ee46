//! A wait that fails, or that is not come to, leaves everything mapped and owned.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cuda_vmm::sim::Simulation;
use cuda_vmm::{Code, Error, Fence};

use crate::stage::{broken, is_broken, Stage};

pub fn a_failed_wait_leaves_everything_mapped(stage: &Stage) {
    let mut reservation = stage.reserve();
    let id = reservation.map(0, stage.granule(), &stage.props).unwrap();
    reservation.write(0, b"kept").unwrap();
    let (picture, before) = (
        reservation.to_string(),
        stage.sim.as_ref().map(Simulation::snapshot),
    );

    assert!(is_broken(
        &reservation.unmap_after(id, broken()).unwrap_err()
    ));
    assert!(is_broken(
        &reservation
            .unmap_range_after(0, stage.granule(), broken())
            .unwrap_err()
    ));
    let unclosed = reservation.close_after(broken()).unwrap_err();
    assert!(is_broken(&unclosed.error));
    assert!(unclosed.further.is_empty() && unclosed.kept.is_empty());

    let reservation = unclosed.reservation.into_inner();
    assert_eq!(reservation.to_string(), picture);
    assert_eq!(stage.sim.as_ref().map(Simulation::snapshot), before);
    let mut bytes = [0; 4];
    reservation.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    reservation.close().unwrap();
}

pub fn a_panic_while_waiting_is_a_failed_wait(stage: &Stage) {
    let mut reservation = stage.reserve();
    let id = reservation.map(0, stage.granule(), &stage.props).unwrap();
    let panics = || Fence::closure(|_| -> Result<(), Error> { panic!("no such luck") });
    let said = |error: &Error| {
        error
            .to_string()
            .contains("the closure panicked: no such luck")
    };
    assert!(said(&reservation.unmap_after(id, panics()).unwrap_err()));
    let unclosed = reservation.close_after(panics()).unwrap_err();
    assert!(said(&unclosed.error));
    let unclosed = unclosed
        .reservation
        .into_inner()
        .close_in_background(panics())
        .unwrap()
        .join()
        .unwrap_err();
    assert!(said(&unclosed.error));
    assert_eq!(unclosed.reservation.mapping_count(), 1);
    unclosed.reservation.into_inner().close().unwrap();
}

pub fn checks_come_before_the_wait(stage: &Stage) {
    let mut reservation = stage.reserve();
    let granule = stage.granule();
    let id = reservation.map(0, granule, &stage.props).unwrap();
    let waits = AtomicUsize::new(0);
    let fence = || {
        Fence::closure(|_| {
            waits.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>(())
        })
    };
    let hole = reservation
        .unmap_range_after(0, 2 * granule, fence())
        .unwrap_err();
    assert!(matches!(hole, Error::Hole { hole, .. } if hole == (granule..2 * granule)));
    reservation.unmap_range(0, granule).unwrap();
    assert!(matches!(
        reservation.unmap_after(id, fence()),
        Err(Error::NotMapped { offset: 0 })
    ));
    assert_eq!(waits.load(Ordering::Relaxed), 0);
    reservation.close().unwrap();
}

pub fn other_reservations_are_usable_while_one_waits(stage: &Stage) {
    let mut waiting = stage.reserve();
    let id = waiting.map(0, stage.granule(), &stage.props).unwrap();
    let fence = Fence::closure(|_| {
        let mut other = stage.reserve();
        other.map(0, stage.granule(), &stage.props)?;
        other.fill(0, 1, 7)?;
        other.close().map_err(|unclosed| unclosed.error)
    });
    waiting.unmap_after(id, fence).unwrap();
    waiting.close().unwrap();
}

pub fn a_lost_context_leaves_everything_mapped(stage: &Stage) {
    let sim = stage.sim.as_ref().expect("a case of the simulated driver");
    let (mut reservation, _, work) = stage.busy();
    assert!(sim.poison(0));
    let event = || unsafe { Fence::event(&stage.device, work.event) };
    let soon = Duration::from_secs(60);
    let fences = [
        Fence::default_stream(&stage.device),
        Fence::default_stream(&stage.device).within(soon),
        work.fence(),
        work.fence().within(soon),
        event(),
        event().within(soon),
    ];
    for fence in fences {
        let what = format!("{fence:?}");
        let id = reservation.id_at(0).unwrap();
        let error = reservation.unmap_after(id, fence).unwrap_err();
        assert_eq!(error.code(), Some(Code::ERROR_ILLEGAL_ADDRESS), "{what}");
        assert_eq!(reservation.mapping_count(), 1, "{what}");
    }
    drop(work);
    // The memory itself outlives the context.
    reservation.close().unwrap();
}
