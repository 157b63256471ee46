//! Copying out and acknowledging, and large slices.

use std::cell::RefCell;

use cuda_vmm::pool::Published;
use cuda_vmm::Reservation;

use crate::publish::publish;
use crate::report::Report;
use crate::rig::{plain, shareable, Raw, Rig};
use crate::turns::{in_turns, microseconds};
use crate::{named, Bench, SMALL};

/// From the ticket's bytes to the copied bytes and the acknowledgement.
fn finish(rig: &Rig, published: &Published, target: &mut Reservation) {
    let lease = rig.consumer.open(published.ticket()).expect("open");
    let copied = lease.copy_to(0, target, 0).expect("copy");
    copied.finish().expect("finish");
}

/// Publishes, takes the slice out in this way, and sees that the pool has it back.
fn out(rig: &Rig, size: usize, work: impl FnOnce(&Published)) -> f64 {
    let published = rig.ready.publish(&rig.payload(0, size)).expect("publish");
    let took = microseconds(|| work(&published));
    assert_eq!(rig.pool.recycle(), 1);
    took
}

/// 4 KiB, against a raw copy and a wait.
pub(crate) fn small(bench: &Bench, report: &mut Report) {
    let rig = Rig::open(bench, 64 << 20, 1 << 16, SMALL);
    let from = shareable(bench, SMALL);
    let target = RefCell::new(plain(bench, SMALL));
    let address = target.borrow().base();
    let raw = Raw::new(&bench.driver);
    let [waited, behind, opened, theirs] = in_turns(
        bench.pick(2001, 201),
        [
            &mut || out(&rig, SMALL, |it| finish(&rig, it, &mut target.borrow_mut())),
            &mut || {
                out(&rig, SMALL, |published| {
                    let lease = rig.consumer.open(published.ticket()).expect("open");
                    let lease = unsafe { lease.on_stream(&bench.device, raw.stream) };
                    let copied = lease.copy_to(0, &mut target.borrow_mut(), 0);
                    copied.expect("copy").acknowledge();
                    raw.wait();
                })
            },
            &mut || {
                out(&rig, SMALL, |published| {
                    let lease = rig.consumer.open(published.ticket()).expect("open");
                    lease.acknowledge();
                })
            },
            &mut || microseconds(|| raw.copy(address, from.base(), SMALL)),
        ],
    );
    let name = format!("copy out {}", named(SMALL));
    report.times(
        format!("{name}, wait, acknowledge by the CPU"),
        waited,
        theirs,
        Some(1.5),
    );
    report.times(
        format!("{name}, acknowledge in stream order, wait"),
        behind,
        theirs,
        Some(1.5),
    );
    report.alone("open and acknowledge, no copy", opened);
    rig.close();
    from.close().expect("close");
    target.into_inner().close().expect("close");
}

/// Large slices, by their rate: against a raw copy of the same size between the same kinds of memory.
pub(crate) fn large(bench: &Bench, report: &mut Report) {
    let sizes = bench.pick([64 << 20, 1 << 30], [1 << 20, 8 << 20]);
    let most = sizes[1];
    let rig = Rig::open(bench, most + (64 << 20), 64, most);
    let pooled = shareable(bench, most);
    let target = RefCell::new(plain(bench, most));
    let address = target.borrow().base();
    let raw = Raw::new(&bench.driver);
    for size in sizes {
        let payload = rig.payload(0, size);
        let [published, raw_in, copied, raw_out] = in_turns(
            bench.pick(51, 5),
            [
                &mut || publish(&rig, &rig.ready, &payload),
                &mut || microseconds(|| raw.copy(pooled.base(), rig.source.base(), size)),
                &mut || out(&rig, size, |it| finish(&rig, it, &mut target.borrow_mut())),
                &mut || microseconds(|| raw.copy(address, pooled.base(), size)),
            ],
        );
        for (what, ours, theirs) in [
            ("publish", published, raw_in),
            ("copy out", copied, raw_out),
        ] {
            let name = format!("{what} {}, share of the raw rate", named(size));
            report.faster(name, ours, theirs, Some(0.95));
        }
    }
    rig.close();
    pooled.close().expect("close");
    target.into_inner().close().expect("close");
}
