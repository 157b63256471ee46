//! Publishing: one slice, many, and with many slices live.

use cuda_vmm::pool::{ElementType, Layout, Payload, Published, Publisher, Source};

use crate::report::Report;
use crate::rig::{shareable, Raw, Rig};
use crate::turns::{in_turns, microseconds};
use crate::{named, Bench, SMALL};

const MANY: usize = 64;
/// Sources of a batch lie so far apart.
const APART: usize = 64 << 10;

/// One publish, whose slice is cancelled afterwards.
pub(crate) fn publish(rig: &Rig, publisher: &Publisher, payload: &Payload<'_>) -> f64 {
    let mut published = None;
    let took = microseconds(|| published = Some(publisher.publish(payload).expect("publish")));
    rig.cancel(published.as_slice());
    took
}

/// 4 KiB, ready to send, against a raw copy and a wait.
pub(crate) fn small(bench: &Bench, report: &mut Report) {
    let rig = Rig::open(bench, 64 << 20, 1 << 16, SMALL);
    let target = shareable(bench, SMALL);
    let raw = Raw::new(&bench.driver);
    let payload = rig.payload(0, SMALL);
    let [ready, behind, theirs] = in_turns(
        bench.pick(2001, 201),
        [
            &mut || publish(&rig, &rig.ready, &payload),
            &mut || publish(&rig, &rig.publisher, &payload),
            &mut || microseconds(|| raw.copy(target.base(), rig.source.base(), SMALL)),
        ],
    );
    let name = format!("publish {}", named(SMALL));
    report.times(format!("{name}, sources ready"), ready, theirs, Some(1.5));
    report.times(
        format!("{name}, behind the default stream"),
        behind,
        theirs,
        Some(1.5),
    );
    rig.close();
    target.close().expect("close");
}

/// 64 slices as one batch, and 64 parts in one slice, against 64 publishes.
pub(crate) fn batch(bench: &Bench, report: &mut Report) {
    let rig = Rig::open(bench, 64 << 20, 1 << 16, MANY * APART);
    let target = shareable(bench, MANY * SMALL);
    let raw = Raw::new(&bench.driver);
    let slices: Vec<Payload<'_>> = (0..MANY)
        .map(|index| rig.payload(index * APART, SMALL))
        .collect();
    let layout = Layout::new(ElementType::U8, &[SMALL]).expect("a layout");
    let source = |index| Source::view(&rig.source.view(index * APART, SMALL).expect("mapped"));
    let packed = (1..MANY).fold(Payload::tensor(source(0), layout), |payload, index| {
        payload.and(source(index), layout)
    });
    let mut published: Vec<Published> = Vec::with_capacity(MANY);
    let [together, in_one, single, theirs] = in_turns(
        bench.pick(201, 21),
        [
            &mut || {
                let mut batch = Vec::new();
                let took =
                    microseconds(|| batch = rig.ready.publish_all(&slices).expect("publish"));
                rig.cancel(&batch);
                took
            },
            &mut || publish(&rig, &rig.ready, &packed),
            &mut || {
                let took = microseconds(|| {
                    for payload in &slices {
                        published.push(rig.ready.publish(payload).expect("publish"));
                    }
                });
                rig.cancel(&published);
                published.clear();
                took
            },
            &mut || {
                microseconds(|| {
                    for index in 0..MANY {
                        let to = target.base() + (index * SMALL) as u64;
                        let from = rig.source.base() + (index * APART) as u64;
                        raw.enqueue(to, from, SMALL);
                    }
                    raw.wait();
                })
            },
        ],
    );
    let name = format!("publish {MANY} x {}", named(SMALL));
    let one_batch = format!("{name} as one batch");
    report.faster(
        format!("{one_batch}, against one by one"),
        together,
        single,
        Some(20.0),
    );
    report.times(
        format!("{one_batch}, against {MANY} raw copies and one wait"),
        together,
        theirs,
        None,
    );
    report.faster(
        format!("{name} packed in one slice, against one by one"),
        in_one,
        single,
        None,
    );
    rig.close();
    target.close().expect("close");
}

/// One publish while so many slices are live, with a hole behind each, against 100 of them.
pub(crate) fn with_many_live(bench: &Bench, report: &mut Report) {
    const LIVE: [usize; 2] = [100, 100_000];
    const HELD: usize = 256;
    const AT_ONCE: usize = 1000;
    let rigs = LIVE.map(|live| {
        let rig = Rig::open(bench, 64 << 20, 1 << 18, SMALL);
        let payload = rig.payload(0, HELD);
        let mut published = Vec::with_capacity(2 * live);
        while published.len() < 2 * live {
            let count = AT_ONCE.min(2 * live - published.len());
            let batch = vec![payload.clone(); count];
            published.extend(rig.ready.publish_all(&batch).expect("publish"));
        }
        // Every other one goes.
        let (holes, held): (Vec<_>, Vec<_>) = published
            .into_iter()
            .enumerate()
            .partition(|(index, _)| index % 2 == 0);
        let only = |these: Vec<(usize, Published)>| -> Vec<Published> {
            these.into_iter().map(|(_, published)| published).collect()
        };
        rig.cancel(&only(holes));
        assert_eq!(rig.pool.counters().busy, live * HELD);
        (rig, only(held))
    });
    let [few, many] = &rigs;
    let payloads = [few.0.payload(0, SMALL), many.0.payload(0, SMALL)];
    let [theirs, ours] = in_turns(
        bench.pick(2001, 201),
        [
            &mut || publish(&few.0, &few.0.ready, &payloads[0]),
            &mut || publish(&many.0, &many.0.ready, &payloads[1]),
        ],
    );
    let name = format!(
        "publish {} with {} live slices, against {}",
        named(SMALL),
        LIVE[1],
        LIVE[0]
    );
    report.times(name, ours, theirs, Some(2.0));
    drop(payloads);
    for (rig, held) in rigs {
        rig.cancel(&held);
        rig.close();
    }
}
