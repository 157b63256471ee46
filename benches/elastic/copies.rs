//! Copies on the device over elastic ranges, against the same over ordinary memory.

use cuda_vmm::ElasticRange;

use crate::raw::ok;
use crate::report::{in_turns, microseconds, Report, Target};
use crate::Bench;

pub(crate) fn compare(bench: &Bench, report: &mut Report) {
    let calls = bench.driver.calls_raw().clone();
    let size = bench.pick(2_usize << 30, 32 << 20);
    let copies = bench.pick(20, 2);
    let mut ordinary = 0;
    ok(unsafe { calls.cuMemAlloc_v2(&mut ordinary, size) });

    let mut at_once = bench.builder(size).reserve().expect("reserve");
    at_once.commit(0, size).expect("commit");
    let stepwise = bench.builder(size).blocks(16 * bench.g..=512 * bench.g);
    let mut stepwise = stepwise.reserve().expect("reserve");
    for len in (bench.g..=size).step_by(bench.g) {
        stepwise.resize(len).expect("resize");
    }
    let small = bench.builder(size).blocks(bench.g..=bench.g);
    let mut small = small.reserve().expect("reserve");
    small.commit(0, size).expect("commit");

    // From the first half to the second.
    let copy = |base: u64| {
        microseconds(|| {
            let half = size / 2;
            for _ in 0..copies {
                ok(unsafe { calls.cuMemcpyDtoD_v2(base + half as u64, base, half) });
            }
            ok(unsafe { calls.cuCtxSynchronize() });
        }) / copies as f64
    };
    let [first, second, third] = [&at_once, &stepwise, &small].map(ElasticRange::base);
    let [whole, steps, smallest, plain] = in_turns(
        bench.pick(51, 5),
        [
            &mut || copy(first),
            &mut || copy(second),
            &mut || copy(third),
            &mut || copy(ordinary),
        ],
    );
    let name = format!("copy {} MiB on the device", size >> 21);
    report.row(
        &format!("{name}, committed at once"),
        whole,
        plain,
        plain / whole,
        Target::AtLeast(0.98),
    );
    report.row(
        &format!("{name}, grown by one granule in blocks of 16"),
        steps,
        plain,
        plain / steps,
        Target::AtLeast(0.95),
    );
    report.row(
        &format!("{name}, in blocks of one granule"),
        smallest,
        plain,
        plain / smallest,
        Target::None,
    );
    for range in [at_once, stepwise, small] {
        range.close().expect("close");
    }
    ok(unsafe { calls.cuMemFree_v2(ordinary) });
}
