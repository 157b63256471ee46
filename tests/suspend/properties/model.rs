//! What a member has to be like: what is mapped, what it holds and who may do what, awake or asleep.

use std::collections::BTreeMap;

use cuda_vmm::suspend::{Backup, Group, Key};
use cuda_vmm::{Access, Allocation, Reservation};

use super::program::{Kind, SIZE};
use crate::ground::Ground;

/// A mapping as it has to be.
#[derive(Debug, Clone)]
pub struct Mapped {
    pub size: usize,
    pub kind: Kind,
    pub access: Access,
    /// What each granule is filled with; of a page its one value is the member's.
    pub values: Vec<u8>,
}

pub struct Model {
    pub key: Key<Reservation>,
    pub backup: Backup,
    pub asleep: bool,
    pub mapped: BTreeMap<usize, Mapped>,
    pub page: Allocation,
    pub page_value: u8,
}

impl Model {
    pub fn around(&self, granule: usize) -> Option<(usize, &Mapped)> {
        let (at, mapped) = self.mapped.range(..=granule).next_back()?;
        (granule < at + mapped.size).then_some((*at, mapped))
    }

    pub fn free(&self, at: usize, size: usize) -> bool {
        at + size <= SIZE && (at..at + size).all(|granule| self.around(granule).is_none())
    }

    pub fn slept(&mut self) {
        if self.backup == Backup::None {
            let own = self.mapped.values_mut();
            for mapped in own.filter(|mapped| mapped.kind != Kind::Page) {
                mapped.values.fill(0);
            }
        }
    }
}

pub fn tag(member: usize) -> &'static str {
    ["even", "odd"][member % 2]
}

fn backup(member: usize) -> Backup {
    [Backup::Host, Backup::None, Backup::Host][member % 3]
}

pub fn member(ground: &Ground, group: &mut Group, number: usize) -> Model {
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
