//! One step of a program, played on the group and on the model.

use cuda_vmm::suspend::{Group, MemberId, Select};
use cuda_vmm::{Access, Error, Reservation};

use super::model::{member, tag, Mapped, Model};
use super::program::{Kind, Op, Whom};
use crate::ground::Ground;

/// Plays a step on the group and on the model; gives whether something could not be undone.
pub fn step(ground: &Ground, group: &mut Group, members: &mut [Model], op: Op) -> bool {
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
