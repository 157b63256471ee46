//! Holds on the memory that is mapped in a range, for whoever is to keep it or to export it.

use std::ops::Range;

use super::Reservation;
use crate::allocation::Allocation;
use crate::error::{Error, Result};
use crate::handle::{Handle, Origin};
use crate::mapping::Mapping;
use crate::range::within;

impl Reservation {
    /// The mappings of a range that cuts none, by offset. There is one at least, and none is quarantined.
    pub(crate) fn whole_mappings_in(
        &self,
        offset: usize,
        size: usize,
    ) -> Result<impl Iterator<Item = &Mapping> + '_> {
        let asked = within(offset, size, self.size)?;
        let cut = |mapping: &&Mapping| mapping.offset() < asked.start || mapping.end() > asked.end;
        let (first, last) = (self.mapping_at(asked.start), self.mapping_at(asked.end - 1));
        if let Some(mapping) = first.filter(cut).or(last.filter(cut)) {
            return Err(Error::PartialMapping {
                mapping: mapping.range(),
                asked,
            });
        }
        if self.first_in(&asked).is_none() {
            return Err(Error::Hole {
                hole: asked.clone(),
                asked,
            });
        }
        if let Some(mapping) = self.among(asked.clone()).find(|one| one.is_quarantined()) {
            return Err(Error::Quarantined {
                mapping: mapping.range(),
            });
        }
        Ok(self.among(asked))
    }

    /// The mappings that have bytes in the range, by offset.
    pub(super) fn among(&self, range: Range<usize>) -> impl Iterator<Item = &Mapping> + '_ {
        let mut rest = range;
        std::iter::from_fn(move || {
            let mapping = self.table.at(self.first_in(&rest)?)?;
            rest.start = mapping.end().min(rest.end);
            Some(mapping)
        })
    }

    /// A hold on the memory of each mapping of a range that cuts none, with its offset in that range: a share of the
    /// allocation it was mapped from, or else one more count.
    pub(crate) fn hold(&self, offset: usize, size: usize) -> Result<Vec<(usize, Allocation)>> {
        let mut held: Vec<(usize, Allocation)> = Vec::new();
        for mapping in self.whole_mappings_in(offset, size)? {
            match self.hold_one(mapping) {
                Ok(allocation) => held.push((mapping.offset() - offset, allocation)),
                Err(error) => {
                    let held = held.into_iter().map(|(_, allocation)| allocation);
                    return Allocation::settle_all(held, Err(error));
                }
            }
        }
        Ok(held)
    }

    fn hold_one(&self, mapping: &Mapping) -> Result<Allocation> {
        if let Some(share) = mapping.shared_handle() {
            return Ok(Allocation::from_share(share.clone()));
        }
        let raw = self.driver.calls().mem_retain(mapping.address())?;
        let handle = Handle::owned(&self.driver, raw, mapping.memory(), Origin::Retained);
        let known = mapping.raw_handle();
        if known.is_none_or(|known| known == raw) {
            mapping.hold_identity(handle.identity());
            return Ok(Allocation::from_handle(handle));
        }
        let address = mapping.address();
        Allocation::from_handle(handle).settle(Err(Error::disagreement(
            format!(
                "handle {:#x} is mapped at {address:#x}",
                known.unwrap_or_default()
            ),
            format!("gives {raw:#x} for that address"),
        )))
    }
}
