//! Access rights: granted and asked back.

use std::ops::Range;

use crate::sys::{CUmemAccessDesc, CUmemLocation, CUresult};

use super::super::place::{Place, Rights};
use super::abi::{In, Out};
use super::{demand, invalid, refuse, Answer, State};

/// What was granted of a mapping, by place; a place that is not listed has no access.
#[derive(Debug, Clone, Default)]
pub(super) struct Granted(Vec<(Place, Rights)>);

impl Granted {
    pub(super) fn of(&self, place: Place) -> Rights {
        let listed = self.0.iter().find(|(of, _)| *of == place);
        listed.map_or(Rights::None, |(_, rights)| *rights)
    }

    fn grant(&mut self, place: Place, rights: Rights) {
        match self.0.iter_mut().find(|(of, _)| *of == place) {
            Some((_, granted)) => *granted = rights,
            None => self.0.push((place, rights)),
        }
    }

    /// The strongest right that any place has: the process has one page table for all of them.
    pub(super) fn strongest(&self) -> Rights {
        let rights = self.0.iter().map(|(_, rights)| *rights);
        rights.max().unwrap_or(Rights::None)
    }

    /// Those that have any access, in order.
    pub(super) fn list(&self) -> Vec<(Place, Rights)> {
        let mut list = self.0.clone();
        list.retain(|(_, rights)| *rights != Rights::None);
        list.sort_unstable();
        list
    }
}

impl State {
    /// All or nothing: every descriptor and the whole range are looked at first. The range must begin and end with a mapping.
    /// Only the mappings before the first hole are changed; those behind it are silently left as they were.
    pub(super) fn cuMemSetAccess(
        &mut self,
        address: u64,
        size: usize,
        descriptors: In<CUmemAccessDesc>,
        count: usize,
    ) -> Answer {
        demand(size != 0 && count != 0)?;
        let range = self.access_range(address, size as u64)?;
        let mut grants = Vec::new();
        for index in 0..count {
            grants.push(self.check_grant(&range, descriptors.nth(index)?)?);
        }
        let mut granted: Vec<(u64, Granted)> = Vec::new();
        let mut end = range.start;
        for (&base, mapping) in self.mappings.range(range) {
            if base != end {
                break;
            }
            end = base + mapping.size;
            let mut rights = mapping.rights.clone();
            for &(place, right) in &grants {
                rights.grant(place, right);
            }
            let protected = self.backend.protect(base, mapping.size, rights.strongest());
            if let Err(refusal) = protected {
                self.protect_again(granted.iter().map(|(base, _)| *base));
                return Err(refusal);
            }
            granted.push((base, rights));
        }
        for (base, rights) in granted {
            if let Some(mapping) = self.mappings.get_mut(&base) {
                mapping.rights = rights;
            }
        }
        Ok(())
    }

    pub(super) fn cuMemGetAccess(
        &mut self,
        rights: Out<u64>,
        location: In<CUmemLocation>,
        address: u64,
    ) -> Answer {
        rights.wanted()?;
        let Some(place) = Place::of(&location.get()?) else {
            return invalid();
        };
        let Some((_, mapping)) = self.mapping_at(address) else {
            return invalid();
        };
        match place {
            Place::Device(ordinal) => drop(self.device(ordinal)?),
            Place::HostNuma(node) => demand(self.has_node(node))?,
            Place::Host => {}
        }
        rights.put(mapping.rights.of(place).flags().0.into())
    }

    /// The range if it begins where a mapping begins and ends where one ends.
    fn access_range(&self, address: u64, size: u64) -> Answer<Range<u64>> {
        let granule = self.granule();
        demand(address % granule == 0 && size % granule == 0)?;
        let Some(end) = address.checked_add(size) else {
            return invalid();
        };
        demand(self.mappings.contains_key(&address))?;
        match self.mapping_at(end - 1) {
            Some((base, mapping)) if base + mapping.size == end => Ok(address..end),
            _ => invalid(),
        }
    }

    fn check_grant(
        &self,
        range: &Range<u64>,
        descriptor: CUmemAccessDesc,
    ) -> Answer<(Place, Rights)> {
        let place = Place::of(&descriptor.location);
        let (Some(place), Some(rights)) = (place, Rights::of(descriptor.flags)) else {
            return invalid();
        };
        match place {
            // Not INVALID_DEVICE, which is what asking for the rights of such a device answers.
            Place::Device(ordinal) => demand(self.device(ordinal).is_ok())?,
            Place::HostNuma(node) => demand(self.has_node(node))?,
            Place::Host => {}
        }
        // Taking from the host what it cannot have is no mistake.
        if place.is_host() && rights == Rights::None {
            return Ok((place, rights));
        }
        for (_, mapping) in self.mappings.range(range.clone()) {
            self.reach_of(place, self.physical(mapping.physical)?.place)?;
        }
        Ok((place, rights))
    }

    /// Whether one place can be given access to memory of another: a device to its own, to the host's and to its peers'; the
    /// host to its own alone.
    fn reach_of(&self, from: Place, memory: Place) -> Answer {
        match (from, memory) {
            (Place::Device(device), Place::Device(other)) => {
                if device != other && !self.config.peers(device as usize, other as usize) {
                    return refuse(CUresult::CUDA_ERROR_INVALID_DEVICE);
                }
            }
            (Place::Device(_), _) => {}
            (_, memory) if memory.is_host() => {}
            _ => return refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
        Ok(())
    }

    /// Puts the page table back to the rights in the books, after a grant that came only half-way.
    fn protect_again(&mut self, bases: impl Iterator<Item = u64>) {
        for base in bases {
            if let Some(mapping) = self.mappings.get(&base) {
                let strongest = mapping.rights.strongest();
                // The protection of a moment ago needs nothing that was not there then.
                let _ = self.backend.protect(base, mapping.size, strongest);
            }
        }
    }
}
