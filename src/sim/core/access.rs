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
        self.strongest_where(|_| true)
    }

    /// The strongest right that the host has, by whichever name.
    pub(super) fn of_host(&self) -> Rights {
        self.strongest_where(Place::is_host)
    }

    fn strongest_where(&self, counts: impl Fn(Place) -> bool) -> Rights {
        let counted = self.0.iter().filter(|(place, _)| counts(*place));
        let rights = counted.map(|(_, rights)| *rights);
        rights.max().unwrap_or_default()
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
    /// The range must begin and end with a mapping, and every descriptor be valid, or nothing is done. Then the
    /// mappings are changed one by one: those before the first hole, while those behind it are silently left as they
    /// were; and those before the first that a place cannot reach, which ends the call with what was granted until
    /// then.
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
        let mut next = range.start;
        while next < range.end {
            let Some(mapping) = self.mappings.get(&next) else {
                break;
            };
            let end = next + mapping.size;
            self.grant(next, &grants)?;
            next = end;
        }
        Ok(())
    }

    /// Grants what is asked for of one mapping, as far as it can be.
    fn grant(&mut self, base: u64, grants: &[(Place, Rights)]) -> Answer {
        let Some(mapping) = self.mappings.get(&base) else {
            return Ok(());
        };
        let (size, memory) = (mapping.size, self.physical(mapping.physical)?.place);
        let mut rights = mapping.rights.clone();
        let can_be = grants
            .iter()
            // Taking from the host what it cannot have is no mistake.
            .take_while(|(place, right)| *right == Rights::None || reaches(*place, memory));
        let granted = can_be
            .map(|&(place, right)| rights.grant(place, right))
            .count();
        self.backend.protect(base, size, rights.strongest())?;
        if let Some(mapping) = self.mappings.get_mut(&base) {
            mapping.rights = rights;
        }
        if granted < grants.len() {
            return refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED);
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
        let place = Place::of(&location.get()?);
        let Some((_, mapping)) = self.mapping_at(address) else {
            return invalid();
        };
        let place = match place {
            // Of device memory the host is said to have the rights of the first device.
            Some(Place::Host) if !self.physical(mapping.physical)?.place.is_host() => {
                Place::Device(0)
            }
            Some(place) => place,
            None => return refuse(CUresult::CUDA_ERROR_INVALID_DEVICE),
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
        if let Place::Device(device) = place {
            for (_, mapping) in self.mappings.range(range.clone()) {
                self.are_peers(device, self.physical(mapping.physical)?.place)?;
            }
        }
        Ok((place, rights))
    }

    /// Whether a device can be given access to memory, if that is another device's.
    fn are_peers(&self, device: i32, memory: Place) -> Answer {
        match memory {
            Place::Device(other)
                if device != other && !self.config.peers(device as usize, other as usize) =>
            {
                refuse(CUresult::CUDA_ERROR_INVALID_DEVICE)
            }
            _ => Ok(()),
        }
    }
}

/// Whether a place can be given access to memory of another: a device to any, the host to its own alone.
fn reaches(from: Place, memory: Place) -> bool {
    !from.is_host() || memory.is_host()
}
