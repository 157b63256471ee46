//! The crate's own time in each step, over a driver that does no work.

use std::cell::RefCell;

use cuda_vmm::pool::{Payload, Published};

use crate::report::Report;
use crate::rig::{plain, Rig};
use crate::turns::{in_turns, microseconds};
use crate::{named, Bench, SMALL};

/// Steps that are timed together, each on a slice of its own.
const STEPS: usize = 64;

pub(crate) fn measure(bench: &Bench, report: &mut Report) {
    let rig = Rig::open(bench, 64 << 20, 1 << 16, SMALL);
    let target = RefCell::new(plain(bench, SMALL));
    let payloads: Vec<Payload<'_>> = vec![rig.payload(0, SMALL); STEPS];
    // What has to be set up once is set up before the driver is idle.
    {
        let published = rig.ready.publish(&payloads[0]).expect("publish");
        let lease = rig.consumer.open(published.ticket()).expect("open");
        let copied = lease.copy_to(0, &mut target.borrow_mut(), 0);
        copied.expect("copy").finish().expect("finish");
    }
    bench.counted.set_idle(true);
    let per_step = |took: f64| took / STEPS as f64;
    let batch = || rig.ready.publish_all(&payloads).expect("publish");
    let opened = |published: &Published| rig.consumer.open(published.ticket()).expect("open");
    let [one, many, cancel, decode, open, copy, finish, acknowledge] = in_turns(
        bench.pick(501, 201),
        [
            &mut || {
                let mut published = Vec::with_capacity(STEPS);
                let took = microseconds(|| {
                    for payload in &payloads {
                        published.push(rig.ready.publish(payload).expect("publish"));
                    }
                });
                rig.cancel(&published);
                per_step(took)
            },
            &mut || {
                let mut published = Vec::new();
                let took = microseconds(|| published = batch());
                rig.cancel(&published);
                per_step(took)
            },
            &mut || {
                let published = batch();
                per_step(microseconds(|| rig.cancel(&published)))
            },
            &mut || {
                let published = batch();
                let mut tickets = Vec::with_capacity(STEPS);
                let took = microseconds(|| {
                    for published in &published {
                        tickets.push(rig.consumer.decode(published.ticket()).expect("a ticket"));
                    }
                });
                per_step(took)
            },
            &mut || {
                let tickets: Vec<_> = batch()
                    .iter()
                    .map(|it| rig.consumer.decode(it.ticket()).expect("a ticket"))
                    .collect();
                let mut leases = Vec::with_capacity(STEPS);
                let took = microseconds(|| {
                    leases.extend(tickets.into_iter().map(|it| it.open().expect("open")));
                });
                per_step(took)
            },
            &mut || {
                let leases: Vec<_> = batch().iter().map(opened).collect();
                let mut copied = Vec::with_capacity(STEPS);
                let mut target = target.borrow_mut();
                let took = microseconds(|| {
                    for lease in leases {
                        copied.push(lease.copy_to(0, &mut target, 0).expect("copy"));
                    }
                });
                per_step(took)
            },
            &mut || {
                let mut target = target.borrow_mut();
                let batch = batch();
                let leases: Vec<_> = batch
                    .iter()
                    .map(|it| opened(it).copy_to(0, &mut target, 0).expect("copy"))
                    .collect();
                let finish = |lease: cuda_vmm::pool::Lease| lease.finish().expect("finish");
                per_step(microseconds(|| leases.into_iter().for_each(finish)))
            },
            &mut || {
                let leases: Vec<_> = batch().iter().map(opened).collect();
                per_step(microseconds(|| drop(leases)))
            },
        ],
    );
    bench.counted.set_idle(false);
    let name = |step: &str| format!("crate's own part, {step}");
    report.alone(name(&format!("publish {}", named(SMALL))), one);
    report.alone(
        name(&format!(
            "publish {}, each of a batch of {STEPS}",
            named(SMALL)
        )),
        many,
    );
    report.alone(name("cancel"), cancel);
    report.alone(name("decode a ticket"), decode);
    report.alone(name("open"), open);
    report.alone(name("copy out"), copy);
    report.alone(name("wait and acknowledge by the CPU"), finish);
    report.alone(name("acknowledge without a copy"), acknowledge);
    drop(payloads);
    rig.close();
    target.into_inner().close().expect("close");
}
