//! One range of addresses, and what is mapped in it.

mod builder;
mod close;
mod copiers;
mod copy;
mod draw;
mod held;
mod hold;
mod lift;
mod map;
mod rights;
mod suspend;
mod table;
mod unmap;
mod view;
mod wait;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub use builder::ReservationBuilder;
pub use close::CloseError;
pub(crate) use copiers::Segment;
pub use held::StillHeld;
pub(crate) use suspend::{LetGo, Waking};
pub use view::{Elements, View};
pub use wait::Closing;

use crate::access::{Access, Rights};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::location::Location;
use crate::mapping::{Mapping, MappingId};
use crate::range::within;
use crate::sys::CUmemAccessDesc;
use table::{Span, Table};

/// A reserved range of addresses (`cuMemAddressReserve`) and the mappings in it.
///
/// Offsets count bytes from its base. Every operation checks its range before the driver is called, and is all or
/// nothing. The ordinary end is [`close`](Reservation::close), which consumes the reservation, so that use afterwards
/// does not compile:
///
/// ```compile_fail,E0382
/// # use cuda_vmm::{AllocationProps, Reservation};
/// fn late(mut kv: Reservation, props: &AllocationProps) {
///     kv.close().unwrap();
///     kv.map(0, 2 << 20, props).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use cuda_vmm::{Allocation, Reservation};
/// fn late(mut kv: Reservation, page: &Allocation) {
///     kv.close().unwrap();
///     kv.map_existing(0, page).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use cuda_vmm::Reservation;
/// fn late(kv: Reservation) {
///     kv.close().unwrap();
///     kv.close().unwrap();
/// }
/// ```
///
/// Dropping it does the same work, and reports what the driver refuses to undo through
/// [`set_leak_hook`](crate::set_leak_hook).
///
/// # Work in flight
///
/// Unmapping, closing and dropping do not wait for work that uses the memory: the driver unmaps at once, and a kernel
/// or copy still running on the range then fails with ILLEGAL_ADDRESS and takes its context with it.
/// [`unmap_after`](Reservation::unmap_after) and [`close_after`](Reservation::close_after) take a
/// [`Fence`](crate::Fence) to wait for first. Where that wait fails nothing is unmapped: `close_after` gives the
/// reservation back in its error, as a [`StillHeld`], which leaks it rather than unmap it if nobody takes it out.
pub struct Reservation {
    driver: Driver,
    base: u64,
    size: usize,
    /// The least granularity: mappings start at multiples of it.
    unit: usize,
    table: Table<Mapping>,
    policy: Policy,
    /// The distinct rights that mappings have or had; a mapping notes an index.
    rights: Vec<Rights>,
    /// Handles whose mapping is undone but which the driver did not release.
    stuck: Vec<Handle>,
    next_serial: u64,
    id: u64,
    /// Set when the addresses were freed: nothing is left to do for `Drop`.
    closed: bool,
}

/// What every map grants.
struct Policy {
    rights: Rights,
    /// The most that it grants to anybody.
    most: Access,
    device_memory: Grants,
    /// Where that differs: when the policy names a host location.
    host_memory: Option<Grants>,
}

/// The part of a policy that applies to one kind of memory, ready for the driver.
struct Grants {
    descriptors: Vec<CUmemAccessDesc>,
    rights: u32,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Reservation {
    /// Starts describing a reservation of this many bytes.
    pub fn builder(size: usize) -> ReservationBuilder {
        ReservationBuilder::new(size)
    }

    fn new(driver: Driver, base: u64, size: usize, unit: usize, policy: Rights) -> Self {
        let mut rights = Vec::new();
        let policy = Policy::new(policy, &mut rights);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (table, stuck) = (Table::default(), Vec::new());
        Reservation {
            driver,
            base,
            size,
            unit,
            table,
            policy,
            rights,
            stuck,
            next_serial: 0,
            id,
            closed: false,
        }
    }

    /// First address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes reserved.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The least granularity in bytes: offsets and sizes of mappings are multiples of it, or of the greater granularity
    /// of their properties.
    pub fn granularity(&self) -> usize {
        self.unit
    }

    /// The driver it was reserved with.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// How many mappings there are.
    pub fn mapping_count(&self) -> usize {
        self.table.len()
    }

    /// Bytes that are mapped.
    pub fn mapped_bytes(&self) -> usize {
        self.mappings().map(Mapping::size).sum()
    }

    /// How many mappings and handles the driver refused to give up in an earlier operation. They are tried again by
    /// `close`.
    pub fn quarantined(&self) -> usize {
        self.stuck.len()
            + self
                .mappings()
                .filter(|mapping| mapping.is_quarantined())
                .count()
    }

    /// The access policy: what every map grants.
    pub fn policy(&self) -> impl Iterator<Item = (Location, Access)> + '_ {
        self.policy.rights.iter()
    }

    /// The mapping that contains this byte, if it is mapped.
    pub fn mapping_at(&self, offset: usize) -> Option<&Mapping> {
        let span = self
            .table
            .last_up_to(offset / self.unit)
            .filter(|span| span.end > offset / self.unit)?;
        self.table.at(span)
    }

    /// The mapping that a map operation made, while it exists.
    pub fn mapping(&self, id: &MappingId) -> Option<&Mapping> {
        let mapping = self.table.get(id.offset / self.unit)?;
        (id.reservation == self.id && mapping.serial() == id.serial).then_some(mapping)
    }

    /// The id of the mapping that contains this byte, for when the first one was used up by an unmap that failed.
    pub fn id_at(&self, offset: usize) -> Option<MappingId> {
        let mapping = self.mapping_at(offset)?;
        Some(MappingId {
            offset: mapping.offset(),
            serial: mapping.serial(),
            reservation: self.id,
        })
    }

    /// All mappings, by offset.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> + '_ {
        self.table.iter()
    }

    /// All ranges without a mapping, as offsets.
    pub fn holes(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = self
            .mappings()
            .map(Mapping::range)
            .chain(std::iter::once(self.size..self.size));
        let mut end = 0;
        starts.filter_map(move |next| {
            let hole = end..next.start;
            end = next.end;
            (!hole.is_empty()).then_some(hole)
        })
    }

    fn address(&self, offset: usize) -> u64 {
        self.base + offset as u64
    }

    /// The bytes of a span of the table, as offsets.
    fn bytes(&self, span: Span) -> Range<usize> {
        span.start * self.unit..span.end * self.unit
    }

    /// The first mapping that has bytes in the range.
    fn first_in(&self, range: &Range<usize>) -> Option<Span> {
        let unit = range.start / self.unit;
        let before = self.table.last_up_to(unit).filter(|span| span.end > unit);
        before
            .or_else(|| self.table.first_from(unit))
            .filter(|span| span.start * self.unit < range.end)
    }

    /// The mappings beneath a range that is mapped throughout. The first and the last may reach beyond it.
    fn beneath(&self, offset: usize, size: usize) -> Result<Beneath<'_>> {
        let asked = within(offset, size, self.size)?;
        let mut end = asked.start;
        let mut next = self.first_in(&asked);
        while let Some(bytes) = next
            .map(|span| self.bytes(span))
            .filter(|bytes| bytes.start <= end)
        {
            end = bytes.end;
            if end >= asked.end {
                return Ok(Beneath {
                    reservation: self,
                    next: asked.start,
                    asked,
                });
            }
            next = self.table.first_from(end / self.unit);
        }
        let hole_end = next.map_or(self.size, |span| span.start * self.unit);
        Err(Error::Hole {
            hole: end..hole_end.min(asked.end),
            asked,
        })
    }

    /// [`beneath`](Self::beneath), for a range that is made of whole mappings.
    fn whole(&self, offset: usize, size: usize) -> Result<Beneath<'_>> {
        let beneath = self.beneath(offset, size)?;
        let asked = beneath.asked.clone();
        let cut = |mapping: &&Mapping| mapping.offset() < asked.start || mapping.end() > asked.end;
        let (first, last) = (self.mapping_at(asked.start), self.mapping_at(asked.end - 1));
        match first.filter(cut).or(last.filter(cut)) {
            Some(mapping) => Err(Error::PartialMapping {
                mapping: mapping.range(),
                asked,
            }),
            None => Ok(beneath),
        }
    }
}

/// The mappings beneath a range without holes, by offset.
struct Beneath<'a> {
    reservation: &'a Reservation,
    next: usize,
    asked: Range<usize>,
}

impl<'a> Iterator for Beneath<'a> {
    type Item = &'a Mapping;

    fn next(&mut self) -> Option<&'a Mapping> {
        if self.next >= self.asked.end {
            return None;
        }
        let mapping = self.reservation.mapping_at(self.next)?;
        self.next = mapping.end();
        Some(mapping)
    }
}

impl Policy {
    fn new(policy: Rights, sets: &mut Vec<Rights>) -> Policy {
        let mut grants = |kind: Location| {
            let rights = policy.applicable_to(kind);
            Grants {
                descriptors: rights.descriptors(),
                rights: intern(sets, rights),
            }
        };
        let device_memory = grants(Location::Device(0));
        let names_host = policy.iter().any(|(location, _)| location.is_host());
        let host_memory = names_host.then(|| grants(Location::Host));
        Policy {
            most: policy.most(),
            rights: policy,
            device_memory,
            host_memory,
        }
    }

    fn grants(&self, backing: Location) -> &Grants {
        let host_memory = self.host_memory.as_ref().filter(|_| backing.is_host());
        host_memory.unwrap_or(&self.device_memory)
    }
}

/// Memory of other processes is not granted beyond what they offer.
pub(crate) fn at_most(asked: Access, offered: Access) -> Result<()> {
    match asked > offered {
        true => Err(Error::MoreThanOffered { asked, offered }),
        false => Ok(()),
    }
}

/// The index of these rights among the sets, where they are put if need be.
fn intern(sets: &mut Vec<Rights>, rights: Rights) -> u32 {
    let rights = rights.normal();
    let known = sets.iter().position(|set| *set == rights);
    let index = known.unwrap_or_else(|| {
        sets.push(rights);
        sets.len() - 1
    });
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("base", &format_args!("{:#x}", self.base))
            .field("size", &self.size)
            .field("mappings", &self.table.len())
            .field("quarantined", &self.quarantined())
            .finish_non_exhaustive()
    }
}
