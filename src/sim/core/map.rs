//! Mappings: handles put at addresses, and taken away.

use std::ops::Range;

use crate::sys::{CUresult, Call};

use super::access::Granted;
use super::{demand, invalid, refuse, Answer, State};

/// A handle at an address.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) size: u64,
    pub(super) handle: u64,
    pub(super) physical: u64,
    pub(super) rights: Granted,
    /// The pieces of it that lie in no reservation: the part that runs over the end of its own.
    spill: Vec<Range<u64>>,
}

impl State {
    /// The driver looks at where a mapping starts and not at where it ends: it may run over the end of its reservation.
    pub(super) fn cuMemMap(
        &mut self,
        address: u64,
        size: usize,
        offset: usize,
        handle: u64,
        flags: u64,
    ) -> Answer {
        let size = size as u64;
        demand(size != 0 && flags == 0)?;
        let entry = self.handle(Call::cuMemMap, handle)?;
        let physical = self.physical(entry.physical)?;
        let (place, whole) = (physical.place, physical.size);
        demand(address % self.granule_of(place)? == 0)?;
        demand(self.reservation_at(address).is_some())?;
        if offset != 0 || size != whole {
            return refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let Some(end) = address.checked_add(size) else {
            return invalid();
        };
        demand(self.first_mapping_in(address..end).is_none())?;
        // Behind the end there may be something else of the process, which must not be mapped over.
        demand(self.claim(address..end))?;
        if let Some(physical) = self.physicals.get(&entry.physical) {
            self.backend.map(address, size, &physical.store)?;
        }
        let mapping = Mapping {
            size,
            handle,
            physical: entry.physical,
            rights: Granted::default(),
            spill: self.space.take_what_is_free(address..end),
        };
        self.mappings.insert(address, mapping);
        if let Some(entry) = self.handles.get_mut(&handle) {
            entry.mapped += 1;
        }
        Ok(())
    }

    /// Unmaps what lies wholly inside the range, be it nothing; refuses a range that cuts a mapping.
    pub(super) fn cuMemUnmap(&mut self, address: u64, size: usize) -> Answer {
        demand(address != 0 && size != 0)?;
        demand(self.reservation_at(address).is_some())?;
        let Some(end) = address.checked_add(size as u64) else {
            // The driver's own sum comes round to an address before this one, where the range has nothing in it.
            return Ok(());
        };
        let range = address..end;
        demand(!self.cuts(&range))?;
        self.fail_work_in(&range);
        while let Some((base, _)) = self.first_mapping_in(range.clone()) {
            self.unmap(base)?;
        }
        Ok(())
    }

    fn unmap(&mut self, base: u64) -> Answer {
        let Some(mapping) = self.mappings.get(&base) else {
            return Ok(());
        };
        self.backend.unmap(base, mapping.size)?;
        let Some(mapping) = self.mappings.remove(&base) else {
            return Ok(());
        };
        for piece in mapping.spill {
            self.give_back(piece);
        }
        if let Some(entry) = self.handles.get_mut(&mapping.handle) {
            entry.mapped -= 1;
        }
        self.forget_if_unused(mapping.handle);
        Ok(())
    }

    /// The first mapping that shares a byte with the range.
    pub(super) fn first_mapping_in(&self, range: Range<u64>) -> Option<(u64, &Mapping)> {
        self.mapping_at(range.start).or_else(|| {
            let (&base, mapping) = self.mappings.range(range).next()?;
            Some((base, mapping))
        })
    }

    /// The mapping an address lies in.
    pub(super) fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.size).then_some((base, mapping))
    }

    /// Whether a mapping lies partly inside and partly outside the range.
    fn cuts(&self, range: &Range<u64>) -> bool {
        let starts_earlier = self
            .mapping_at(range.start)
            .is_some_and(|(base, _)| base != range.start);
        let ends_later = self
            .mapping_at(range.end - 1)
            .is_some_and(|(base, mapping)| base + mapping.size != range.end);
        starts_earlier || ends_later
    }
}
