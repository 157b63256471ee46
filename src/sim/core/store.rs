//! What the two backends speak of: where bytes are kept, and the parts of them that lie at addresses.

use std::os::fd::OwnedFd;

use super::super::place::Place;
use super::abi::Raw;

/// Where the bytes of an allocation are.
#[derive(Debug)]
pub(super) enum Store {
    /// A memfd of its own, which can be exported.
    Own(OwnedFd),
    /// A part of the sparse memfd that all others of that place share.
    Piece {
        /// The place.
        place: Place,
        /// Where in the memfd.
        offset: u64,
    },
    /// Pages kept in the ledger under that number.
    Pages(u64),
}

impl Store {
    /// The ledger's number, 0 where memory is real.
    pub(super) fn pages(&self) -> u64 {
        match self {
            Store::Pages(number) => *number,
            _ => 0,
        }
    }
}

/// What tells one exportable allocation from every other on this machine.
pub(super) type Identity = (u64, u64);

/// What an importer learns from a shared handle.
#[derive(Debug)]
pub(super) struct Shared {
    /// The allocation's own description of its memfd.
    pub(super) store: Store,
    /// Which allocation it is.
    pub(super) identity: Identity,
    /// Where it lies.
    pub(super) origin: Origin,
    /// Its size in bytes.
    pub(super) size: u64,
}

/// Where a shared allocation lies, in words that hold in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The device of that UUID.
    Device([u8; 16]),
    /// The host, no particular node.
    Host,
    /// A NUMA node of the host.
    HostNuma(i32),
}

/// A part of an allocation, at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// Where it is mapped.
    pub(super) address: u64,
    /// Its length in bytes.
    pub(super) size: u64,
    /// The ledger's number of the allocation, 0 where memory is real.
    pub(super) pages: u64,
    /// Where in the allocation it begins.
    pub(super) offset: u64,
}

/// One end of a copy.
#[derive(Debug)]
pub(super) enum End {
    /// A buffer of the host.
    Host(Raw),
    /// Segments that follow each other without a gap.
    Device(Vec<Segment>),
}
