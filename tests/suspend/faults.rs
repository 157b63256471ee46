//! Every driver call of every operation made to fail: alone, with each of the next ones, and with all after it.
//!
//! What must hold then: each member is awake whole or asleep whole, the error says which, nothing is lost, and what was
//! not done can be done when the driver is well again. A failure alone that is undone leaves the driver's very state.

use cuda_vmm::sim::{CallRecord, Fault};
use cuda_vmm::suspend::{Backup, Group, Incomplete, MemberId, Resumed, Select, Suspended};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, Code, Error};

use crate::ground::Ground;
use crate::scene::Pair;
use crate::Case;

pub const CASES: &[Case] = &[
    ("faults while suspending", |_| {
        matrix(SMALL, fresh, Op::Suspend)
    }),
    ("faults while suspending with kept host memory", |_| {
        matrix(SMALL, warm, Op::Suspend)
    }),
    ("faults while suspending over several blocks", |_| {
        matrix(LARGE, fresh, Op::Suspend)
    }),
    ("faults while resuming", |_| {
        matrix(SMALL, slept, Op::Resume)
    }),
    ("faults while resuming with kept host memory", |_| {
        matrix(SMALL, slept_warm, Op::Resume)
    }),
    ("faults while resuming over several blocks", |_| {
        matrix(LARGE, slept, Op::Resume)
    }),
    ("rights lent for a copy are taken back", lent_rights),
];

/// Granularities: of one block of host memory, and of two.
const SMALL: usize = 64 << 10;
const LARGE: usize = 512 << 10;

const CODES: [CUresult; 4] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Suspend,
    Resume,
}

/// What either operation came to.
struct Outcome {
    error: Option<Error>,
    done: Vec<MemberId>,
    left: Vec<MemberId>,
}

impl Op {
    fn run(self, group: &mut Group) -> Outcome {
        match self {
            Op::Suspend => outcome(group.suspend(Select::All), |done: &Suspended| &done.members),
            Op::Resume => outcome(group.resume(Select::All), |done: &Resumed| &done.members),
        }
    }
}

fn outcome<R>(result: Result<R, Box<Incomplete<R>>>, members: fn(&R) -> &Vec<MemberId>) -> Outcome {
    match result {
        Ok(done) => Outcome {
            error: None,
            done: members(&done).clone(),
            left: Vec::new(),
        },
        Err(incomplete) => Outcome {
            done: members(&incomplete.done).clone(),
            left: incomplete.left.clone(),
            error: Some(incomplete.into_error()),
        },
    }
}

fn fresh(ground: &Ground) -> Pair {
    Pair::new(ground)
}

fn warm(ground: &Ground) -> Pair {
    let mut pair = Pair::with(ground, |group| group.keep_host_memory(true));
    pair.group.suspend("weights").unwrap();
    pair.group.resume("weights").unwrap();
    pair
}

fn slept(ground: &Ground) -> Pair {
    let mut pair = fresh(ground);
    pair.group.suspend(Select::All).unwrap();
    pair
}

fn slept_warm(ground: &Ground) -> Pair {
    let mut pair = warm(ground);
    pair.group.suspend(Select::All).unwrap();
    pair
}

type Prepare = fn(&Ground) -> Pair;

fn matrix(granularity: usize, prepare: Prepare, op: Op) {
    let calls = disturbed(granularity, prepare, op, &[]).len() as u64;
    assert!(calls > 20, "{op:?} made {calls} calls");
    let mut tried = 0;
    for first in 1..=calls {
        for code in CODES {
            let fault = Fault::any_nth(first).code(code);
            disturbed(granularity, prepare, op, &[fault]);
            tried += 1;
        }
        if granularity == LARGE {
            continue;
        }
        let fault = Fault::any_nth(first).code(CODES[0]);
        for later in first + 1..=first + 4 {
            let second = Fault::any_nth(later).code(CODES[3]);
            disturbed(granularity, prepare, op, &[fault, second]);
        }
        let rest = Fault::any_nth(first + 1).code(CODES[3]).forever();
        disturbed(granularity, prepare, op, &[fault, rest]);
        tried += 5;
    }
    println!("{op:?}: {calls} calls, {tried} combinations");
}

/// Runs the operation under these faults, checks what it says and what is left, mends it, and gives the calls it made.
fn disturbed(granularity: usize, prepare: Prepare, op: Op, faults: &[Fault]) -> Vec<CallRecord> {
    let ground = Ground::small(granularity);
    let sim = ground.sim.clone().unwrap();
    let mut pair = prepare(&ground);
    let (kept, dropped) = (pair.kept.id(), pair.dropped.id());
    let second_slept = pair.group.is_suspended(dropped).unwrap();
    let before = sim.snapshot();
    sim.clear_log();
    for fault in faults {
        sim.inject(*fault).unwrap();
    }
    let Outcome { error, done, left } = op.run(&mut pair.group);
    sim.clear_faults();
    let log = sim.log();
    ground.take_contexts_off();
    let what = format!("{op:?} under {faults:?}: {error:?}");

    // Everybody is on one side, and is there whole.
    let mut all = done.clone();
    all.extend(&left);
    all.sort();
    assert_eq!(all, [kept, dropped], "{what}");
    let undone = error
        .as_ref()
        .map_or(0, |error| error.undo_failures().len());
    for member in [kept, dropped] {
        let asleep = pair.group.is_suspended(member).unwrap();
        assert_eq!(
            asleep,
            done.contains(&member) == (op == Op::Suspend),
            "{what}"
        );
        let outline = pair.group.outline(member).unwrap();
        let addresses = outline.base()..outline.base() + outline.size() as u64;
        let mapped = sim.snapshot().mappings;
        let here = mapped.iter().filter(|one| addresses.contains(&one.address));
        let expected = if asleep { 0 } else { 8 };
        assert!(
            here.count() == expected || undone > 0,
            "{what}\n{}",
            sim.snapshot()
        );
    }
    let silent = told(&log, error.as_ref(), &what);
    if let Some(error) = &error {
        if done.is_empty() && undone + silent == 0 {
            let after = sim.snapshot();
            assert!(
                after == before,
                "{what} left\n{}\nnot\n{before}",
                sim.snapshot()
            );
        }
        assert!(faults.len() > 1 || undone == 0, "one failure: {error:?}");
    }
    if undone == 0
        && !pair.group.is_suspended(kept).unwrap()
        && !pair.group.is_suspended(dropped).unwrap()
    {
        pair.intact(&ground, second_slept || done.contains(&dropped));
    }

    // The driver is well again: what was left can be done, and all is as it was.
    let mended = op.run(&mut pair.group);
    assert!(mended.error.is_none(), "{what}, then {:?}", mended.error);
    assert_eq!(mended.done, left, "{what}");
    // What is awake after a failed undo has its rights and handles again when it has slept.
    pair.group.resume(Select::All).unwrap();
    pair.group.suspend(Select::All).unwrap();
    pair.group.resume(Select::All).unwrap();
    pair.intact(&ground, true);
    pair.group.close().unwrap();
    drop(pair.pages);
    ground
        .leaves_nothing()
        .unwrap_or_else(|left| panic!("{what}: {left:?}"));
    log
}

/// Every call that failed is told of, in order; but for those that give the host's memory back, which is tried again.
/// Gives how many those are.
fn told(log: &[CallRecord], error: Option<&Error>, what: &str) -> usize {
    let mut silent = 0;
    let failed: Vec<&CallRecord> = log
        .iter()
        .filter(|record| record.result != CUresult::CUDA_SUCCESS)
        .collect();
    let named: Vec<(Call, Code)> = error
        .iter()
        .flat_map(|error| std::iter::once(error.first()).chain(error.undo_failures()))
        .map(|error| failed_call(error).unwrap_or_else(|| panic!("{what}: {error:?}")))
        .collect();
    let mut named = named.into_iter().peekable();
    for record in failed {
        if named.peek() == Some(&(record.call, record.result.into())) {
            named.next();
            continue;
        }
        let giving_back = [
            Call::cuMemHostUnregister,
            Call::cuCtxPushCurrent_v2,
            Call::cuCtxPopCurrent_v2,
            Call::cuDevicePrimaryCtxRetain,
        ];
        assert!(
            giving_back.contains(&record.call),
            "{what}: {record} is not told of"
        );
        silent += 1;
    }
    assert_eq!(named.next(), None, "{what}: more is told than happened");
    silent
}

fn failed_call(error: &Error) -> Option<(Call, Code)> {
    match error {
        Error::Driver(failure) => Some((failure.call, failure.code)),
        Error::OutOfMemory { .. } => Some((Call::cuMemCreate, Code::ERROR_OUT_OF_MEMORY)),
        _ => None,
    }
}

/// Two parts that no device may read are lent a right one after the other, and the second is refused.
fn lent_rights(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    let g = ground.g;
    let mut kv = ground.reserve(3);
    for at in 0..3 {
        kv.map(at * g, g, &ground.props()).unwrap();
    }
    for at in [0, 2] {
        kv.set_access(at * g, g, ground.device(), Access::None)
            .unwrap();
    }
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "weights", Backup::Host).unwrap();
    let before = sim.snapshot();
    let refused = Fault::on(Call::cuMemSetAccess).nth(2);
    sim.inject(refused.code(CUresult::CUDA_ERROR_NOT_PERMITTED))
        .unwrap();
    let error = group.suspend(&key).unwrap_err();
    assert_eq!(error.error.code(), Some(Code::ERROR_NOT_PERMITTED));
    assert_eq!(error.left, [key.id()]);
    assert_eq!(sim.snapshot(), before);
    group.suspend(&key).unwrap();
    group.close().unwrap();
}
