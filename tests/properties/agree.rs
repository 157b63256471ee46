//! The model against all that the crate and the driver say.

use std::collections::BTreeMap;

use cuda_vmm::sim::{self, Snapshot};
use cuda_vmm::{Access, BackingKind, Location, Reservation};

use crate::model::{right_of, Area, Backing, Mapped};
use crate::picture;
use crate::world::World;

impl World {
    /// Compares everything with everything.
    pub fn agree(&mut self) {
        assert_eq!(self.driver.quarantined(), self.model.kept.len());
        assert_eq!(self.kvs.len(), self.model.areas.len());
        for (kv, area) in self.kvs.iter().zip(&self.model.areas) {
            self.reservation(kv, area);
        }
        for (page, share) in self.pages.iter().zip(&self.model.pages) {
            let memory = &self.model.memories[&self.model.shares[share]];
            let told = (page.raw(), page.size(), page.location());
            assert_eq!(told, (memory.handle, memory.size, memory.location));
        }
        self.names();
        match self.sim.as_ref().map(|sim| (sim.snapshot(), sim.misuses())) {
            Some((snapshot, misuses)) => {
                assert_eq!(misuses, [], "a real driver would have died");
                self.driver_state(&snapshot);
            }
            None => self.probe(),
        }
    }

    fn reservation(&self, kv: &Reservation, area: &Area) {
        assert_eq!((kv.base(), kv.size()), (area.base, area.size));
        let told: Vec<_> = kv
            .mappings()
            .map(|mapping| {
                let rights: Vec<_> = kv.rights(mapping).collect();
                let kind = (mapping.backing(), mapping.is_quarantined());
                (
                    mapping.address(),
                    mapping.range(),
                    mapping.location(),
                    kind,
                    rights,
                )
            })
            .collect();
        let expected: Vec<_> = area
            .mapped
            .iter()
            .map(|(offset, mapped)| {
                let location = self.model.memories[&mapped.memory].location;
                let kind = (kind(mapped.backing), mapped.quarantined);
                let address = area.base + *offset as u64;
                (
                    address,
                    *offset..offset + mapped.size,
                    location,
                    kind,
                    mapped.noted.clone(),
                )
            })
            .collect();
        assert_eq!(
            told, expected,
            "left: the crate's mappings; right: the model's"
        );

        let bytes: usize = area.mapped.values().map(|mapped| mapped.size).sum();
        assert_eq!(
            (kv.mapping_count(), kv.mapped_bytes()),
            (area.mapped.len(), bytes)
        );
        assert_eq!(kv.holes().collect::<Vec<_>>(), area.holes());
        assert_eq!(kv.policy().collect::<Vec<_>>(), area.policy);
        let quarantined = area.mapped.values().filter(|mapped| mapped.quarantined);
        assert_eq!(kv.quarantined(), area.stuck.len() + quarantined.count());
        for hole in area.holes() {
            let ends = [hole.start, hole.end - 1].map(|offset| kv.mapping_at(offset).is_some());
            assert_eq!(ends, [false; 2], "something is mapped in the hole {hole:?}");
        }
        for (offset, mapped) in &area.mapped {
            for at in [*offset, offset + mapped.size - 1] {
                let told = kv.mapping_at(at).map(|mapping| mapping.offset());
                assert_eq!(told, Some(*offset), "at offset {at}");
            }
        }
        let drawn = picture::of(area, &self.model, self.unit);
        assert_eq!(kv.to_string(), drawn);
    }

    /// Every id names its mapping to its reservation and nothing to another.
    fn names(&self) {
        for held in &self.ids {
            for (kv, area) in self.kvs.iter().zip(&self.model.areas) {
                let named = kv.mapping(&held.id).map(|mapping| mapping.offset());
                let is = |(_, mapped): &(&usize, &Mapped)| mapped.number == held.mapping;
                let expected = area.mapped.iter().find(is).map(|(offset, _)| *offset);
                assert_eq!(named, expected);
            }
        }
    }

    fn driver_state(&mut self, snapshot: &Snapshot) {
        let told: Vec<_> = snapshot
            .reservations
            .iter()
            .map(|range| (range.address, range.size as usize))
            .collect();
        assert_eq!(told, self.addresses(), "left: reserved; right: the model");

        let told: Vec<_> = snapshot
            .mappings
            .iter()
            .map(|mapping| {
                let rights = mapping.rights.iter().copied().map(right).collect();
                (
                    mapping.address,
                    mapping.size as usize,
                    mapping.handle,
                    rights,
                )
            })
            .collect();
        assert_eq!(told, self.mapped(), "left: mapped; right: the model");

        let told: BTreeMap<_, _> = snapshot
            .handles
            .iter()
            .map(|handle| {
                (
                    handle.handle,
                    (handle.size as usize, handle.count, handle.mapped),
                )
            })
            .collect();
        let counts = self.model.counts();
        let expected = self.model.memories.iter().map(|(number, memory)| {
            let (count, mapped) = counts[number];
            (memory.handle, (memory.size, count, mapped))
        });
        assert_eq!(told, expected.collect(), "left: handles; right: the model");
        self.rest(snapshot);
    }

    /// Free memory, contexts, and what this crate never makes.
    fn rest(&mut self, snapshot: &Snapshot) {
        let start = self.start.as_ref().expect("taken with the simulation");
        for (ordinal, free) in (0..).zip(&snapshot.free_on_devices) {
            let taken = self.model.taken(Location::Device(ordinal));
            assert_eq!(start.free_on_devices[ordinal as usize] - taken, *free);
        }
        let taken = self.model.taken(Location::Host);
        assert_eq!(start.free_on_host - taken, snapshot.free_on_host);
        let others = (
            &snapshot.exports,
            &snapshot.ordinary,
            snapshot.streams,
            snapshot.events,
        );
        assert_eq!(others, (&start.exports, &start.ordinary, 0, 0));
        assert_eq!(snapshot.context_depth, 0, "a context is still current");
        // Each context is retained once at most, and then kept.
        for (before, now) in self.contexts.iter().zip(&snapshot.retained_contexts) {
            assert!(before <= now && *now <= 1, "context retained {now} times");
        }
        self.contexts.clone_from(&snapshot.retained_contexts);
    }

    fn addresses(&self) -> Vec<(u64, usize)> {
        let areas = self.model.areas.iter().map(|area| (area.base, area.size));
        let kept = self.model.kept.iter().filter_map(|piece| piece.addresses());
        let mut all: Vec<_> = areas.chain(kept).collect();
        all.sort_unstable();
        all
    }

    fn mapped(&self) -> Vec<(u64, usize, u64, BTreeMap<Location, Access>)> {
        let mut all = Vec::new();
        for area in &self.model.areas {
            for (offset, mapped) in &area.mapped {
                let handle = self.model.memories[&mapped.memory].handle;
                let granted = mapped.granted.iter();
                let granted = granted.filter(|(_, access)| access.reads());
                let granted = granted.map(|(who, access)| (*who, *access)).collect();
                all.push((area.base + *offset as u64, mapped.size, handle, granted));
            }
        }
        all.sort_unstable_by_key(|mapped| mapped.0);
        all
    }

    /// What a driver without snapshots can be asked: what is mapped, and each right.
    fn probe(&self) {
        for (kv, area) in self.kvs.iter().zip(&self.model.areas) {
            for hole in area.holes() {
                let last = area.base + hole.end as u64 - 1;
                for address in [area.base + hole.start as u64, last] {
                    assert!(!self.driver.is_vmm(address).unwrap(), "mapped, not a hole");
                }
            }
            for (offset, mapped) in &area.mapped {
                let last = offset + mapped.size - 1;
                assert!(self.driver.is_vmm(area.base + last as u64).unwrap());
                for place in &self.places {
                    let access = kv.access_of(last, place.location).unwrap();
                    assert_eq!(access, right_of(&mapped.noted, place.location));
                }
            }
        }
    }
}

fn kind(backing: Backing) -> BackingKind {
    match backing {
        Backing::Own => BackingKind::Owned,
        Backing::Share(_) => BackingKind::Shared,
        Backing::GivenUp => BackingKind::GivenUp,
    }
}

fn right((place, rights): (sim::Place, sim::Rights)) -> (Location, Access) {
    let location = match place {
        sim::Place::Device(ordinal) => Location::Device(ordinal.unsigned_abs()),
        sim::Place::Host => Location::Host,
        sim::Place::HostNuma(node) => Location::HostNuma(node.unsigned_abs()),
    };
    let access = match rights {
        sim::Rights::None => Access::None,
        sim::Rights::Read => Access::Read,
        sim::Rights::ReadWrite => Access::ReadWrite,
    };
    (location, access)
}
