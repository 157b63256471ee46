//! A reservation of every kind of mapping, with contents and rights that can be asked for.

use cuda_vmm::suspend::{Backup, Group, Key, Select};
use cuda_vmm::{Access, Allocation, BackingKind, Error, MappingId, Reservation};

use crate::ground::Ground;

/// What a mapping of the scene is, in granules.
#[derive(Clone, Copy)]
pub struct Part {
    pub at: usize,
    pub size: usize,
    pub backing: BackingKind,
    /// What the first device may do.
    pub access: Access,
}

const fn part(at: usize, size: usize, backing: BackingKind, access: Access) -> Part {
    Part {
        at,
        size,
        backing,
        access,
    }
}

/// Neighbours with the same and with other rights, a ring of one page, one whose handle was given up, holes between.
pub const PARTS: &[Part] = &[
    part(0, 2, BackingKind::Owned, Access::ReadWrite),
    part(2, 1, BackingKind::Owned, Access::ReadWrite),
    part(3, 1, BackingKind::Owned, Access::Read),
    part(4, 1, BackingKind::Owned, Access::None),
    part(6, 1, BackingKind::Shared, Access::ReadWrite),
    part(7, 1, BackingKind::Shared, Access::ReadWrite),
    part(9, 1, BackingKind::GivenUp, Access::ReadWrite),
    part(11, 3, BackingKind::Owned, Access::ReadWrite),
];

/// Granules of the reservation, those made for its mappings, and those of the caller's page.
pub const SIZE: usize = 16;
pub const OWN: usize = 9;
pub const PAGE: usize = 1;

pub struct Scene {
    pub kv: Reservation,
    pub page: Allocation,
    pub ids: Vec<MappingId>,
}

impl Scene {
    pub fn new(ground: &Ground, seed: u8) -> Scene {
        let mut builder =
            Reservation::builder(SIZE * ground.g).access(ground.device(), Access::ReadWrite);
        if let Some(peer) = ground.peer() {
            builder = builder.access(peer, Access::Read);
        }
        let mut kv = builder.reserve(&ground.driver).unwrap();
        let (props, g) = (ground.props(), ground.g);
        let page = props.create(PAGE * g).unwrap();
        let mut ids = Vec::new();
        for part in PARTS {
            let (at, size) = (part.at * g, part.size * g);
            ids.push(match part.backing {
                BackingKind::Owned => kv.map(at, size, &props).unwrap(),
                BackingKind::GivenUp => kv.map_releasing(at, size, &props).unwrap(),
                _ => kv.map_existing(at, &page).unwrap(),
            });
            kv.write(at, &pattern(seed, part.at, size)).unwrap();
            if part.access != Access::ReadWrite {
                kv.set_access(at, size, ground.device(), part.access)
                    .unwrap();
            }
            if let Some(peer) = ground.peer().filter(|_| part.access == Access::None) {
                kv.set_access(at, size, peer, Access::None).unwrap();
            }
        }
        Scene { kv, page, ids }
    }
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u8, at: usize, size: usize) -> Vec<u8> {
    let start = (at as u8).wrapping_mul(31).wrapping_add(seed);
    let unit: Vec<u8> = (0..251).map(|byte| start.wrapping_add(byte)).collect();
    let mut bytes = unit.repeat(size.div_ceil(unit.len()));
    bytes.truncate(size);
    bytes
}

/// The shape and the rights are those of the scene, and the contents as they were, or zero where they went.
pub fn intact(ground: &Ground, kv: &mut Reservation, ids: &[MappingId], seed: u8, kept: bool) {
    let g = ground.g;
    let shape: Vec<_> = kv
        .mappings()
        .map(|one| (one.offset() / g, one.size() / g, one.backing()))
        .collect();
    let expected: Vec<_> = PARTS
        .iter()
        .map(|part| (part.at, part.size, part.backing))
        .collect();
    assert_eq!(shape, expected);
    assert_eq!(kv.quarantined(), 0);
    for (part, id) in PARTS.iter().zip(ids) {
        let (at, size) = (part.at * g, part.size * g);
        assert_eq!(kv.mapping(id).map(|one| one.offset()), Some(at));
        assert_eq!(kv.access_of(at, ground.device()).unwrap(), part.access);
        if let Some(peer) = ground.peer() {
            let theirs = match part.access {
                Access::None => Access::None,
                _ => Access::Read,
            };
            assert_eq!(kv.access_of(at + size - 1, peer).unwrap(), theirs);
        }
        // The driver's own word, not the crate's note of it.
        let mut bytes = vec![1; size];
        if part.access == Access::None {
            assert!(matches!(
                kv.read(at, &mut bytes),
                Err(Error::NoAccess { .. })
            ));
            kv.set_access(at, size, ground.device(), Access::Read)
                .unwrap();
        }
        kv.read(at, &mut bytes).unwrap();
        if part.access == Access::None {
            kv.set_access(at, size, ground.device(), Access::None)
                .unwrap();
        }
        // Mirrors show what was written last.
        let seen = match part.backing {
            BackingKind::Shared => pattern(seed, 7, size),
            _ if kept => pattern(seed, part.at, size),
            _ => vec![0; size],
        };
        assert!(bytes == seen, "other contents at granule {}", part.at);
    }
}

/// A group of a scene whose contents are kept and one whose contents are dropped.
pub struct Pair {
    pub group: Group,
    pub kept: Key<Reservation>,
    pub dropped: Key<Reservation>,
    pub pages: Vec<Allocation>,
    ids: [Vec<MappingId>; 2],
}

impl Pair {
    pub fn new(ground: &Ground) -> Pair {
        Pair::with(ground, |group| group)
    }

    pub fn with(ground: &Ground, options: impl FnOnce(Group) -> Group) -> Pair {
        let mut group = options(Group::new(&ground.driver).host_block(4 << 20));
        let (first, second) = (Scene::new(ground, 1), Scene::new(ground, 2));
        let kept = group.add(first.kv, "weights", Backup::Host).unwrap();
        let dropped = group.add(second.kv, "cache", Backup::None).unwrap();
        Pair {
            group,
            kept,
            dropped,
            pages: vec![first.page, second.page],
            ids: [first.ids, second.ids],
        }
    }

    /// Both are awake, and as they were, but for contents that went when the second slept.
    pub fn intact(&mut self, ground: &Ground, second_slept: bool) {
        let [first, second] = &self.ids;
        let kv = self.group.get_mut(&self.kept).unwrap();
        intact(ground, kv, first, 1, true);
        let kv = self.group.get_mut(&self.dropped).unwrap();
        intact(ground, kv, second, 2, !second_slept);
    }

    /// Whatever is asleep wakes; both are as they were; and then everything goes.
    pub fn end(mut self, ground: &Ground, second_slept: bool) {
        self.group.resume(Select::All).unwrap();
        self.intact(ground, second_slept);
        self.group.close().unwrap();
    }
}
