//! Recycle passes, which read host memory only.

use crate::report::Report;
use crate::rig::Rig;
use crate::turns::{in_turns, microseconds};
use crate::{Bench, SMALL};

/// Passes that are timed together where a pass changes nothing.
const PASSES: usize = 100;

pub(crate) fn passes(bench: &Bench, report: &mut Report) {
    for live in [1, 64, 1024] {
        // A pool of its own: a pass looks at all slots that were ever used.
        let rig = Rig::open(bench, 64 << 20, 1 << 16, SMALL);
        let payloads = vec![rig.payload(0, SMALL); live];
        let pass = |frees: usize| {
            let before = bench.counted.calls();
            assert_eq!(rig.pool.recycle(), frees);
            assert_eq!(bench.counted.calls(), before, "driver calls of a pass");
        };
        let held = rig.ready.publish_all(&payloads).expect("publish");
        let [none] = in_turns(
            bench.pick(201, 51),
            [&mut || microseconds(|| (0..PASSES).for_each(|_| pass(0))) / PASSES as f64],
        );
        rig.cancel(&held);
        let [all] = in_turns(
            bench.pick(201, 51),
            [&mut || {
                let batch = rig.ready.publish_all(&payloads).expect("publish");
                for published in &batch {
                    // Dropping a ticket acknowledges.
                    drop(rig.consumer.decode(published.ticket()).expect("a ticket"));
                }
                microseconds(|| pass(live))
            }],
        );
        report.alone(format!("recycle pass, {live} live"), none);
        report.alone(format!("recycle pass, {live} freed"), all);
        rig.close();
    }
}
