//! Contents on their way to the host and back: which device copies them, in what segments, and the rights that it is
//! lent for that long.

use std::ops::Range;

use super::suspend::Waking;
use super::Reservation;
use crate::access::{descriptor, Access};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::mapping::Mapping;
use crate::sys::CUmemAccessDesc;

/// A device that can copy to or from a mapping, and whether the mapping's rights let it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copier {
    device: u32,
    permitted: bool,
}

/// Bytes of the reservation that one copy can move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) size: usize,
    /// The device that copies.
    pub(crate) device: u32,
}

impl Reservation {
    /// Grants over memory that was put back what each mapping has by way of rights. Where that would not let it be
    /// filled, the device that copies may, and nobody else, until [`grant_after_copies`](Self::grant_after_copies).
    pub(super) fn grant_again(&self, range: Range<usize>, waking: Waking) -> Result<()> {
        let rights = |mapping: &Mapping| {
            let copier = self.copier(mapping, Access::ReadWrite);
            let waits = waking == Waking::Filled && mapping.is_own() && !copier.permitted;
            Some((mapping.rights(), waits.then_some(copier.device)))
        };
        let mut known: Option<(u32, Vec<CUmemAccessDesc>)> = None;
        for (range, (rights, waits_for)) in self.runs(range, rights) {
            if let Some(device) = waits_for {
                let descriptors = [descriptor(Location::Device(device), Access::ReadWrite)];
                self.set_access_of(range, &descriptors)?;
                continue;
            }
            let descriptors = match known.take() {
                Some((index, descriptors)) if index == rights => descriptors,
                _ => self.rights[rights as usize].descriptors(),
            };
            self.set_access_of(range, &descriptors)?;
            known = Some((rights, descriptors));
        }
        Ok(())
    }

    /// Grants what each mapping has by way of rights, where that had to wait for copies.
    pub(crate) fn grant_after_copies(&self) -> Result<()> {
        let filled = |mapping: &Mapping| {
            let copier = self.copier(mapping, Access::ReadWrite);
            let waited = mapping.is_own() && !copier.permitted;
            waited.then_some((mapping.rights(), copier.device))
        };
        for (range, (rights, device)) in self.runs(0..self.size, filled) {
            let mut descriptors = self.rights[rights as usize].descriptors();
            if !self.rights[rights as usize].contains(Location::Device(device)) {
                descriptors.push(descriptor(Location::Device(device), Access::None));
            }
            self.set_access_of(range, &descriptors)?;
        }
        Ok(())
    }

    /// Lets a device read what none may, so that it can be copied, and gives the ranges and devices; after a failure
    /// none may again.
    pub(crate) fn let_copiers_read(&self) -> Result<Vec<(Range<usize>, u32)>> {
        let unreadable = |mapping: &Mapping| {
            let copier = self.copier(mapping, Access::Read);
            (mapping.is_own() && !copier.permitted).then_some(copier.device)
        };
        let mut granted = Vec::new();
        for (range, device) in self.runs(0..self.size, unreadable) {
            let descriptors = [descriptor(Location::Device(device), Access::Read)];
            if let Err(error) = self.set_access_of(range.clone(), &descriptors) {
                return Err(error.with_undo(self.forbid_copiers(granted)));
            }
            granted.push((range, device));
        }
        Ok(granted)
    }

    /// Undoes [`let_copiers_read`](Self::let_copiers_read), and gives what could not be undone.
    pub(crate) fn forbid_copiers(&self, granted: Vec<(Range<usize>, u32)>) -> Vec<Error> {
        let forbid = |(range, device): (Range<usize>, u32)| {
            let descriptors = [descriptor(Location::Device(device), Access::None)];
            self.set_access_of(range, &descriptors).err()
        };
        granted.into_iter().rev().filter_map(forbid).collect()
    }

    /// The bytes in a range of whole mappings whose contents go with their memory, in order, in as few segments as can
    /// be copied at once.
    pub(crate) fn segments(&self, range: Range<usize>, need: Access) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut seam = true;
        for mapping in self.among(range).filter(|mapping| mapping.is_own()) {
            let (address, size) = (mapping.address(), mapping.size());
            let device = self.copier(mapping, need).device;
            // The driver copies memory that the host has rights to through the host's mapping, from seam to seam only.
            let on_host = mapping.location().is_host();
            match segments.last_mut().filter(|_| !seam && !on_host) {
                Some(last)
                    if last.device == device && last.address + last.size as u64 == address =>
                {
                    last.size += size;
                }
                _ => segments.push(Segment {
                    address,
                    size,
                    device,
                }),
            }
            seam = on_host;
        }
        segments
    }

    /// Memory's own device if it may do it, or else one that may; if none may, the one that has to be permitted first.
    fn copier(&self, mapping: &Mapping, need: Access) -> Copier {
        let own = mapping.location().device();
        let may = |one: u32| self.rights_of(mapping, Location::Device(one)) >= need;
        let named = || {
            let rights = self.rights(mapping);
            rights.filter_map(|(location, _)| location.device())
        };
        let able = own.into_iter().chain(named()).find(|one| may(*one));
        // The driver writes memory that the host has rights to as the host.
        let host_in_the_way = need.writes() && self.host_access(mapping) == Access::Read;
        let device = able.or(own).or(named().min()).unwrap_or(0);
        Copier {
            device,
            permitted: able.is_some() && !host_in_the_way,
        }
    }

    fn set_access_of(&self, range: Range<usize>, descriptors: &[CUmemAccessDesc]) -> Result<()> {
        let address = self.address(range.start);
        let calls = self.driver.calls();
        calls.mem_set_access(address, range.len(), descriptors)
    }

    /// Neighbouring mappings of a range that are alike, as ranges; without those that are of no kind.
    fn runs<K: Copy + PartialEq>(
        &self,
        range: Range<usize>,
        kind: impl Fn(&Mapping) -> Option<K>,
    ) -> Vec<(Range<usize>, K)> {
        let mut runs: Vec<(Range<usize>, K)> = Vec::new();
        for mapping in self.among(range) {
            let Some(kind) = kind(mapping) else {
                continue;
            };
            match runs.last_mut() {
                Some((run, same)) if *same == kind && run.end == mapping.offset() => {
                    run.end = mapping.end();
                }
                _ => runs.push((mapping.range(), kind)),
            }
        }
        runs
    }
}
