//! Access rights.

use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Code, Error, Location};

use crate::model::{note, right_of, Mapped};
use crate::operation::{Extent, Which, Window};
use crate::verdict::{Refusal, Verdict};
use crate::world::World;

impl World {
    pub fn set_access(&mut self, kv: Which, at: Extent, who: Which, access: Access) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let who = self.who(who);
        let area = &self.model.areas[at_kv];
        let (offset, size) = area.extent(at, self.unit);
        let whole = self.exists(who).and_then(|()| area.whole(offset, size));
        let expected = whole.map_err(Refusal::Check).and_then(|range| {
            // The host has no rights to a device's memory but none, and one such mapping is enough.
            let may = |(_, mapped): (usize, &Mapped)| !access.reads() || self.may_have(who, mapped);
            let not_supported = (Call::cuMemSetAccess, Code::ERROR_NOT_SUPPORTED);
            match area.in_range(&range).all(may) {
                true => Ok(range.clone()),
                false => Err(Refusal::Driver(not_supported.0, not_supported.1)),
            }
        });
        let result = self.kvs[at_kv].set_access(offset, size, who, access);
        if let (Verdict::Done, Ok(range)) = (self.judge(&expected, &result), &expected) {
            for (offset, mapped) in &mut self.model.areas[at_kv].mapped {
                if range.contains(offset) {
                    give(mapped, who, access);
                }
            }
        }
        Some(())
    }

    pub fn grant(&mut self, kv: Which, who: Which, access: Access) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let who = self.who(who);
        let expected = self.exists(who).map_err(Refusal::Check);
        let result = self.kvs[at_kv].grant(who, access);
        let verdict = self.judge(&expected, &result);
        if verdict == Verdict::Refused {
            return Some(());
        }
        let area = &self.model.areas[at_kv];
        let base = area.base;
        let concerned: Vec<usize> = area
            .mapped
            .iter()
            .filter(|(_, mapped)| !mapped.quarantined && self.may_have(who, mapped))
            .map(|(offset, _)| *offset)
            .collect();
        // Of a grant that failed remains what could not be taken back. The first failure is of the grant itself.
        let failed: Vec<u64> = self
            .failed()
            .into_iter()
            .skip(1)
            .filter_map(|record| crate::verdict::word(record, "address"))
            .collect();
        let area = &mut self.model.areas[at_kv];
        for offset in concerned {
            if verdict == Verdict::Done || failed.contains(&(base + offset as u64)) {
                give(
                    area.mapped.get_mut(&offset).expect("it is there"),
                    who,
                    access,
                );
            }
        }
        if verdict == Verdict::Done {
            note(&mut area.policy, who, access);
        }
        Some(())
    }

    pub fn access_of(&mut self, kv: Which, at: Window, who: Which) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let who = self.who(who);
        let area = &self.model.areas[at_kv];
        let (offset, _) = area.window(at, self.unit);
        let mapped = self
            .exists(who)
            .and_then(|()| area.mapped_throughout(offset, 1));
        let expected = mapped.map(|byte| {
            let (_, mapped) = area.in_range(&byte).next().expect("it is mapped");
            let granted = mapped.granted.get(&who).copied().unwrap_or_default();
            (right_of(&mapped.noted, who), granted)
        });
        let result = self.kvs[at_kv].access_of(offset, who);
        // Of a mapping that is quarantined the crate does not know what the driver granted, and says so.
        if let (Ok((ours, theirs)), Err(error @ Error::Disagreement { .. })) = (&expected, &result)
        {
            assert_ne!(ours, theirs, "{error}");
            let ours = format!("{who} was granted {ours} at offset {offset}");
            let theirs = format!("reports {theirs}");
            let failure = None;
            let disagreement = Error::Disagreement {
                ours,
                theirs,
                failure,
            };
            assert_eq!(format!("{error:?}"), format!("{disagreement:?}"));
            self.look();
            assert_eq!(self.failures(), []);
            return Some(());
        }
        let expected = expected.map_err(Refusal::Check);
        if self.judge(&expected, &result) == Verdict::Done {
            let (ours, theirs) = expected.expect("judged");
            assert_eq!((ours, theirs), (theirs, result.expect("judged")));
        }
        Some(())
    }

    /// Whether the driver gives the location rights to such memory at all.
    fn may_have(&self, who: Location, mapped: &Mapped) -> bool {
        !who.is_host() || self.model.memories[&mapped.memory].location.is_host()
    }
}

fn give(mapped: &mut Mapped, who: Location, access: Access) {
    note(&mut mapped.noted, who, access);
    mapped.granted.insert(who, access);
}
