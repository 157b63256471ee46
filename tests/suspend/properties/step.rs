//! One step of a program, played on the group and on the model.

use cuda_vmm::suspend::{Group, MemberId, Select};
use cuda_vmm::{Access, Error, Reservation};

use super::model::{member, tag, Mapped, Model};
use super::program::{Kind, Op, Whom};
use crate::ground::Ground;

/// Plays it, where the model says that it can be; gives whether something could not be undone.
pub fn step(ground: &Ground, group: &mut Group, members: &mut [Model], op: Op) -> bool {
    let error = match op {
        Op::Map {
            member,
            at,
            size,
            kind,
        } => map(ground, group, &mut members[member], (at, size), kind),
        Op::Unmap { member, at } => unmap(ground, group, &mut members[member], at),
        Op::Fill { member, at, value } => fill(ground, group, &mut members[member], at, value),
        Op::Grant { member, at, access } => grant(ground, group, &mut members[member], at, access),
        Op::Suspend(whom) => suspend(group, members, whom),
        Op::Resume(whom) => resume(group, members, whom),
        Op::Trim => group.trim().err(),
        Op::Replace { member } => {
            replace(ground, group, members, member);
            None
        }
    };
    error.is_some_and(|error| !error.undo_failures().is_empty())
}

/// A member, unless it sleeps.
fn awake<'g>(group: &'g mut Group, model: &Model) -> Option<&'g mut Reservation> {
    (!model.asleep).then(|| group.get_mut(&model.key).unwrap())
}

/// What fails is undone here, so that no error is left to tell.
fn map(
    ground: &Ground,
    group: &mut Group,
    model: &mut Model,
    (at, size): (usize, usize),
    kind: Kind,
) -> Option<Error> {
    let g = ground.g;
    let size = if kind == Kind::Page { 1 } else { size };
    if !model.free(at, size) {
        return None;
    }
    let kv = awake(group, model)?;
    let made = match kind {
        Kind::Own => kv.map(at * g, size * g, &ground.props()),
        Kind::Releasing => kv.map_releasing(at * g, size * g, &ground.props()),
        Kind::Page => kv.map_existing(at * g, &model.page),
    };
    unmap_quarantined(ground, kv, made.is_err());
    if made.is_ok() {
        let mapped = Mapped {
            size,
            kind,
            access: Access::ReadWrite,
            values: vec![0; size],
        };
        model.mapped.insert(at, mapped);
    }
    None
}

/// Unmaps what a failed map left behind: it is in the way of the next sleep.
fn unmap_quarantined(ground: &Ground, kv: &mut Reservation, failed: bool) {
    clear_faults(ground);
    let left: Vec<_> = kv
        .mappings()
        .filter(|one| one.is_quarantined())
        .map(|one| one.range())
        .collect();
    assert!(left.is_empty() || failed);
    for range in left {
        kv.unmap_range(range.start, range.len()).unwrap();
    }
}

fn unmap(ground: &Ground, group: &mut Group, model: &mut Model, at: usize) -> Option<Error> {
    let kv = awake(group, model)?;
    let (at, size) = model.around(at).map(|(at, mapped)| (at, mapped.size))?;
    let unmapped = kv.unmap_range(at * ground.g, size * ground.g);
    if unmapped.is_ok() {
        model.mapped.remove(&at);
    }
    unmapped.err()
}

fn fill(
    ground: &Ground,
    group: &mut Group,
    model: &mut Model,
    at: usize,
    value: u8,
) -> Option<Error> {
    let g = ground.g;
    let kv = awake(group, model)?;
    let (start, mapped) = model.around(at)?;
    if !mapped.access.writes() {
        return None;
    }
    let kind = mapped.kind;
    let filled = kv.fill(at * g, g, value);
    if filled.is_err() {
        // A fill that was refused may have been done: only the wait for it failed.
        clear_faults(ground);
        kv.fill(at * g, g, value).unwrap();
    }
    if kind == Kind::Page {
        model.page_value = value;
    } else {
        model.mapped.get_mut(&start).unwrap().values[at - start] = value;
    }
    filled.err()
}

fn grant(
    ground: &Ground,
    group: &mut Group,
    model: &mut Model,
    at: usize,
    access: Access,
) -> Option<Error> {
    let g = ground.g;
    let kv = awake(group, model)?;
    let (at, size) = model.around(at).map(|(at, mapped)| (at, mapped.size))?;
    let granted = kv.set_access(at * g, size * g, ground.device(), access);
    if granted.is_ok() {
        model.mapped.get_mut(&at).unwrap().access = access;
    }
    granted.err()
}

fn suspend(group: &mut Group, members: &mut [Model], whom: Whom) -> Option<Error> {
    let ids = ids(members);
    let (done, error) = match chosen(&ids, whom, |select| group.suspend(select)) {
        Ok(done) => (done.members, None),
        Err(stopped) => (stopped.done.members.clone(), Some(stopped.into_error())),
    };
    for model in named(members, &done) {
        assert!(!model.asleep);
        model.asleep = true;
        model.slept();
    }
    error
}

fn resume(group: &mut Group, members: &mut [Model], whom: Whom) -> Option<Error> {
    let ids = ids(members);
    let (done, error) = match chosen(&ids, whom, |select| group.resume(select)) {
        Ok(done) => (done.members, None),
        Err(stopped) => (stopped.done.members.clone(), Some(stopped.into_error())),
    };
    for model in named(members, &done) {
        assert!(model.asleep);
        model.asleep = false;
    }
    error
}

/// Takes a member out, closes it, and adds a new one in its stead.
fn replace(ground: &Ground, group: &mut Group, members: &mut [Model], number: usize) {
    if members[number].asleep {
        return;
    }
    let kv = group.remove(&members[number].key).unwrap();
    clear_faults(ground);
    kv.close().unwrap();
    members[number] = member(ground, group, number);
}

fn clear_faults(ground: &Ground) {
    if let Some(sim) = &ground.sim {
        sim.clear_faults();
    }
}

fn ids(members: &[Model]) -> Vec<MemberId> {
    members.iter().map(|one| one.key.id()).collect()
}

fn named<'m>(members: &'m mut [Model], ids: &'m [MemberId]) -> impl Iterator<Item = &'m mut Model> {
    let members = members.iter_mut();
    members.filter(|one| ids.contains(&one.key.id()))
}

fn chosen<R>(ids: &[MemberId], whom: Whom, run: impl FnOnce(Select<'_>) -> R) -> R {
    match whom {
        Whom::All => run(Select::All),
        Whom::Tag(which) => run(Select::Tag(tag(which))),
        Whom::Member(which) => run(Select::Members(&ids[which..=which])),
    }
}
