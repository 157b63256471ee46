//! What is waited for.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cuda_vmm::{Error, Fence};

use crate::stage::{ok, Stage};

pub fn a_stream_is_waited_for(stage: &Stage) {
    let (mut reservation, id, work) = stage.busy();
    assert!(work.is_running());
    work.end_soon();
    reservation.unmap_after(id, work.fence()).unwrap();
    assert_eq!(reservation.mapping_count(), 0);
    work.ended_well();
    reservation.close().unwrap();
}

pub fn an_event_is_waited_for(stage: &Stage) {
    let (mut reservation, id, work) = stage.busy();
    assert!(work.is_running());
    work.end_soon();
    reservation
        .unmap_after(id, unsafe { Fence::event(&stage.device, work.event) })
        .unwrap();
    work.ended_well();
    reservation.close().unwrap();
}

pub fn the_default_stream_is_waited_for(stage: &Stage) {
    let mut reservation = stage.reserve();
    let id = reservation.map(0, stage.large, &stage.props).unwrap();
    let current = stage.device.make_current().unwrap();
    for round in 0..10 {
        let stream = std::ptr::null_mut();
        unsafe {
            ok(stage
                .calls()
                .cuMemsetD8Async(reservation.base(), round, stage.large, stream))
        };
    }
    reservation
        .unmap_after(id, Fence::default_stream(&stage.device))
        .unwrap();
    unsafe { ok(stage.calls().cuCtxSynchronize()) };
    drop(current);
    reservation.close().unwrap();
}

pub fn a_closure_comes_before_the_unmap(stage: &Stage) {
    let mut reservation = stage.reserve();
    let id = reservation.map(0, stage.granule(), &stage.props).unwrap();
    let address = reservation.base();
    let (driver, seen) = (stage.driver.clone(), Mutex::new(None));
    let fence = Fence::closure(|deadline| {
        assert_eq!(deadline, None);
        *seen.lock().unwrap() = Some(driver.is_vmm(address));
        Ok::<_, Error>(())
    });
    reservation.unmap_after(id, fence).unwrap();
    assert!(
        seen.into_inner()
            .unwrap()
            .expect("the closure was called")
            .unwrap(),
        "it was mapped then"
    );
    assert!(!driver.is_vmm(address).unwrap(), "and is not now");
    reservation.close().unwrap();
}

pub fn a_range_is_unmapped_after_its_work(stage: &Stage) {
    let (mut reservation, _, work) = stage.busy();
    reservation
        .map(stage.large, stage.granule(), &stage.props)
        .unwrap();
    work.end_soon();
    reservation
        .unmap_range_after(0, stage.large + stage.granule(), work.fence())
        .unwrap();
    assert_eq!(reservation.mapping_count(), 0);
    work.ended_well();
    reservation.close().unwrap();
}

pub fn a_deadline_gives_up_with_everything_mapped(stage: &Stage) {
    let (mut reservation, id, work) = stage.busy();
    let picture = reservation.to_string();
    let patience = Duration::from_millis(3);
    let start = Instant::now();
    match reservation.unmap_after(id, work.fence().within(patience)) {
        Err(Error::DeadlinePassed { waited }) => {
            // The deadline was set before the wait began: on a busy machine less than the patience is left for it.
            assert!(start.elapsed() >= patience && waited <= start.elapsed())
        }
        other => panic!("{other:?}"),
    }
    assert!(work.is_running(), "the work goes on");
    assert_eq!(reservation.to_string(), picture);
    work.end_soon();
    let id = reservation.id_at(0).expect("it is still mapped");
    reservation.unmap_after(id, work.fence()).unwrap();
    work.ended_well();
    reservation.close().unwrap();
}

pub fn a_deadline_that_is_kept_unmaps(stage: &Stage) {
    let (mut reservation, id, work) = stage.busy();
    work.end_soon();
    reservation
        .unmap_after(id, work.fence().within(Duration::from_secs(30)))
        .unwrap();
    work.ended_well();
    // Work that is done by then is done, however late somebody looks.
    let passed = Fence::default_stream(&stage.device).until(Instant::now());
    reservation.close_after(passed).unwrap();
}
