//! Mapping.

use std::collections::BTreeMap;

use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Code, Error, Location, MappingId};

use crate::model::{Backing, Mapped, Number};
use crate::operation::{Extent, How, Which};
use crate::verdict::{word, Refusal, Verdict};
use crate::world::{Held, World};

impl World {
    pub fn map(&mut self, kv: Which, at: Extent, place: Which, how: How) -> Option<()> {
        let at_kv = self.kv(kv)?;
        let place = place % self.places.len();
        let (location, granularity) = (self.places[place].location, self.places[place].granularity);
        let area = &self.model.areas[at_kv];
        let (offset, size) = area.extent(at, self.unit);
        let granularity = granularity.max(self.unit);
        let expected = match (how, area.vacant(offset, size, granularity)) {
            (How::Foreign, _) => Err(Refusal::Check(Error::ForeignDriver)),
            (_, Err(error)) => Err(Refusal::Check(error)),
            (_, Ok(_)) => self.creatable(location, size),
        };
        let kv = &mut self.kvs[at_kv];
        let result = match how {
            How::Owning => kv.map(offset, size, &self.places[place].props),
            How::Releasing => kv.map_releasing(offset, size, &self.places[place].props),
            How::Foreign => kv.map(offset, size, &self.foreign),
        };
        match self.judge(&expected, &result) {
            Verdict::Done => {
                let handle = self.created().expect("a map creates");
                let memory = self.model.memory(handle, location, size);
                let backing = match how {
                    How::Releasing => Backing::GivenUp,
                    _ => Backing::Own,
                };
                self.note_mapping(at_kv, offset, memory, backing, result.expect("judged"));
            }
            Verdict::Failed => self.half_mapped(at_kv, offset, size, location),
            Verdict::Refused => {}
        }
        Some(())
    }

    /// A map that failed: what its undoing left.
    fn half_mapped(&mut self, at: usize, offset: usize, size: usize, location: Location) {
        let Some(handle) = self.created() else {
            return;
        };
        let address = self.model.areas[at].base + offset as u64;
        if self.failed_at(Call::cuMemUnmap, address) {
            let memory = self.model.memory(handle, location, size);
            self.quarantine(at, offset, memory, Backing::Own);
        } else if self.succeeded(Call::cuMemRelease).next().is_none() {
            let memory = self.model.memory(handle, location, size);
            self.model.areas[at].stuck.push(memory);
        }
    }

    pub fn map_existing(&mut self, kv: Which, at: Extent, page: Which) -> Option<()> {
        let at_kv = self.kv(kv)?;
        let page = page.checked_rem(self.pages.len())?;
        let share = self.model.pages[page];
        let memory = self.model.shares[&share];
        let (size, location) = {
            let memory = &self.model.memories[&memory];
            (memory.size, memory.location)
        };
        let granularity = self.places.iter().find(|place| place.location == location);
        let granularity = granularity.expect("made at one of them").granularity;
        let area = &self.model.areas[at_kv];
        let (offset, _) = area.extent(at, self.unit);
        let vacant = area.vacant(offset, size, granularity.max(self.unit));
        let expected = vacant.map_err(Refusal::Check);
        let result = self.kvs[at_kv].map_existing(offset, &self.pages[page]);
        let address = self.model.areas[at_kv].base.wrapping_add(offset as u64);
        let backing = Backing::Share(share);
        match self.judge(&expected, &result) {
            Verdict::Done => {
                self.note_mapping(at_kv, offset, memory, backing, result.expect("judged"));
            }
            Verdict::Failed if self.failed_at(Call::cuMemUnmap, address) => {
                self.quarantine(at_kv, offset, memory, backing);
            }
            _ => {}
        }
        Some(())
    }

    /// The handle that a create of this step gave.
    pub fn created(&self) -> Option<u64> {
        let record = self.succeeded(Call::cuMemCreate).next()?;
        word(record, "handle")
    }

    /// Whether the driver has that much.
    pub fn creatable(&self, location: Location, size: usize) -> Result<(), Refusal> {
        let Some(start) = &self.start else {
            return Ok(());
        };
        let all = match location {
            Location::Device(ordinal) => start.free_on_devices[ordinal as usize],
            _ => start.free_on_host,
        };
        // The last of it cannot be had.
        match (size as u64) < all - self.model.taken(location) {
            true => Ok(()),
            false => Err(Refusal::Driver(
                Call::cuMemCreate,
                Code::ERROR_OUT_OF_MEMORY,
            )),
        }
    }

    fn note_mapping(
        &mut self,
        at: usize,
        offset: usize,
        memory: Number,
        backing: Backing,
        id: MappingId,
    ) {
        assert_eq!(id.offset(), offset);
        let location = self.model.memories[&memory].location;
        let noted = self.model.areas[at].granted_at(location);
        let granted = noted.iter().copied().collect();
        let mapping = self.insert(at, offset, memory, backing, noted, granted);
        let area = self.model.areas[at].number;
        self.ids.push(Held { id, area, mapping });
    }

    /// A mapping that should not be there, whose unmap failed. The crate says what was to be granted; the driver has
    /// granted it if that call succeeded.
    fn quarantine(&mut self, at: usize, offset: usize, memory: Number, backing: Backing) {
        let location = self.model.memories[&memory].location;
        let noted = self.model.areas[at].granted_at(location);
        let granted = match self.succeeded(Call::cuMemSetAccess).next() {
            Some(_) => noted.iter().copied().collect(),
            None => BTreeMap::new(),
        };
        self.insert(at, offset, memory, backing, noted, granted);
        let mapped = self.model.areas[at].mapped.get_mut(&offset);
        mapped.expect("just inserted").quarantined = true;
    }

    fn insert(
        &mut self,
        at: usize,
        offset: usize,
        memory: Number,
        backing: Backing,
        noted: Vec<(Location, Access)>,
        granted: BTreeMap<Location, Access>,
    ) -> Number {
        let mapped = Mapped {
            number: self.model.number(),
            size: self.model.memories[&memory].size,
            memory,
            backing,
            noted,
            granted,
            quarantined: false,
        };
        let number = mapped.number;
        self.model.areas[at].mapped.insert(offset, mapped);
        number
    }
}
