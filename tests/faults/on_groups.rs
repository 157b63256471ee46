//! The operations of groups that do all or nothing, with one member: what several come to is for tests/suspend, and so
//! is host memory that is made and given back.

use cuda_vmm::suspend::{Backup, Group, Select};
use cuda_vmm::{Error, Fence};

use crate::endings::{flat, Said};
use crate::on_reservations::in_use;
use crate::operations::Operation;
use crate::stage::{Stage, G};

fn grouped(stage: &mut Stage, backup: Backup) {
    in_use(stage);
    let mut group = Group::new(stage.driver())
        .host_block(2 * G)
        .keep_host_memory(true);
    let kv = stage.kv.take().expect("the preparation reserves");
    let key = group.add(kv, "row", backup).unwrap();
    stage.group = Some((group, key));
}

pub fn dropping(stage: &mut Stage) {
    grouped(stage, Backup::None);
}

/// With the host's memory of an earlier cycle, in two blocks.
pub fn keeping(stage: &mut Stage) {
    grouped(stage, Backup::Host);
    stage.group().suspend(Select::All).unwrap();
    stage.group().resume(Select::All).unwrap();
    assert_eq!(stage.sim.snapshot().registered.len(), 2);
}

pub fn asleep(stage: &mut Stage) {
    keeping(stage);
    stage.group().suspend(Select::All).unwrap();
}

fn dropped_asleep(stage: &mut Stage) {
    dropping(stage);
    stage.group().suspend(Select::All).unwrap();
}

fn suspend(stage: &mut Stage) -> Result<(), Error> {
    let done = stage.group().suspend(Select::All);
    done.map(drop).map_err(|stopped| stopped.into_error())
}

fn resume(stage: &mut Stage) -> Result<(), Error> {
    let done = stage.group().resume(Select::All);
    done.map(drop).map_err(|stopped| stopped.into_error())
}

pub fn trim(stage: &mut Stage) -> Said {
    let trimmed = stage.group().trim();
    Said::Errors(trimmed.err().into_iter().flat_map(flat).collect())
}

pub fn close(stage: &mut Stage) -> Said {
    let (group, key) = stage.group.take().expect("the preparation makes one");
    let Err(unclosed) = group.close() else {
        return Said::Errors(Vec::new());
    };
    let errors = std::iter::once(unclosed.error).chain(unclosed.further);
    let errors = errors.flat_map(flat).collect();
    stage.group = Some((unclosed.group, key));
    Said::Errors(errors)
}

pub const OPERATIONS: &[Operation] = &[
    Operation::new("Group::suspend", "contents dropped", dropping, suspend),
    Operation::new("Group::suspend", "contents kept", keeping, suspend),
    Operation::new(
        "Group::suspend_after",
        "the default stream",
        dropping,
        |stage| {
            let fence = Fence::default_stream(&stage.devices[0]);
            let done = stage.group().suspend_after("row", fence);
            done.map(drop).map_err(|stopped| stopped.into_error())
        },
    ),
    Operation::new("Group::resume", "contents dropped", dropped_asleep, resume),
    Operation::new("Group::resume", "contents kept", asleep, resume),
];
