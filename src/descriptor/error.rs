//! Why bytes describe no span.

use crate::bytes::Bytes;
use crate::identity::AllocationId;

/// Why bytes are refused as a description of a shared span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end too early, by what they themselves say.
    #[error("{got} bytes are too short: {needed} are needed")]
    TooShort {
        /// How many there must be at least.
        needed: u64,
        /// How many there are.
        got: usize,
    },
    /// There are bytes behind the end.
    #[error("{got} bytes are too long: the description ends after {expected}")]
    TooLong {
        /// Where it ends.
        expected: u64,
        /// How many there are.
        got: usize,
    },
    /// They begin with something else.
    #[error("they begin with {found:02x?}, so this is something else")]
    BadMagic {
        /// The first eight bytes.
        found: [u8; 8],
    },
    /// They were written by another version of this crate.
    #[error("version {version} is not known here: this is version {known}")]
    UnknownVersion {
        /// The version they name.
        version: u16,
        /// The version that this crate reads and writes.
        known: u16,
    },
    /// A kind of handle that is not known here.
    #[error("handle type {tag} is not known here")]
    UnknownHandleType {
        /// The number that stands for it.
        tag: u8,
    },
    /// Rights that are not known here.
    #[error("access {tag} is not known here")]
    UnknownAccess {
        /// The number that stands for them.
        tag: u8,
    },
    /// A kind of place that is not known here.
    #[error("allocation {allocation} lies at a place of kind {tag}, which is not known here")]
    UnknownHome {
        /// Which allocation.
        allocation: u32,
        /// The number that stands for the place's kind.
        tag: u8,
    },
    /// Bytes that say nothing are not zero.
    #[error("allocation {allocation} has bytes that say nothing and are not zero")]
    Padding {
        /// Which allocation.
        allocation: u32,
    },
    /// The span contains nothing.
    #[error("the span has no pieces")]
    Empty,
    /// A size is zero.
    #[error("allocation {allocation} has no bytes")]
    ZeroSize {
        /// Which allocation.
        allocation: u32,
    },
    /// An offset or a size is not a multiple of the least granularity there is.
    #[error("{value} is not a multiple of {granularity}")]
    Misaligned {
        /// The offset or size.
        value: u64,
        /// What it must be a multiple of.
        granularity: u64,
    },
    /// A piece does not lie in the span.
    #[error("piece {piece}, {} at {offset:#x}, is not in the span of {}", Bytes(*size as usize), Bytes(*span as usize))]
    OutOfSpan {
        /// Which piece.
        piece: u32,
        /// Its first byte.
        offset: u64,
        /// Its size.
        size: u64,
        /// The size of the span.
        span: u64,
    },
    /// A piece lies over the one before it, or before it.
    #[error("piece {piece} begins at {offset:#x}, but the one before it ends at {end:#x}")]
    Overlap {
        /// Which piece.
        piece: u32,
        /// Its first byte.
        offset: u64,
        /// Where the one before it ends.
        end: u64,
    },
    /// A piece is of an allocation that does not exist.
    #[error("piece {piece} is of allocation {allocation}, but there are {count}")]
    NoSuchAllocation {
        /// Which piece.
        piece: u32,
        /// The allocation that it names.
        allocation: u32,
        /// How many there are.
        count: u32,
    },
    /// Allocations do not stand in the order in which they first appear.
    #[error("piece {piece} is of allocation {allocation}, but allocation {expected} is next")]
    OutOfOrder {
        /// Which piece.
        piece: u32,
        /// The allocation that it names.
        allocation: u32,
        /// The first one that has not appeared yet.
        expected: u32,
    },
    /// An allocation appears in no piece.
    #[error("allocation {allocation} is in no piece")]
    Unused {
        /// Which allocation.
        allocation: u32,
    },
    /// Two allocations have the same name.
    #[error("allocation {allocation} is {id}, as is another")]
    Duplicate {
        /// The later one.
        allocation: u32,
        /// Their name.
        id: AllocationId,
    },
}
