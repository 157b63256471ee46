//! Memory that goes while nobody needs it, and comes back at the same addresses.
//!
//! A [`Group`] owns reservations and elastic ranges. [`suspend`](Group::suspend) takes their memory away and gives it
//! to the driver, for other processes to use; the addresses, the shape and the rights stay. [`resume`](Group::resume)
//! puts memory back in the same places, so that every address that anybody noted means what it meant. Contents go, or
//! are kept on the host, as was said of each member.
//!
//! ```
//! # use cuda_vmm::{sim::Simulation, Access, AllocationProps, Driver, Error, Reservation};
//! use cuda_vmm::suspend::{Backup, Group};
//!
//! # let sim = Simulation::new();
//! # let driver = Driver::simulated(&sim)?;
//! # let device = driver.device(0)?;
//! # let props = AllocationProps::on(&device);
//! # let reserve = || Reservation::builder(64 << 20).access(&device, Access::ReadWrite).reserve(&driver);
//! # let (mut weights, mut cache) = (reserve()?, reserve()?);
//! # weights.map(0, 4 << 20, &props)?;
//! # cache.map(0, 8 << 20, &props)?;
//! weights.write(0, b"learnt")?;
//! let mut engine = Group::new(&driver);
//! let weights = engine.add(weights, "weights", Backup::Host)?;
//! let cache = engine.add(cache, "cache", Backup::None)?;
//!
//! let asleep = engine.suspend("cache")?;
//! assert_eq!(asleep.given_back, 8 << 20);
//! assert!(matches!(engine.get(&cache), Err(Error::Suspended { .. })));
//! engine.suspend(&weights)?;
//!
//! engine.resume(cuda_vmm::suspend::Select::All)?;
//! let mut back = [0; 6];
//! engine.get(&weights)?.read(0, &mut back)?;
//! assert_eq!(&back, b"learnt");
//! # engine.close()?;
//! # assert!(sim.snapshot().holds_no_memory());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is reachable asleep
//!
//! [`Group::get`] and [`Group::get_mut`] lend a member while it is awake; asleep, they answer [`Error::Suspended`], so
//! that nothing can be copied, exported or mapped. Addresses and shape are told by [`Group::outline`], always. What
//! borrows from a member, such as a view, keeps the group from being suspended:
//!
//! ```compile_fail,E0502
//! # use cuda_vmm::{suspend::{Group, Key, Select}, Reservation};
//! fn late(engine: &mut Group, cache: &Key<Reservation>) -> u64 {
//!     let view = engine.get(cache).unwrap().view(0, 2 << 20).unwrap();
//!     engine.suspend(Select::All).unwrap();
//!     view.address()
//! }
//! ```
//!
//! # What holds the memory all the same
//!
//! Stop servers, drop spans and close descriptors before suspending, and serve anew after resuming: memory that somebody
//! holds is not free for others when its mapping is gone. What does not borrow from a member is found in part:
//!
//! | what is held elsewhere | what suspending says |
//! |---|---|
//! | an export by fabric handles of the member in this process: an [`ExportedSpan`](crate::share::ExportedSpan), or its [`Kept`](crate::share::Kept) | [`Error::Held`] |
//! | an [`Allocation`](crate::Allocation) or a [`SpanSource`](crate::share::SpanSource) that was retained of memory that had been exported by the member; this process's own import of what it exported | [`Error::Held`] |
//! | a file descriptor that is open still, here, in a [`Server`](crate::share::wire::Server) or in another process, and imports elsewhere | nothing: they keep the memory, which is counted in [`still_held`](Suspended::still_held), as all memory is that was exported since it was created, even where all descriptors are closed by then |
//! | what was exported by its address: of an allocation or a [`SpanSource`](crate::share::SpanSource) that was retained before the member had exported it, the spans, handles and descriptors | nothing: they keep the memory, which is counted in [`given_back`](Suspended::given_back) |
//! | an allocation retained of memory that was never exported, or counts taken by raw calls | nothing: they keep the memory, which is counted in [`given_back`](Suspended::given_back) |
//!
//! # Whose memory goes
//!
//! | a mapping of | asleep | contents, if dropped | contents, if kept |
//! |---|---|---|---|
//! | [`map`](Reservation::map), [`map_releasing`](Reservation::map_releasing) | its memory goes, and memory with the same properties is made in its place | zero | copied |
//! | [`map_existing`](Reservation::map_existing) | the allocation is unmapped, held, and mapped again, at all of its mirrors | stay | stay |
//!
//! Importers keep memory that was exported; resumed, the member has other memory than they. It has to be exported again.
//! A [`MappingId`](crate::MappingId) names the same mapping as before. What was mapped inside of the reservation by raw
//! calls, past this crate, is unmapped and lost.
//!
//! An elastic range lets go of what it has cached, and keeps its blocks whole: what goes, and is copied if contents are
//! kept, is what it [retains](crate::ElasticRange::retained_bytes), which may be more than what is committed.
//!
//! # Host memory
//!
//! Contents are kept in ordinary memory of the process, in huge pages where the kernel gives them, which is touched by
//! several threads, registered with the driver (`cuMemHostRegister`) and copied to, all at once, block by block. That
//! is what costs in the first cycle; copies run at the speed of the bus. With
//! [`keep_host_memory`](Group::keep_host_memory) the next cycle reuses it. The system may give out more memory than it
//! has and end processes later: whoever keeps contents sees to it that the host has as much free as is to be kept.

mod choice;
mod close;
mod copy_out;
mod host;
mod lane;
mod member;
mod outline;
mod report;
mod sleep;
mod touching;
mod wake;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

pub use member::{Backup, Key, Member, MemberId, Select};
pub use outline::{MappingOutline, Outline};
pub use report::{Incomplete, NotAdded, Resumed, Suspended, Unclosed};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::reservation::Reservation;
use host::{HostCopy, Pool};
use member::AnyMember;

/// Reservations and elastic ranges that are suspended and resumed together, or by tag, or one by one.
///
/// Dropping it drops its members, awake or asleep: addresses and contents on the host go.
pub struct Group {
    driver: Driver,
    slots: BTreeMap<u64, Slot>,
    pool: Pool,
    /// Whether contents may be copied to memory that the driver would not register.
    unregistered: bool,
    next: u64,
    id: u64,
}

/// A member, and what is to be known of it.
struct Slot {
    member: AnyMember,
    tag: String,
    backup: Backup,
    state: State,
}

enum State {
    Awake,
    /// With its contents, if they are kept.
    Asleep(Option<HostCopy>),
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Group {
    /// A group without members.
    pub fn new(driver: &Driver) -> Group {
        Group {
            driver: driver.clone(),
            slots: BTreeMap::new(),
            pool: Pool::new(driver),
            unregistered: false,
            next: 0,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Whether host memory that held contents is kept for the next time, registered, instead of being given back to the
    /// system with each resume. Not if not said.
    #[must_use]
    pub fn keep_host_memory(mut self, keep: bool) -> Self {
        self.pool.keep = keep;
        self
    }

    /// How many bytes of host memory are made, registered and copied to at a time: rounded up to huge pages of 2 MiB;
    /// 128 MiB if not said. What is kept already stays as it is.
    #[must_use]
    pub fn host_block(mut self, bytes: usize) -> Self {
        self.pool.set_piece(bytes);
        self
    }

    /// Whether contents may also be copied to memory that the driver refuses to register. Such copies run at a fraction
    /// of the speed; if not said, the refusal is an error, and nothing is suspended.
    #[must_use]
    pub fn unregistered_copies(mut self, allowed: bool) -> Self {
        self.unregistered = allowed;
        self
    }

    /// Takes a member in, awake.
    ///
    /// # Errors
    ///
    /// The member, where it was made with another driver ([`Error::ForeignDriver`]).
    pub fn add<M: Member>(
        &mut self,
        member: M,
        tag: impl Into<String>,
        backup: Backup,
    ) -> Result<Key<M>, Box<NotAdded<M>>> {
        if !member.driver().is_same(&self.driver) {
            let error = Error::ForeignDriver;
            return Err(Box::new(NotAdded { error, member }));
        }
        let number = self.next;
        self.next += 1;
        let slot = Slot {
            member: member.into_any(),
            tag: tag.into(),
            backup,
            state: State::Awake,
        };
        self.slots.insert(number, slot);
        Ok(Key::new(self.id_of(number)))
    }

    /// Takes a member out again. It has to be awake.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchMember`], [`Error::Suspended`].
    pub fn remove<M: Member>(&mut self, key: &Key<M>) -> Result<M> {
        // A member that is lent as this is the only one that can be taken out as this.
        self.get(key)?;
        let slot = self.slots.remove(&key.id.number);
        slot.and_then(|slot| M::from_any(slot.member))
            .ok_or(Error::NoSuchMember)
    }

    /// A member that is awake.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchMember`], [`Error::Suspended`].
    pub fn get<M: Member>(&self, key: &Key<M>) -> Result<&M> {
        let slot = self.awake(key.id)?;
        M::of(&slot.member).ok_or(Error::NoSuchMember)
    }

    /// A member that is awake, to be changed: mapped to, unmapped, granted, written to.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchMember`], [`Error::Suspended`].
    pub fn get_mut<M: Member>(&mut self, key: &Key<M>) -> Result<&mut M> {
        self.awake(key.id)?;
        let slot = self.slots.get_mut(&key.id.number);
        slot.and_then(|slot| M::of_mut(&mut slot.member))
            .ok_or(Error::NoSuchMember)
    }

    /// Says anew what is to become of a member's contents, from the next time on that it is suspended. It has to be
    /// awake.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchMember`], [`Error::Suspended`]. Nothing is changed then.
    pub fn set_backup(&mut self, member: MemberId, backup: Backup) -> Result<()> {
        self.awake(member)?;
        let slot = self.slots.get_mut(&member.number);
        slot.map(|slot| slot.backup = backup)
            .ok_or(Error::NoSuchMember)
    }

    /// Where a member lies and what it is made of, asleep or awake.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchMember`].
    pub fn outline(&self, member: MemberId) -> Result<Outline<'_>> {
        self.slot(member)
            .map(|slot| Outline::of(slot.member.reservation()))
    }

    /// Whether a member is suspended.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchMember`].
    pub fn is_suspended(&self, member: MemberId) -> Result<bool> {
        self.slot(member).map(Slot::is_asleep)
    }

    /// The members, in the order in which they were added, with their tags.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &str)> + '_ {
        let slots = self.slots.iter();
        slots.map(|(number, slot)| (self.id_of(*number), slot.tag.as_str()))
    }

    /// Bytes of host memory that the group has: contents of members that sleep, and what is kept for later.
    pub fn host_bytes(&self) -> usize {
        let copies = self.slots.values().filter_map(|slot| match &slot.state {
            State::Asleep(copy) => copy.as_ref(),
            State::Awake => None,
        });
        self.pool.bytes() + copies.map(HostCopy::taken).sum::<usize>()
    }

    /// How many mappings and handles of the members the driver refused to give up in an earlier operation. A later
    /// resume, or the end of the group, tries them again.
    pub fn quarantined(&self) -> usize {
        let members = self.slots.values().map(|slot| slot.member.reservation());
        members.map(Reservation::quarantined).sum()
    }

    /// Gives the host memory that is kept for later back to the system (`cuMemHostUnregister`), and tells how many
    /// bytes that was. Contents of members that sleep stay.
    ///
    /// # Errors
    ///
    /// The first driver failure, with the further ones attached. One does not stop the rest; what was refused is kept,
    /// and can be tried again.
    #[doc(alias = "cuMemHostUnregister")]
    pub fn trim(&mut self) -> Result<usize> {
        let (bytes, failures) = self.pool.trim();
        Error::first_of(failures).map(|()| bytes)
    }

    fn id_of(&self, number: u64) -> MemberId {
        let group = self.id;
        MemberId { group, number }
    }

    fn ids(&self, numbers: &[u64]) -> Vec<MemberId> {
        numbers.iter().map(|number| self.id_of(*number)).collect()
    }

    fn slot(&self, member: MemberId) -> Result<&Slot> {
        let slot = self.slots.get(&member.number);
        slot.filter(|_| member.group == self.id)
            .ok_or(Error::NoSuchMember)
    }

    fn awake(&self, member: MemberId) -> Result<&Slot> {
        let slot = self.slot(member)?;
        match slot.state {
            State::Awake => Ok(slot),
            State::Asleep(_) => {
                let (tag, base, size) = slot.place();
                Err(Error::Suspended { tag, base, size })
            }
        }
    }

    fn member(&self, number: u64) -> Option<&Reservation> {
        self.slots
            .get(&number)
            .map(|slot| slot.member.reservation())
    }

    fn member_mut(&mut self, number: u64) -> Option<&mut Reservation> {
        self.slots
            .get_mut(&number)
            .map(|slot| slot.member.reservation_mut())
    }
}

impl Slot {
    fn is_asleep(&self) -> bool {
        matches!(self.state, State::Asleep(_))
    }

    /// What an error calls it by: its tag, and base and size of the reservation.
    fn place(&self) -> (String, u64, usize) {
        let reservation = self.member.reservation();
        (self.tag.clone(), reservation.base(), reservation.size())
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asleep = self.slots.values().filter(|slot| slot.is_asleep()).count();
        f.debug_struct("Group")
            .field("members", &self.slots.len())
            .field("asleep", &asleep)
            .field("host_bytes", &self.host_bytes())
            .finish_non_exhaustive()
    }
}
