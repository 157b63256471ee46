//! Taking the memory out of a reservation and putting other memory in its place, at the same addresses, in the same
//! shape, with the same rights.
//!
//! The mappings stay in the table without memory, so that their ids, their ranges and their rights stay what they were.
//! Memory that was made for a mapping goes and is made anew; a caller's allocation is unmapped, kept, and mapped again.
//! While it is down, a reservation is lent to nobody: see [`suspend`](crate::suspend).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::table::Span;
use super::Reservation;
use crate::access::{descriptor, Access};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::mapping::Mapping;
use crate::sys::CUmemAccessDesc;

/// What became of the memory that was taken out, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LetGo {
    /// The last count that is known here went.
    pub(crate) given_back: usize,
    /// A caller's allocation has it still, or an export may.
    pub(crate) still_held: usize,
}

/// What is to be done with memory before it is anybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waking {
    /// Nothing: it reads as zero.
    Empty,
    /// It is written to by copies.
    Filled,
}

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
    /// Whether the memory can be taken out at all, as the member with this tag. No driver call is made.
    pub(crate) fn can_be_taken_down(&self, tag: &str) -> Result<()> {
        for mapping in self.mappings() {
            if mapping.is_quarantined() {
                return Err(Error::Quarantined {
                    mapping: mapping.range(),
                });
            }
            if mapping.is_held() {
                return Err(Error::Held {
                    tag: tag.into(),
                    mapping: mapping.range(),
                });
            }
            if mapping.is_irreplaceable() {
                return Err(Error::Irreplaceable {
                    mapping: mapping.range(),
                });
            }
        }
        Ok(())
    }

    /// Bytes of memory that was made for its mappings, and goes when it is taken down.
    pub(crate) fn own_bytes(&self) -> usize {
        let own = self.mappings().filter(|mapping| mapping.is_own());
        own.map(Mapping::size).sum()
    }

    /// Takes all memory out; all of it, or after a driver failure none.
    ///
    /// The handles are released first, which frees nothing and can be taken back, and all is unmapped last, by one call
    /// from the first mapping to the last: the driver passes over the holes between them.
    pub(crate) fn take_down(&mut self) -> Result<LetGo> {
        let Some(hull) = self.hull(&(0..self.size)) else {
            return Ok(LetGo::default());
        };
        let let_go = self.would_let_go();
        self.release_and_unmap(hull, Mapping::release_own_handle)?;
        self.table.iter_mut().for_each(Mapping::fall_asleep);
        Ok(let_go)
    }

    /// Puts memory back where it was taken out, in pieces of about this many bytes: creates, maps, grants, and then
    /// hands each piece over, as a range of offsets.
    ///
    /// After a failure a part of it is there; [`lay_down`](Self::lay_down) takes it out again, once nothing copies to it
    /// any more.
    pub(crate) fn put_back(
        &mut self,
        piece: usize,
        waking: Waking,
        mut ready: impl FnMut(&Reservation, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        // What an earlier failure could not take out again is in the way.
        let mut left = self.lay_down();
        for handle in std::mem::take(&mut self.stuck) {
            left.extend(self.release(handle).err());
        }
        Error::first_of(left)?;
        let mut next = self.table.first_from(0);
        while let Some(Span { start, .. }) = next {
            let (mut bytes, mut end) = (0, start);
            while let Some(span) = next.filter(|_| bytes < piece) {
                if let Some(mapping) = self.table.at_mut(span) {
                    mapping.wake()?;
                    bytes += mapping.size();
                }
                end = span.end;
                next = self.table.first_from(span.end);
            }
            let range = start * self.unit..end * self.unit;
            self.grant_again(range.clone(), waking)?;
            ready(self, range)?;
        }
        Ok(())
    }

    /// Takes out again what [`put_back`](Self::put_back) has put back, in reverse, and gives what the driver refused.
    /// That stays here, as if in a mapping's quarantine, and is tried again by the next `put_back` or by `close`.
    pub(crate) fn lay_down(&mut self) -> Vec<Error> {
        let mut failures = Vec::new();
        let mut offsets: Vec<usize> = self.mappings().map(Mapping::offset).collect();
        while let Some(offset) = offsets.pop() {
            let Some(mapping) = self.table.get_mut(offset / self.unit) else {
                continue;
            };
            match mapping.lie_down() {
                Ok(None) => {}
                Ok(Some(handle)) => failures.extend(self.release(handle).err()),
                Err(error) => failures.push(error),
            }
        }
        failures
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

    fn grant_again(&self, range: Range<usize>, waking: Waking) -> Result<()> {
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

    fn set_access_of(&self, range: Range<usize>, descriptors: &[CUmemAccessDesc]) -> Result<()> {
        let address = self.address(range.start);
        let calls = self.driver.calls();
        calls.mem_set_access(address, range.len(), descriptors)
    }

    /// Neighbouring mappings of a range that are alike, as ranges; without those that are nothing.
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

    fn would_let_go(&self) -> LetGo {
        let mut let_go = LetGo::default();
        let mut seen = HashSet::new();
        for mapping in self.mappings() {
            match mapping.shared_handle() {
                // Mirrors are one memory.
                Some(share) if !seen.insert(Arc::as_ptr(share)) => {}
                Some(_) => let_go.still_held += mapping.size(),
                None if mapping.was_exported() => let_go.still_held += mapping.size(),
                None => let_go.given_back += mapping.size(),
            }
        }
        let_go
    }
}
