//! Random programs on a group of elastic ranges, in which several calls fail at once, undoing included. Then less can be
//! said, but never nothing: what is committed is mapped or in quarantine, what is readable is what was written, what is
//! counted is there, and in the end everything goes.

use std::ops::Range;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::suspend::{Backup, Group, Key};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, Contents, ElasticRange, Fence};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::ground::Ground;
use crate::Case;

pub const SIMULATED: &[Case] = &[(
    "random programs on elastic ranges with calls that fail together",
    together,
)];

/// Granules of a member.
const SIZE: usize = 16;

const CODES: [CUresult; 3] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// Calls that undo, or are undone.
const CALLS: [Call; 7] = [
    Call::cuMemUnmap,
    Call::cuMemRelease,
    Call::cuMemRetainAllocationHandle,
    Call::cuMemMap,
    Call::cuMemSetAccess,
    Call::cuMemAddressFree,
    Call::cuMemCreate,
];

#[derive(Debug, Clone, Copy)]
enum Op {
    Commit(usize, usize),
    Decommit(usize, usize),
    Split(usize, usize),
    Resize(usize),
    Trim(usize),
    Grant(Access),
    Suspend,
    Resume,
}

#[derive(Debug, Clone)]
struct Step {
    member: usize,
    op: Op,
    /// Any call, by its number from here on.
    single: Vec<(u64, usize)>,
    /// Calls of a kind: from which on they fail, and how often.
    kinds: Vec<(usize, u64, u64)>,
}

fn part() -> impl Strategy<Value = (usize, usize)> {
    (0..SIZE, 1..=SIZE).prop_map(|(at, size)| (at, size.min(SIZE - at)))
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        5 => part().prop_map(|(at, size)| Op::Commit(at, size)),
        4 => part().prop_map(|(at, size)| Op::Decommit(at, size)),
        4 => part().prop_map(|(at, size)| Op::Split(at, size)),
        1 => (0..=SIZE).prop_map(Op::Resize),
        1 => (0usize..4).prop_map(Op::Trim),
        1 => prop_oneof![Just(Access::None), Just(Access::ReadWrite)].prop_map(Op::Grant),
        3 => Just(Op::Suspend),
        4 => Just(Op::Resume),
    ];
    let single = prop::collection::vec((1u64..14, 0..CODES.len()), 0..3);
    let kinds = prop::collection::vec((0..CALLS.len(), 1u64..4, 1u64..4), 0..3);
    let faults = prop_oneof![
        1 => Just((Vec::new(), Vec::new())),
        2 => (single, kinds),
    ];
    (0usize..2, op, faults).prop_map(|(member, op, (single, kinds))| Step {
        member,
        op,
        single,
        kinds,
    })
}

fn together(_: &Ground) {
    let contents = prop_oneof![Just(Contents::Zeroed), Just(Contents::ZeroedUnlessFresh)];
    let programs = (
        0u32..3,
        0usize..12,
        contents,
        prop::collection::vec(step(), 1..24),
    );
    let cases = std::env::var("CUDA_VMM_RANGES_CASES").map_or(300, |it| it.parse().unwrap());
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        cases,
        ..Config::default()
    });
    let play = |(least, cache, contents, steps): (u32, usize, Contents, Vec<Step>)| {
        play(least, cache, contents, &steps);
        Ok(())
    };
    if let Err(failure) = runner.run(&programs, play) {
        panic!("{failure}");
    }
}

struct One {
    key: Key<ElasticRange>,
    /// What fills each granule that is committed.
    model: Vec<Option<u8>>,
    keeps: bool,
    /// Whether its contents went with its memory.
    dropped: bool,
    /// What the second device may do, unless that could not be undone.
    peer: Option<Access>,
}

fn play(least: u32, cache: usize, contents: Contents, steps: &[Step]) {
    let device = || {
        SimDevice::new()
            .memory(48 << 16)
            .granularity(1 << 16, 1 << 16)
    };
    let builder = Simulation::builder().device(device()).device(device());
    let ground = Ground::on(builder.build().unwrap());
    let (sim, g) = (ground.sim.clone().unwrap(), ground.g);
    let mut group = Group::new(&ground.driver)
        .host_block(1)
        .keep_host_memory(true);
    let mut members: Vec<One> = [Backup::Host, Backup::None]
        .into_iter()
        .map(|backup| {
            let range = ElasticRange::builder(SIZE * g, &ground.props())
                .access(ground.device(), Access::ReadWrite)
                .blocks(g << least..=8 * g)
                .cache(cache * g)
                .contents(contents)
                .reserve()
                .unwrap();
            One {
                key: group.add(range, "range", backup).unwrap(),
                model: vec![None; SIZE],
                keeps: backup == Backup::Host,
                dropped: false,
                peer: Some(Access::None),
            }
        })
        .collect();
    let mut next = 1;
    for step in steps {
        for (nth, code) in &step.single {
            sim.inject(Fault::any_nth(*nth).code(CODES[*code])).unwrap();
        }
        for (call, nth, times) in &step.kinds {
            let fault = Fault::on(CALLS[*call]).nth(*nth).times(*times);
            sim.inject(fault.code(CUresult::CUDA_ERROR_UNKNOWN))
                .unwrap();
        }
        take(&mut group, &mut members[step.member], step.op, &ground, g);
        sim.clear_faults();
        ground.take_contexts_off();
        for one in &mut members {
            agree(&mut group, one, &ground, &mut next);
        }
    }
    let closed = group.close();
    closed.unwrap();
    ground.driver.reclaim().unwrap();
    ground.leaves_nothing().unwrap();
}

/// Does one thing, which may fail, and notes in the model what is sure.
fn take(group: &mut Group, one: &mut One, op: Op, ground: &Ground, g: usize) {
    match op {
        Op::Suspend => {
            if group.suspend(&one.key).is_ok() {
                one.dropped = !one.keeps;
            }
            return;
        }
        Op::Resume => {
            let _ = group.resume(&one.key);
            return;
        }
        _ => {}
    }
    let Ok(range) = group.get_mut(&one.key) else {
        return;
    };
    let vouched = || Fence::closure(|_| Ok::<_, String>(()));
    let old = range.len();
    let (part, result): (Range<usize>, _) = match op {
        Op::Commit(at, size) => (at..at + size, range.commit(at * g, size * g).map(drop)),
        Op::Decommit(at, size) => (at..at + size, range.decommit(at * g, size * g).map(drop)),
        Op::Split(at, size) => {
            let done = range.decommit_splitting(at * g, size * g, vouched());
            (at..at + size, done.map(drop))
        }
        Op::Resize(len) => (
            len.min(old / g)..len.max(old / g),
            range.resize(len * g).map(drop),
        ),
        Op::Trim(to) => (0..0, range.trim(to * g).map(drop)),
        Op::Grant(access) => {
            let device = &ground.devices[1];
            (0..0, range.set_policy(device, access))
        }
        Op::Suspend | Op::Resume => return,
    };
    let clean = result
        .as_ref()
        .map_or_else(|error| error.undo_failures().is_empty(), |()| true);
    if let Op::Grant(access) = op {
        one.peer = match (&result, clean) {
            (Ok(()), _) => Some(access),
            (Err(_), true) => one.peer,
            (Err(_), false) => None,
        };
    }
    for at in 0..SIZE {
        let committed = range.is_committed(at * g, g);
        let was = one.model[at].is_some();
        match (was, committed) {
            // Zero was promised.
            (false, true) => {
                assert!(result.is_ok() && part.contains(&at), "{op:?}: {result:?}");
                one.model[at] = Some(0);
            }
            (true, false) => {
                let told = result.is_ok() || matches!(op, Op::Split(..));
                assert!(told && (part.contains(&at) || !clean), "{op:?}: {result:?}");
                one.model[at] = None;
            }
            _ => {}
        }
    }
}

/// What must be true whatever failed; and what was committed a moment ago gets a byte of its own.
fn agree(group: &mut Group, one: &mut One, ground: &Ground, next: &mut u8) {
    let g = ground.g;
    if group.is_suspended(one.key.id()).unwrap() {
        return;
    }
    let range = group.get_mut(&one.key).unwrap();
    if std::mem::take(&mut one.dropped) {
        for value in one.model.iter_mut().flatten() {
            *value = 0;
        }
    }
    let blocks = range.reservation().mappings();
    assert_eq!(
        range.retained_bytes(),
        blocks.map(|block| block.size()).sum::<usize>()
    );
    let mut bytes = vec![0; g];
    for at in 0..SIZE {
        let Some(value) = one.model[at] else { continue };
        let block = range.reservation().mapping_at(at * g);
        let Some(block) = block else {
            panic!("granule {at} is committed, and nothing is there: {range}");
        };
        if block.is_quarantined() {
            continue;
        }
        let peers = range.access_of(at * g, &ground.devices[1]).unwrap();
        assert_eq!(peers, one.peer.unwrap_or(peers), "granule {at}");
        range.read(at * g, &mut bytes).unwrap();
        let wrong = bytes.iter().find(|byte| **byte != value);
        assert_eq!(wrong, None, "granule {at} is not {value}");
        if value == 0 {
            range.fill(at * g, g, *next).unwrap();
            one.model[at] = Some(*next);
            *next = next.checked_add(1).unwrap_or(1);
        }
    }
}
