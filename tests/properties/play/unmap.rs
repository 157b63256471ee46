//! Unmapping.

use std::ops::Range;

use cuda_vmm::sys::Call;
use cuda_vmm::{Code, Error};

use super::gives_up;
use crate::model::{Backing, Mapped};
use crate::operation::{Extent, Owner, Wait, Which};
use crate::verdict::{word, Refusal, Verdict};
use crate::world::{Held, World};

impl World {
    pub fn unmap(&mut self, id: Which, owner: Owner, wait: Wait) -> Option<()> {
        let held = id.checked_rem(self.ids.len())?;
        let its = self.model.area_of(self.ids[held].area);
        let at = match owner {
            Owner::Its => its.or_else(|| self.kv(0))?,
            Owner::Other(which) => self.kv(which)?,
        };
        let Held { id, area, mapping } = self.ids.swap_remove(held);
        let mapped = self.model.areas[at].mapped.iter();
        let mut mapped = mapped.filter(|(_, mapped)| mapped.number == mapping);
        let range = mapped
            .next()
            .map(|(offset, mapped)| *offset..offset + mapped.size);
        let expected = match (&range, gives_up(wait)) {
            (None, _) => Err(Refusal::Check(Error::NotMapped {
                offset: id.offset(),
            })),
            (Some(_), Some(error)) => Err(Refusal::Check(error)),
            (Some(range), None) => Ok(range.clone()),
        };
        let result = match self.fence(wait) {
            None => self.kvs[at].unmap(id),
            Some(fence) => self.kvs[at].unmap_after(id, fence),
        };
        let verdict = self.judge(&expected, &result);
        if let Some(range) = range {
            self.unmapped(at, verdict, &range);
            // The id is used up; the reservation names the mapping again if it is still there.
            if let Some(id) = self.kvs[at].id_at(range.start) {
                self.ids.push(Held { id, area, mapping });
            }
        }
        Some(())
    }

    /// Unmaps what lies at an offset, by the id that the reservation gives for it.
    pub fn unmap_at(&mut self, kv: Which, at: Extent, wait: Wait) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let area = &self.model.areas[at_kv];
        let (offset, _) = area.extent(at, self.unit);
        let byte = offset..offset.saturating_add(1);
        let range = area.in_range(&byte).next();
        let range = range.map(|(offset, mapped)| offset..offset + mapped.size);
        let id = self.kvs[at_kv].id_at(offset);
        assert_eq!(
            id.as_ref().map(|id| id.offset()),
            range.as_ref().map(|range| range.start)
        );
        let (id, range) = (id?, range?);
        let expected = gives_up(wait).map_or(Ok(()), |error| Err(Refusal::Check(error)));
        let result = match self.fence(wait) {
            None => self.kvs[at_kv].unmap(id),
            Some(fence) => self.kvs[at_kv].unmap_after(id, fence),
        };
        let verdict = self.judge(&expected, &result);
        self.unmapped(at_kv, verdict, &range);
        Some(())
    }

    pub fn unmap_range(&mut self, kv: Which, at: Extent, wait: Wait) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let area = &self.model.areas[at_kv];
        let (offset, size) = area.extent(at, self.unit);
        let expected = match (area.whole(offset, size), gives_up(wait)) {
            (Ok(_), Some(error)) | (Err(error), _) => Err(Refusal::Check(error)),
            (Ok(range), None) => Ok(range),
        };
        let result = match self.fence(wait) {
            None => self.kvs[at_kv].unmap_range(offset, size),
            Some(fence) => self.kvs[at_kv].unmap_range_after(offset, size, fence),
        };
        let verdict = self.judge(&expected, &result);
        if let Ok(range) = expected {
            self.unmapped(at_kv, verdict, &range);
        }
        Some(())
    }

    /// The model after an unmap of whole mappings. Either they are gone, all of them, and what was not released after
    /// that is stuck; or they are there, all of them, but for counts that were not had back.
    fn unmapped(&mut self, at: usize, verdict: Verdict, range: &Range<usize>) {
        let there: Vec<usize> = self.model.areas[at]
            .in_range(range)
            .map(|(offset, _)| offset)
            .collect();
        let gone = self.succeeded(Call::cuMemUnmap).next().is_some();
        match verdict {
            Verdict::Refused => assert!(!gone),
            Verdict::Done => assert!(gone),
            Verdict::Failed => {}
        }
        if gone {
            let stuck = self.unreleased();
            let area = &mut self.model.areas[at];
            area.stuck.extend(stuck);
            for offset in there {
                area.mapped.remove(&offset);
            }
            return;
        }
        self.doubt(at, &there);
        for offset in there {
            let address = self.model.areas[at].base + offset as u64;
            if let Some(code) = self.failure_at(Call::cuMemRetainAllocationHandle, address) {
                let mapped = self.model.areas[at].mapped.get_mut(&offset);
                let mapped = mapped.expect("it is there");
                mapped.backing = Backing::GivenUp;
                mapped.quarantined |= code == Code::ERROR_INVALID_VALUE;
            }
        }
    }

    /// INVALID_VALUE contradicts that it is mapped and held, so what it was about is quarantined.
    fn doubt(&mut self, at: usize, there: &[usize]) {
        // Released are, in order, the handles of mappings that hold a count alone.
        let releases = |mapped: &Mapped| match mapped.backing {
            Backing::Own => true,
            Backing::Share(share) => self.model.is_sole(share),
            Backing::GivenUp => false,
        };
        let area = &self.model.areas[at];
        let released = there
            .iter()
            .filter(|offset| releases(&area.mapped[*offset]));
        let released: Vec<usize> = released.copied().collect();
        let doubted: Vec<usize> = match self.failures().first() {
            Some((Call::cuMemUnmap, Code::ERROR_INVALID_VALUE)) => there.to_vec(),
            Some((Call::cuMemRelease, Code::ERROR_INVALID_VALUE)) => {
                vec![released[self.succeeded(Call::cuMemRelease).count()]]
            }
            _ => Vec::new(),
        };
        for offset in doubted {
            let mapped = self.model.areas[at].mapped.get_mut(&offset);
            mapped.expect("it is there").quarantined = true;
        }
    }

    /// The memory of each release that failed.
    pub fn unreleased(&self) -> Vec<u64> {
        let failed = self.failed().into_iter();
        failed
            .filter(|record| record.call == Call::cuMemRelease)
            .map(|record| self.of_handle(word(record, "handle").expect("it has one")))
            .collect()
    }

    /// The memory with this handle.
    pub fn of_handle(&self, handle: u64) -> u64 {
        let mut memories = self.model.memories.iter();
        let memory = memories.find(|(_, memory)| memory.handle == handle);
        *memory.expect("a handle of ours").0
    }
}
