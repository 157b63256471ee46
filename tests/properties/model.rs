//! The model: what there must be, as plainly as it can be said.

use std::collections::BTreeMap;
use std::ops::Range;

use cuda_vmm::{Access, Location};

use crate::contents::{part, Contents, Run};

/// Everything that was made and is not gone.
#[derive(Debug, Default)]
pub struct Model {
    /// The reservations, in the order in which the world holds them.
    pub areas: Vec<Area>,
    /// The share that each of the caller's allocations has, in the order in which the world holds those.
    pub pages: Vec<Number>,
    /// The memory of each share: one count that an allocation and its mappings hold together.
    pub shares: BTreeMap<Number, Number>,
    pub memories: BTreeMap<Number, Memory>,
    /// What the driver would not take and this crate's `Driver` keeps.
    pub kept: Vec<Piece>,
    last: Number,
}

/// Names something for good.
pub type Number = u64;

/// A reservation.
#[derive(Debug)]
pub struct Area {
    pub number: Number,
    pub base: u64,
    pub size: usize,
    pub policy: Vec<(Location, Access)>,
    pub mapped: BTreeMap<usize, Mapped>,
    /// Memory whose mapping is gone and whose count the driver did not take.
    pub stuck: Vec<Number>,
}

/// A mapping.
#[derive(Debug, Clone)]
pub struct Mapped {
    pub number: Number,
    pub size: usize,
    pub memory: Number,
    pub backing: Backing,
    /// The rights that the crate tells of.
    pub noted: Vec<(Location, Access)>,
    /// The rights that the driver gave.
    pub granted: BTreeMap<Location, Access>,
    pub quarantined: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// A count of its own.
    Own,
    Share(Number),
    GivenUp,
}

#[derive(Debug)]
pub struct Memory {
    pub handle: u64,
    pub location: Location,
    pub size: usize,
    pub contents: Contents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    Count(Number),
    Addresses { base: u64, size: usize },
}

impl Piece {
    pub fn addresses(self) -> Option<(u64, usize)> {
        match self {
            Piece::Addresses { base, size } => Some((base, size)),
            Piece::Count(_) => None,
        }
    }
}

impl Model {
    pub fn number(&mut self) -> Number {
        self.last += 1;
        self.last
    }

    pub fn memory(&mut self, handle: u64, location: Location, size: usize) -> Number {
        let number = self.number();
        let contents = Contents::new();
        let memory = Memory {
            handle,
            location,
            size,
            contents,
        };
        self.memories.insert(number, memory);
        number
    }

    pub fn share(&mut self, memory: Number) -> Number {
        let number = self.number();
        self.shares.insert(number, memory);
        number
    }

    /// How many counts each memory has, and how often it is mapped.
    pub fn counts(&self) -> BTreeMap<Number, (u32, u32)> {
        let mut counts: BTreeMap<Number, (u32, u32)> = BTreeMap::new();
        for (share, memory) in &self.shares {
            if self.is_held(*share) {
                counts.entry(*memory).or_default().0 += 1;
            }
        }
        for area in &self.areas {
            for mapped in area.mapped.values() {
                let entry = counts.entry(mapped.memory).or_default();
                entry.0 += u32::from(mapped.backing == Backing::Own);
                entry.1 += 1;
            }
            for memory in &area.stuck {
                counts.entry(*memory).or_default().0 += 1;
            }
        }
        for piece in &self.kept {
            if let Piece::Count(memory) = piece {
                counts.entry(*memory).or_default().0 += 1;
            }
        }
        counts
    }

    /// Whether an allocation or a mapping holds the share.
    pub fn is_held(&self, share: Number) -> bool {
        let backs = |mapped: &Mapped| mapped.backing == Backing::Share(share);
        let mut mapped = self.areas.iter().flat_map(|area| area.mapped.values());
        self.pages.contains(&share) || mapped.any(backs)
    }

    /// Forgets what nobody holds any more.
    pub fn sweep(&mut self) {
        let held: Vec<_> = self
            .shares
            .keys()
            .copied()
            .filter(|share| self.is_held(*share))
            .collect();
        self.shares.retain(|share, _| held.contains(share));
        let counts = self.counts();
        self.memories
            .retain(|memory, _| counts.contains_key(memory));
    }

    /// Bytes taken at a place.
    pub fn taken(&self, location: Location) -> u64 {
        let there = self.memories.values();
        let there = there.filter(|memory| match location.is_host() {
            true => memory.location.is_host(),
            false => memory.location == location,
        });
        there.map(|memory| memory.size as u64).sum()
    }

    /// The memory beneath a range that is mapped throughout, piece by piece.
    pub fn beneath(&self, area: usize, range: &Range<usize>) -> Vec<(Number, Range<usize>)> {
        let mut pieces = Vec::new();
        for (offset, mapped) in &self.areas[area].mapped {
            let start = range.start.max(*offset);
            let end = range.end.min(offset + mapped.size);
            if start < end {
                pieces.push((mapped.memory, start - offset..end - offset));
            }
        }
        pieces
    }

    pub fn read(&self, area: usize, range: &Range<usize>) -> Vec<Run> {
        let pieces = self.beneath(area, range).into_iter();
        pieces
            .flat_map(|(memory, part)| self.memories[&memory].contents.of(part))
            .collect()
    }

    pub fn write(&mut self, area: usize, range: &Range<usize>, runs: &[Run]) {
        let mut at = 0;
        for (memory, piece) in self.beneath(area, range) {
            let runs = part(runs, at..at + piece.len());
            at += piece.len();
            let memory = self.memories.get_mut(&memory).expect("mapped, so there");
            memory.contents.put(piece.start, &runs);
        }
    }

    /// Whether two ranges have a byte of memory in common, by way of mirrors with such backings.
    pub fn alias(
        &self,
        (one, one_range): (usize, &Range<usize>),
        (two, two_range): (usize, &Range<usize>),
        counts: fn(Backing, Backing) -> bool,
    ) -> bool {
        let part = |range: &Range<usize>, offset: usize, mapped: &Mapped| {
            let (start, end) = (range.start.max(offset), range.end.min(offset + mapped.size));
            start - offset..end - offset
        };
        let mut ones = self.areas[one].in_range(one_range);
        ones.any(|(offset, mapped)| {
            let here = part(one_range, offset, mapped);
            let mut twos = self.areas[two].in_range(two_range);
            twos.any(|(offset, other)| {
                let there = part(two_range, offset, other);
                mapped.memory == other.memory
                    && counts(mapped.backing, other.backing)
                    && here.start < there.end
                    && there.start < here.end
            })
        })
    }

    /// Whether a byte of memory lies at two places of the range, by way of mirrors.
    pub fn repeats(&self, area: usize, range: &Range<usize>) -> bool {
        let pieces = self.beneath(area, range);
        pieces.iter().enumerate().any(|(at, (memory, piece))| {
            let mut before = pieces[..at].iter().filter(|(other, _)| other == memory);
            before.any(|(_, other)| piece.start < other.end && other.start < piece.end)
        })
    }

    /// Where the reservation of that number is.
    pub fn area_of(&self, number: Number) -> Option<usize> {
        self.areas.iter().position(|area| area.number == number)
    }
}

impl Area {
    /// What is not mapped.
    pub fn holes(&self) -> Vec<Range<usize>> {
        let mut holes = Vec::new();
        let mut end = 0;
        for (offset, mapped) in &self.mapped {
            if end < *offset {
                holes.push(end..*offset);
            }
            end = offset + mapped.size;
        }
        if end < self.size {
            holes.push(end..self.size);
        }
        holes
    }

    /// The mappings that have bytes in the range.
    pub fn in_range<'a>(
        &'a self,
        range: &'a Range<usize>,
    ) -> impl Iterator<Item = (usize, &'a Mapped)> {
        self.mapped
            .iter()
            .map(|(offset, mapped)| (*offset, mapped))
            .filter(|(offset, mapped)| *offset < range.end && range.start < offset + mapped.size)
    }

    /// What the policy gives to memory that lies there: hosts have nothing to say about a device's.
    pub fn granted_at(&self, location: Location) -> Vec<(Location, Access)> {
        let applies = |(who, access): &&(Location, Access)| {
            access.reads() && (location.is_host() || !who.is_host())
        };
        self.policy.iter().filter(applies).copied().collect()
    }
}

/// Notes a right, in place of the one before or behind the others.
pub fn note(rights: &mut Vec<(Location, Access)>, who: Location, access: Access) {
    match rights.iter_mut().find(|(noted, _)| *noted == who) {
        Some(entry) => entry.1 = access,
        None => rights.push((who, access)),
    }
}

pub fn right_of(rights: &[(Location, Access)], who: Location) -> Access {
    let noted = rights.iter().find(|(noted, _)| *noted == who);
    noted.map_or(Access::None, |(_, access)| *access)
}
