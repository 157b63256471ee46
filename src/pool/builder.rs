//! What a pool is told before it serves.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::copier::Copier;
use super::entry::Scope;
use super::error::PoolError;
use super::ledger::Ledger;
use super::producer::Pool;
use super::sessions::Consumers;
use super::shared::Shared;
use super::ticket::{PoolId, TicketKey};
use crate::access::Access;
use crate::device::Device;
use crate::handle_type::HandleType;
use crate::props::AllocationProps;
use crate::reservation::Reservation;
use crate::wire::{Name, Peer, Server};

/// The most consumers of one pool.
pub(super) const MOST_CONSUMERS: usize = 1024;

/// The most slices of one pool.
pub(super) const MOST_SLICES: usize = 1 << 24;

const SLICES: usize = 1 << 16;

/// Describes a pool. Made by [`Pool::builder`].
#[must_use = "a builder makes no pool before `serve`"]
pub struct PoolBuilder {
    device: Device,
    size: usize,
    consumers: usize,
    slices: usize,
    groups: Vec<Range<usize>>,
    widest: Scope,
    handle_type: HandleType,
    allow: Box<dyn FnMut(&Peer) -> bool + Send>,
}

impl Pool {
    /// Starts describing a pool of this many bytes on the device, for this many consumers. The size is rounded down to
    /// the recommended granularity of the device's memory: [`size`](Pool::size) tells.
    pub fn builder(device: &Device, size: usize, consumers: usize) -> PoolBuilder {
        PoolBuilder::new(device, size, consumers)
    }
}

impl PoolBuilder {
    fn new(device: &Device, size: usize, consumers: usize) -> PoolBuilder {
        PoolBuilder {
            device: device.clone(),
            size,
            consumers,
            slices: SLICES,
            groups: Vec::new(),
            widest: Scope::Group,
            handle_type: HandleType::PosixFd,
            allow: Box::new(Peer::is_same_user),
        }
    }

    /// The most slices that are live at once; 65,536 if nothing is said, 16,777,216 at most. Each takes 16 bytes of
    /// shared host memory for each attached consumer, once it is used.
    pub fn slices(mut self, most: usize) -> PoolBuilder {
        self.slices = most;
        self
    }

    /// These consumers are a group, by rank: each may acknowledge for the others. A consumer that is in no group is a
    /// group by itself.
    pub fn group(mut self, ranks: Range<usize>) -> PoolBuilder {
        self.groups.push(ranks);
        self
    }

    /// How widely a consumer may acknowledge; [`Scope::Group`] if nothing is said.
    pub fn widest_scope(mut self, widest: Scope) -> PoolBuilder {
        self.widest = widest;
        self
    }

    /// How the memory is shared; by file descriptors if nothing is said.
    pub fn handle_type(mut self, handle_type: HandleType) -> PoolBuilder {
        self.handle_type = handle_type;
        self
    }

    /// Which processes may attach; those of this process's user if nothing is said. It is asked on the thread that
    /// serves consumers.
    pub fn allow(mut self, allow: impl FnMut(&Peer) -> bool + Send + 'static) -> PoolBuilder {
        self.allow = Box::new(allow);
        self
    }

    /// Creates the memory, and serves consumers under this name from here on.
    ///
    /// # Errors
    ///
    /// Before any driver call but those that ask: [`PoolError::ConsumerCount`], [`PoolError::SliceCount`],
    /// [`PoolError::GroupOutOfRange`], [`PoolError::GroupsOverlap`], [`PoolError::TooSmall`]. Then
    /// [`PoolError::Memory`] or [`PoolError::Wire`]. Nothing is left of the pool then.
    #[doc(alias = "cuMemCreate")]
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn serve(self, name: &Name) -> Result<Pool, PoolError> {
        let groups = self.checked_groups()?;
        let props = AllocationProps::on(&self.device).shareable_as(self.handle_type.into());
        let granularity = props.granularity()?.recommended();
        let size = self.size / granularity * granularity;
        if size == 0 {
            return Err(PoolError::TooSmall {
                size: self.size,
                granularity,
            });
        }
        let driver = self.device.driver();
        let mut memory = Reservation::builder(size)
            .access(&self.device, Access::ReadWrite)
            .reserve(driver)?;
        let made = memory.map(0, size, &props).and_then(|_| {
            let exported = memory.export_span(0, size, self.handle_type, Access::Read)?;
            Ok((exported, Copier::new(&self.device)?))
        });
        let (exported, copier) = match made {
            Ok(made) => made,
            Err(error) => return Err(memory.surrender(error).into()),
        };
        let ledger = Ledger::new(size as u64, self.slices as u32, groups, self.widest);
        let (id, key) = (
            PoolId::from_bytes(random()),
            TicketKey::from_bytes(random()),
        );
        let shared = Arc::new(Shared::new(id, key, (memory.base(), size), ledger, copier));
        let (span, fds, kept) = exported.into_parts();
        // From here on the pool owns everything, and gives it back when it is dropped.
        let mut pool = Pool::new(shared.clone(), memory, kept);
        pool.server = Some(self.listen(name, shared.clone(), span, fds)?);
        Ok(pool)
    }

    fn listen(
        self,
        name: &Name,
        shared: Arc<Shared>,
        span: Vec<u8>,
        fds: Vec<OwnedFd>,
    ) -> Result<Server, PoolError> {
        let consumers = Consumers::new(shared.clone(), span, fds);
        let server = Server::sessions(consumers)
            .most_clients(self.consumers.max(64) * 2)
            .allow(self.allow)
            .serve(name)?;
        // Set once, here.
        let _ = shared.waker.set(server.waker());
        Ok(server)
    }

    /// The group of each rank.
    fn checked_groups(&self) -> Result<Box<[Range<usize>]>, PoolError> {
        let consumers = self.consumers;
        if !(1..=MOST_CONSUMERS).contains(&consumers) {
            return Err(PoolError::ConsumerCount {
                count: consumers,
                most: MOST_CONSUMERS,
            });
        }
        if !(1..=MOST_SLICES).contains(&self.slices) {
            return Err(PoolError::SliceCount {
                count: self.slices,
                most: MOST_SLICES,
            });
        }
        let mut groups: Box<[Range<usize>]> = (0..consumers).map(|rank| rank..rank + 1).collect();
        let mut grouped = vec![false; consumers];
        for group in &self.groups {
            if group.is_empty() || group.end > consumers {
                return Err(PoolError::GroupOutOfRange {
                    start: group.start,
                    end: group.end,
                    consumers,
                });
            }
            for rank in group.clone() {
                if std::mem::replace(&mut grouped[rank], true) {
                    return Err(PoolError::GroupsOverlap { rank });
                }
                groups[rank] = group.clone();
            }
        }
        Ok(groups)
    }
}

/// Bytes that tell one pool from another, from the randomness that the system seeds the standard library's maps with.
fn random() -> [u8; 16] {
    let halves = [(); 2].map(|()| {
        RandomState::new()
            .hash_one(std::process::id())
            .to_le_bytes()
    });
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&halves[0]);
    bytes[8..].copy_from_slice(&halves[1]);
    bytes
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder")
            .field("size", &self.size)
            .field("consumers", &self.consumers)
            .field("slices", &self.slices)
            .field("groups", &self.groups)
            .field("widest", &self.widest)
            .field("handle_type", &self.handle_type)
            .finish_non_exhaustive()
    }
}
