//! Random programs against a model: whatever is mapped, written, granted, suspended and resumed, in any order and with
//! calls that fail, contents and rights are what the model says.

use std::collections::BTreeMap;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::suspend::{Backup, Group, Key, MemberId, Select};
use cuda_vmm::sys::CUresult;
use cuda_vmm::{Access, Allocation, Error, Reservation};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::ground::Ground;
use crate::Case;

pub const CASES: &[Case] = &[("random programs", on_this)];
pub const SIMULATED: &[Case] = &[
    ("random programs on a small simulated driver", |_| {
        simulated(false, 300)
    }),
    ("random programs with failing calls", |_| {
        simulated(true, 500)
    }),
];

/// Granules of a member.
const SIZE: usize = 12;
const MEMBERS: usize = 3;

const CODES: [CUresult; 3] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// A step, and the call that is to fail in it: which, with what code, and whether all after it fail too.
type Step = (Op, Option<(u64, usize, bool)>);

#[derive(Debug, Clone, Copy)]
enum Op {
    Map {
        member: usize,
        at: usize,
        size: usize,
        kind: Kind,
    },
    Unmap {
        member: usize,
        at: usize,
    },
    Fill {
        member: usize,
        at: usize,
        value: u8,
    },
    Grant {
        member: usize,
        at: usize,
        access: Access,
    },
    Suspend(Whom),
    Resume(Whom),
    Trim,
    Replace {
        member: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Own,
    Releasing,
    Page,
}

#[derive(Debug, Clone, Copy)]
enum Whom {
    All,
    Tag(usize),
    Member(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let member = || 0..MEMBERS;
    let kind = prop_oneof![2 => Just(Kind::Own), 1 => Just(Kind::Releasing), 1 => Just(Kind::Page)];
    let access = prop_oneof![
        Just(Access::None),
        Just(Access::Read),
        Just(Access::ReadWrite)
    ];
    let whom = || {
        prop_oneof![
            Just(Whom::All),
            (0..2usize).prop_map(Whom::Tag),
            (0..MEMBERS).prop_map(Whom::Member)
        ]
    };
    prop_oneof![
        4 => (member(), 0..SIZE, 1..4usize, kind)
            .prop_map(|(member, at, size, kind)| Op::Map { member, at, size, kind }),
        1 => (member(), 0..SIZE).prop_map(|(member, at)| Op::Unmap { member, at }),
        4 => (member(), 0..SIZE, 1..255u8).prop_map(|(member, at, value)| Op::Fill { member, at, value }),
        2 => (member(), 0..SIZE, access).prop_map(|(member, at, access)| Op::Grant { member, at, access }),
        4 => whom().prop_map(Op::Suspend),
        4 => whom().prop_map(Op::Resume),
        1 => Just(Op::Trim),
        1 => member().prop_map(|member| Op::Replace { member }),
    ]
}

fn program(faults: bool) -> impl Strategy<Value = Vec<Step>> {
    let strike = (1..60u64, 0..CODES.len(), any::<bool>());
    let strike = match faults {
        true => prop::option::weighted(0.4, strike).boxed(),
        false => Just(None).boxed(),
    };
    prop::collection::vec((op(), strike), 1..60)
}

fn on_this(ground: &Ground) {
    // Two on a real machine: its granules are large.
    play_all(ground.sim.is_some(), 20, |steps| play(ground, steps));
}

fn simulated(faults: bool, programs: u32) {
    play_all(faults, programs, |steps| {
        let device = SimDevice::new().memory(4 << 20).granularity(4096, 4096);
        let ground = Ground::on(Simulation::builder().device(device).build().unwrap());
        play(&ground, steps);
        ground
            .leaves_nothing()
            .unwrap_or_else(|left| panic!("{left:?}"));
    });
}

fn play_all(faults: bool, programs: u32, run: impl Fn(&[Step])) {
    let config = Config {
        cases: programs,
        // A program that fails becomes a test of its own; no folder of seeds beside the sources.
        failure_persistence: None,
        ..Config::default()
    };
    let played = TestRunner::new(config).run(&program(faults), |steps| {
        run(&steps);
        Ok(())
    });
    played.unwrap_or_else(|error| panic!("{error}"));
}

/// A mapping as it has to be.
#[derive(Debug, Clone)]
struct Mapped {
    size: usize,
    kind: Kind,
    access: Access,
    /// What each granule is filled with; of a page its one value is the member's.
    values: Vec<u8>,
}

struct Model {
    key: Key<Reservation>,
    backup: Backup,
    asleep: bool,
    mapped: BTreeMap<usize, Mapped>,
    page: Allocation,
    page_value: u8,
}

impl Model {
    fn around(&self, granule: usize) -> Option<(usize, &Mapped)> {
        let (at, mapped) = self.mapped.range(..=granule).next_back()?;
        (granule < at + mapped.size).then_some((*at, mapped))
    }

    fn free(&self, at: usize, size: usize) -> bool {
        at + size <= SIZE && (at..at + size).all(|granule| self.around(granule).is_none())
    }

    fn slept(&mut self) {
        if self.backup == Backup::None {
            let own = self.mapped.values_mut();
            for mapped in own.filter(|mapped| mapped.kind != Kind::Page) {
                mapped.values.fill(0);
            }
        }
    }
}

fn tag(member: usize) -> &'static str {
    ["even", "odd"][member % 2]
}

fn backup(member: usize) -> Backup {
    [Backup::Host, Backup::None, Backup::Host][member % 3]
}

fn member(ground: &Ground, group: &mut Group, number: usize) -> Model {
    let page = ground.props().create(ground.g).unwrap();
    let key = group
        .add(ground.reserve(SIZE), tag(number), backup(number))
        .unwrap();
    Model {
        key,
        backup: backup(number),
        asleep: false,
        mapped: BTreeMap::new(),
        page,
        page_value: 0,
    }
}

fn play(ground: &Ground, steps: &[Step]) {
    let mut group = Group::new(&ground.driver).host_block(1);
    let keep = steps.len() % 2 == 0;
    group = group.keep_host_memory(keep);
    let mut members: Vec<Model> = (0..MEMBERS)
        .map(|number| member(ground, &mut group, number))
        .collect();
    for (op, strike) in steps {
        if let (Some((nth, code, on)), Some(sim)) = (strike, &ground.sim) {
            let fault = Fault::any_nth(*nth).code(CODES[*code]);
            sim.inject(if *on { fault.forever() } else { fault })
                .unwrap();
        }
        let doubt = step(ground, &mut group, &mut members, *op);
        if let Some(sim) = &ground.sim {
            sim.clear_faults();
        }
        ground.take_contexts_off();
        if doubt {
            mend(&mut group, &mut members);
        }
        check(ground, &mut group, &members);
    }
    group.resume(Select::All).unwrap();
    for model in &mut members {
        model.asleep = false;
        let kv = group.get_mut(&model.key).unwrap();
        for (at, mapped) in &mut model.mapped {
            let (offset, size) = (at * ground.g, mapped.size * ground.g);
            kv.set_access(offset, size, ground.device(), Access::ReadWrite)
                .unwrap();
            mapped.access = Access::ReadWrite;
        }
    }
    check(ground, &mut group, &members);
    group.close().unwrap();
}

/// After an undo that failed too, rights and handles of what is awake are in doubt until it has slept once.
fn mend(group: &mut Group, members: &mut [Model]) {
    for (number, model) in members.iter_mut().enumerate() {
        if !model.asleep {
            group
                .suspend(&model.key)
                .unwrap_or_else(|error| panic!("member {number}: {error}"));
            group.resume(&model.key).unwrap();
            model.slept();
        }
    }
}

/// Plays a step on the group and on the model; gives whether something could not be undone.
fn step(ground: &Ground, group: &mut Group, members: &mut [Model], op: Op) -> bool {
    let g = ground.g;
    let error = match op {
        Op::Map {
            member,
            at,
            size,
            kind,
        } => {
            let model = &mut members[member];
            let size = if kind == Kind::Page { 1 } else { size };
            if model.asleep || !model.free(at, size) {
                return false;
            }
            let kv = group.get_mut(&model.key).unwrap();
            let made = match kind {
                Kind::Own => kv.map(at * g, size * g, &ground.props()),
                Kind::Releasing => kv.map_releasing(at * g, size * g, &ground.props()),
                Kind::Page => kv.map_existing(at * g, &model.page),
            };
            if made.is_ok() {
                let access = Access::ReadWrite;
                let values = vec![0; size];
                model.mapped.insert(
                    at,
                    Mapped {
                        size,
                        kind,
                        access,
                        values,
                    },
                );
            }
            let error = made.map(drop).err();
            // What an earlier operation left is in the way of the next sleep: undo it.
            return quarantined(ground, kv, error);
        }
        Op::Unmap { member, at } => {
            let model = &mut members[member];
            let Some((at, size)) = model.around(at).map(|(at, mapped)| (at, mapped.size)) else {
                return false;
            };
            if model.asleep {
                return false;
            }
            let kv = group.get_mut(&model.key).unwrap();
            let unmapped = kv.unmap_range(at * g, size * g);
            if unmapped.is_ok() {
                model.mapped.remove(&at);
            }
            unmapped.err()
        }
        Op::Fill { member, at, value } => {
            let model = &mut members[member];
            let writable = model
                .around(at)
                .filter(|(_, mapped)| mapped.access.writes());
            let Some((start, kind)) = writable.map(|(start, mapped)| (start, mapped.kind)) else {
                return false;
            };
            if model.asleep {
                return false;
            }
            let kv = group.get_mut(&model.key).unwrap();
            let filled = kv.fill(at * g, g, value);
            // A fill that was refused may have been done: only the wait for it failed.
            let filled = filled.inspect_err(|_| {
                if let Some(sim) = &ground.sim {
                    sim.clear_faults();
                }
                kv.fill(at * g, g, value).unwrap();
            });
            match kind {
                Kind::Page => model.page_value = value,
                _ => {
                    let mapped = model.mapped.get_mut(&start).unwrap();
                    mapped.values[at - start] = value;
                }
            }
            filled.err()
        }
        Op::Grant { member, at, access } => {
            let model = &mut members[member];
            let Some((at, size)) = model.around(at).map(|(at, mapped)| (at, mapped.size)) else {
                return false;
            };
            if model.asleep {
                return false;
            }
            let kv = group.get_mut(&model.key).unwrap();
            let granted = kv.set_access(at * g, size * g, ground.device(), access);
            if granted.is_ok() {
                model.mapped.get_mut(&at).unwrap().access = access;
            }
            granted.err()
        }
        Op::Suspend(whom) => {
            let ids = ids(members);
            let (done, error) = match chosen(&ids, whom, |select| group.suspend(select)) {
                Ok(done) => (done.members, None),
                Err(stopped) => (stopped.done.members.clone(), Some(stopped.into_error())),
            };
            for model in members
                .iter_mut()
                .filter(|one| done.contains(&one.key.id()))
            {
                assert!(!model.asleep);
                model.asleep = true;
                model.slept();
            }
            error
        }
        Op::Resume(whom) => {
            let ids = ids(members);
            let (done, error) = match chosen(&ids, whom, |select| group.resume(select)) {
                Ok(done) => (done.members, None),
                Err(stopped) => (stopped.done.members.clone(), Some(stopped.into_error())),
            };
            for model in members
                .iter_mut()
                .filter(|one| done.contains(&one.key.id()))
            {
                assert!(model.asleep);
                model.asleep = false;
            }
            error
        }
        Op::Trim => group.trim().err(),
        Op::Replace { member: number } => {
            if members[number].asleep {
                return false;
            }
            let kv = group.remove(&members[number].key).unwrap();
            if let Some(sim) = &ground.sim {
                sim.clear_faults();
            }
            kv.close().unwrap();
            members[number] = member(ground, group, number);
            None
        }
    };
    error.is_some_and(|error| !error.undo_failures().is_empty())
}

/// Unmaps what a failed map left behind.
fn quarantined(ground: &Ground, kv: &mut Reservation, error: Option<Error>) -> bool {
    if let Some(sim) = &ground.sim {
        sim.clear_faults();
    }
    let left: Vec<_> = kv
        .mappings()
        .filter(|one| one.is_quarantined())
        .map(|one| one.range())
        .collect();
    assert!(left.is_empty() || error.is_some());
    for range in left {
        kv.unmap_range(range.start, range.len()).unwrap();
    }
    false
}

fn ids(members: &[Model]) -> Vec<MemberId> {
    members.iter().map(|one| one.key.id()).collect()
}

fn chosen<R>(ids: &[MemberId], whom: Whom, run: impl FnOnce(Select<'_>) -> R) -> R {
    match whom {
        Whom::All => run(Select::All),
        Whom::Tag(which) => run(Select::Tag(tag(which))),
        Whom::Member(which) => run(Select::Members(&ids[which..=which])),
    }
}

fn check(ground: &Ground, group: &mut Group, members: &[Model]) {
    let g = ground.g;
    for (number, model) in members.iter().enumerate() {
        assert_eq!(
            group.is_suspended(model.key.id()).unwrap(),
            model.asleep,
            "member {number}"
        );
        let outline = group.outline(model.key.id()).unwrap();
        let shape: Vec<_> = outline.mappings().map(|one| one.range).collect();
        let expected = model.mapped.iter();
        let expected: Vec<_> = expected
            .map(|(at, mapped)| at * g..(at + mapped.size) * g)
            .collect();
        assert_eq!(shape, expected, "member {number}");
        if model.asleep {
            let refused = group.get(&model.key).map(drop);
            assert!(matches!(refused, Err(Error::Suspended { .. })));
            continue;
        }
        let kv = group.get(&model.key).unwrap();
        for (at, mapped) in &model.mapped {
            let access = kv.access_of(at * g, ground.device()).unwrap();
            assert_eq!(access, mapped.access, "member {number}, granule {at}");
            if !mapped.access.reads() {
                continue;
            }
            for (granule, value) in (*at..).zip(&mapped.values) {
                let value = match mapped.kind {
                    Kind::Page => model.page_value,
                    _ => *value,
                };
                let mut bytes = [!value; 2];
                kv.read(granule * g, &mut bytes[..1]).unwrap();
                kv.read((granule + 1) * g - 1, &mut bytes[1..]).unwrap();
                assert_eq!(bytes, [value; 2], "member {number}, granule {granule}");
            }
        }
    }
}
