//! Access rights.

use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Code, Error, Location};

use crate::model::{note, note_of_mapping, right_of, Mapped};
use crate::operation::{Extent, Which, Window};
use crate::verdict::{word, Refusal, Verdict};
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
        let verdict = self.judge(&expected, &result);
        match verdict {
            Verdict::Refused => {}
            Verdict::Done => {
                let range = expected.expect("judged");
                for (offset, mapped) in &mut self.model.areas[at_kv].mapped {
                    if range.contains(offset) {
                        give(mapped, who, access);
                    }
                }
            }
            Verdict::Failed => self.half_granted(at_kv, who, access),
        }
        Some(())
    }

    /// A grant that failed: where taking it back failed too, the crate notes what was asked for. The driver has granted
    /// it if it was the driver that went from mapping to mapping and then refused; a call that was made to fail has
    /// done nothing.
    fn half_granted(&mut self, at: usize, who: Location, access: Access) {
        let by_driver = self.failures()[0].1 == Code::ERROR_NOT_SUPPORTED;
        let not_undone = self.failed_accesses();
        let area = &mut self.model.areas[at];
        for (offset, mapped) in &mut area.mapped {
            if not_undone.contains(&(area.base + *offset as u64)) {
                note_of_mapping(&mut mapped.noted, who, access);
                if by_driver {
                    mapped.granted.insert(who, access);
                }
            }
        }
    }

    /// The addresses at which access could not be set, but for the first, which is the operation's own.
    fn failed_accesses(&self) -> Vec<u64> {
        let failed = self.failed().into_iter().skip(1);
        failed
            .filter_map(|record| word(record, "address"))
            .collect()
    }

    pub fn set_policy(&mut self, kv: Which, who: Which, access: Access) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let who = self.who(who);
        let expected = self.exists(who).map_err(Refusal::Check);
        let result = self.kvs[at_kv].set_policy(who, access);
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
        let failed = self.failed_accesses();
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
        if let (Ok((ours, theirs)), Err(error @ Error::Disagreement { failure: None, .. })) =
            (&expected, &result)
        {
            assert_ne!(ours, theirs, "{error}");
            let ours = format!("{who} was granted {ours} at offset {offset:#x}");
            let theirs = format!("reports {theirs}");
            let text =
                format!("the driver and this crate disagree: {ours}, but the driver {theirs}");
            assert_eq!(error.to_string(), text);
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
    note_of_mapping(&mut mapped.noted, who, access);
    mapped.granted.insert(who, access);
}
