//! Committing and giving back: much at once, in steps, at random.

use std::time::Duration;

use crate::raw::Raw;
use crate::report::{in_turns, microseconds, Random, Report, Target};
use crate::Bench;
use cuda_vmm::{Contents, ElasticRange};

/// All at once, against as few raw handles as that can be: again and again, and with a rest before each round. The driver
/// clears memory that was given back before it gives it out anew, and whoever asks sooner waits for that.
pub(crate) fn at_once(bench: &Bench, report: &mut Report) {
    let block = bench.pick(1 << 30, 16 << 20);
    let size = 4 * block;
    let name = format!("commit {} MiB at once and give back", size >> 20);
    let raw = Raw::reserve(&bench.driver, size, block);
    let range = |contents| {
        bench
            .builder(size)
            .contents(contents)
            .blocks(bench.g..=block)
            .reserve()
    };
    let mut plain = range(Contents::Unspecified).expect("reserve");
    let mut zeroed = range(Contents::Zeroed).expect("reserve");
    let commit = |range: &mut ElasticRange| {
        microseconds(|| {
            range.commit(0, size).expect("commit");
            range.decommit(0, size).expect("decommit");
        })
    };
    let by_hand = || {
        microseconds(|| {
            let handles = [0, 1, 2, 3].map(|nth| raw.map(nth * block, block));
            for (nth, handle) in handles.into_iter().enumerate() {
                raw.unmap(nth * block, block, handle);
            }
        })
    };
    let rests = bench.pick(31, 11);
    let [ours, theirs] = in_turns(
        rests,
        [
            &mut || {
                bench.rest();
                commit(&mut plain)
            },
            &mut || {
                bench.rest();
                by_hand()
            },
        ],
    );
    report.row(
        &format!("{name}, after a rest"),
        ours,
        theirs,
        ours / theirs,
        Target::AtMost(1.25),
    );
    let [ours, theirs, filled] = in_turns(
        bench.pick(101, 11),
        [&mut || commit(&mut plain), &mut || by_hand(), &mut || {
            commit(&mut zeroed)
        }],
    );
    report.row(&name, ours, theirs, ours / theirs, Target::AtMost(1.25));
    report.row(
        &format!("{name}, zeroed"),
        filled,
        theirs,
        filled / theirs,
        Target::None,
    );
    plain.close().expect("close");
    zeroed.close().expect("close");
    raw.free();
}

/// The first growth by much in this process, of which each process has one: a line, in microseconds. The driver makes
/// whoever creates first after memory was released pay for that release; here nothing was, but a little.
pub(crate) fn first(bench: &Bench) {
    let block = bench.pick(1 << 30, 16 << 20);
    let mut range = bench.builder(4 * block).reserve().expect("reserve");
    // What happens once in a process and has nothing to do with the size.
    let little = 32 * bench.g;
    range.commit(0, little).expect("commit");
    range.decommit(0, little).expect("decommit");
    std::thread::sleep(Duration::from_millis(300));
    let commit = microseconds(|| {
        range.commit(0, 4 * block).expect("commit");
    });
    println!("first growth\t{commit:.1}");
    range.close().expect("close");
}

/// A granule at a time, against a handle for each.
pub(crate) fn in_steps(bench: &Bench, report: &mut Report) {
    let (g, steps) = (bench.g, bench.pick(2000, 200));
    let size = (steps * g).next_power_of_two();
    let raw = Raw::reserve(&bench.driver, size, 0);
    let ahead = bench.builder(size).blocks(16 * g..=512 * g);
    let mut ahead = ahead.reserve().expect("reserve");
    let mut cached = bench.builder(size).blocks(g..=512 * g).cache(steps * g);
    cached = cached.contents(Contents::Unspecified);
    let mut cached = cached.reserve().expect("reserve");
    let grow = |range: &mut ElasticRange| {
        microseconds(|| {
            for step in 1..=steps {
                range.resize(step * g).expect("resize");
            }
            range.resize(0).expect("resize");
        }) / steps as f64
    };
    let [ours, theirs, kept] = in_turns(
        bench.pick(11, 5),
        [
            &mut || grow(&mut ahead),
            &mut || {
                microseconds(|| {
                    let handles: Vec<u64> = (0..steps).map(|step| raw.map(step * g, g)).collect();
                    for (step, handle) in handles.into_iter().enumerate() {
                        raw.unmap(step * g, g, handle);
                    }
                }) / steps as f64
            },
            &mut || grow(&mut cached),
        ],
    );
    let name = format!("grow by one granule {steps} times and give back, by step");
    report.row(
        &format!("{name}, blocks of 16"),
        ours,
        theirs,
        ours / theirs,
        Target::AtMost(0.6),
    );
    report.row(
        &format!("{name}, from the cache"),
        kept,
        theirs,
        kept / theirs,
        Target::None,
    );
    ahead.close().expect("close");
    cached.close().expect("close");
    raw.free();
}

/// One granule somewhere, in a range in which much is committed, against the whole raw cycle.
pub(crate) fn at_random(bench: &Bench, report: &mut Report) {
    const GRANULES: usize = 2048;
    let g = bench.g;
    let raw = Raw::reserve(&bench.driver, GRANULES * g, 0);
    // Every other granule is committed; from the cache there is a block for the others.
    let small = bench.builder(GRANULES * g).blocks(g..=g).cache(g);
    let mut small = small.reserve().expect("reserve");
    for granule in (0..bench.pick(GRANULES, 256)).step_by(2) {
        small.commit(granule * g, g).expect("commit");
    }
    let large = |contents| {
        let builder = bench.builder(GRANULES * g).blocks(16 * g..=16 * g);
        let mut range = builder.contents(contents).reserve().expect("reserve");
        for granule in (0..bench.pick(GRANULES, 256)).step_by(2) {
            range.commit(granule * g, g).expect("commit");
        }
        range
    };
    let (mut large, mut zeroed) = (large(Contents::Unspecified), large(Contents::Zeroed));
    let mut random = Random::new();
    let mut somewhere = || 2 * random.below(bench.pick(GRANULES, 256) / 2) + 1;
    let places: Vec<usize> = (0..997).map(|_| somewhere()).collect();
    let next = |turn: &mut usize| {
        *turn += 1;
        places[*turn % places.len()] * g
    };
    let use_one = |range: &mut ElasticRange, offset: usize| {
        microseconds(|| {
            range.commit(offset, g).expect("commit");
            range.decommit(offset, g).expect("decommit");
        })
    };
    let mut turns = [0; 4];
    let [first, second, third, fourth] = &mut turns;
    let [ours, theirs, within, filled] = in_turns(
        bench.pick(2001, 501),
        [
            &mut || use_one(&mut small, next(first)),
            &mut || {
                let offset = next(second);
                microseconds(|| {
                    let handle = raw.map(offset, g);
                    raw.unmap(offset, g, handle);
                })
            },
            &mut || use_one(&mut large, next(third)),
            &mut || use_one(&mut zeroed, next(fourth)),
        ],
    );
    let name = "commit and decommit one granule at random";
    report.row(
        &format!("{name}, from the cache"),
        ours,
        theirs,
        ours / theirs,
        Target::AtMost(0.75),
    );
    report.row(
        &format!("{name}, in blocks of 16"),
        within,
        theirs,
        within / theirs,
        Target::AtMost(0.75),
    );
    report.row(
        &format!("{name}, in blocks of 16, zeroed"),
        filled,
        theirs,
        filled / theirs,
        Target::None,
    );
    for range in [small, large, zeroed] {
        range.close().expect("close");
    }
    raw.free();
}
