//! Closing once the work is done, here or in the background.

use std::sync::mpsc;

use cuda_vmm::Fence;

use crate::stage::{broken, is_broken, ok, Stage};

pub fn close_waits(stage: &Stage) {
    let (reservation, _, work) = stage.busy();
    work.end_soon();
    reservation.close_after(work.fence()).unwrap();
    work.ended_well();
}

pub fn close_in_the_background_waits(stage: &Stage) {
    let (reservation, _, work) = stage.busy();
    let (go, gone) = mpsc::channel();
    let closing = reservation
        .close_in_background(Fence::closure(move |_| gone.recv()))
        .unwrap();
    assert!(!closing.is_finished());
    work.end_soon();
    unsafe { ok(stage.calls().cuStreamSynchronize(work.stream)) };
    go.send(()).unwrap();
    closing.join().unwrap();
    work.ended_well();
}

pub fn a_failed_wait_in_the_background_comes_back(stage: &Stage) {
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    let picture = reservation.to_string();
    let unclosed = reservation
        .close_in_background(broken())
        .unwrap()
        .join()
        .unwrap_err();
    assert!(is_broken(&unclosed.error));
    assert_eq!(unclosed.reservation.to_string(), picture);
    unclosed.reservation.into_inner().close().unwrap();
}
