//! What one process tells another of a span that it shares: plain data, and its form as bytes.

mod codec;
mod error;

pub use error::DecodeError;

use crate::access::Access;
use crate::handle_type::{FabricHandle, HandleType};
use crate::identity::AllocationId;

/// Offsets and sizes are multiples of this: no driver has a finer granularity.
pub(crate) const PAGE: u64 = 4096;

/// A shared span: which allocations lie where in it, and what may be done with them.
///
/// It holds neither process ids nor descriptor numbers nor addresses, so that it means the same to every process that
/// gets it, and two exports of the same span are the same bytes. As POSIX fds are passed beside it, one for each of
/// [`allocations`](Self::allocations) in their order; fabric handles stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    pub(crate) size: u64,
    pub(crate) handle_type: HandleType,
    pub(crate) offered: Access,
    pub(crate) allocations: Vec<SharedAllocation>,
    pub(crate) pieces: Vec<Piece>,
}

/// An allocation in a shared span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedAllocation {
    /// Its name, the same in every export of it.
    pub id: AllocationId,
    /// Bytes.
    pub size: u64,
    /// Where it lies.
    pub home: Home,
    /// Its fabric handle, where it is shared by one.
    pub fabric: Option<FabricHandle>,
}

/// Where shared memory lies, in words that mean the same to every process of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Home {
    /// The device with this UUID.
    Device([u8; 16]),
    /// The host, no particular node.
    Host,
    /// This NUMA node of the host.
    HostNuma(u32),
}

/// One place in a span at which an allocation lies, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// First byte, counted from the start of the span.
    pub offset: u64,
    /// Which of the span's allocations. One that lies at several places is a mirror.
    pub allocation: u32,
}

impl Descriptor {
    /// Bytes from the first to the last, holes included.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How the allocations are named.
    pub fn handle_type(&self) -> HandleType {
        self.handle_type
    }

    /// What may be done with the memory: read, or read and write.
    pub fn offered(&self) -> Access {
        self.offered
    }

    /// The allocations, in the order in which they first appear in the span. None appears twice.
    pub fn allocations(&self) -> &[SharedAllocation] {
        &self.allocations
    }

    /// What lies where, by offset.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// How many file descriptors go with it.
    pub fn fd_count(&self) -> usize {
        match self.handle_type {
            HandleType::PosixFd => self.allocations.len(),
            HandleType::Fabric => 0,
        }
    }

    /// Whether this process made all that is in it, so that an import would be one's own export.
    pub fn is_of_this_process(&self) -> bool {
        self.allocations
            .iter()
            .all(|allocation| allocation.id.is_of_this_process())
    }
}
