//! What can go wrong, with the numbers a person needs to put it right.

mod failure;
mod meaning;
mod undo;
mod words;

use std::ops::Range;
use std::path::PathBuf;

pub use failure::{Attempt, DriverFailure};
pub use undo::NotUndone;
pub(crate) use words::uuid_text;
pub use words::{BadFd, What};

use crate::access::Access;
use crate::bytes::{Bounds, Bytes};
use crate::descriptor::DecodeError;
use crate::handle_type::{self, Refusal};
use crate::location::Location;
use crate::recipe::HandleTypes;
use crate::sys::{Call, LoadError, Tried};
use crate::wire::{RanksError, WireError};
use words::{
    cached_text, devices, exportable_text, free_bytes, hole_text, next_multiple, next_power,
};

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that this crate's operations answer instead of doing what was asked.
///
/// An operation that returned an error changed nothing, unless the error is [`Error::NotUndone`], which says what is
/// left and who holds it. Sizes and offsets are bytes.
///
/// The text of an error is the whole of it, on one line, so [`source`](std::error::Error::source) has nothing to add;
/// what lies beneath is in the fields.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver library was found; each place is listed with the loader's reason.
    #[error("{}", LoadError::NotFound { tried: tried.clone() })]
    DriverNotFound {
        /// What was opened, and why it failed.
        tried: Vec<Tried>,
    },
    /// A library was found but is no usable driver.
    #[error(transparent)]
    Load(LoadError),
    /// The library is a toolkit's stub (code 34), which is for linking only.
    #[error("{}", LoadError::StubLibrary { path: path.clone() })]
    StubLibrary {
        /// The library's path, as it was opened.
        path: PathBuf,
    },
    /// The driver is older than the call.
    #[error("this driver has no {call}: update it, or do without what needs the call")]
    MissingCall {
        /// The absent call.
        call: Call,
    },
    /// The process was forked after the driver was loaded; the driver belongs to the parent.
    #[error("this process was forked after the CUDA driver was loaded: load the driver again after exec, or before the fork not at all")]
    ForkedChild,
    /// A driver call failed.
    #[error("{0}")]
    Driver(DriverFailure),
    /// No address range of that size is free: addresses ran out, not memory.
    #[error("no free address range of {}: reserve less, or free other reservations (this is address space, not device memory)", Bytes(*size))]
    OutOfAddressSpace {
        /// The size asked for.
        size: usize,
    },
    /// The memory asked for is not free. Mapping and granting can run out too; [`Error::is_out_of_memory`] answers for
    /// all of them.
    #[error("not enough free memory on {location} for {}", Bytes(*size))]
    OutOfMemory {
        /// The size asked for.
        size: usize,
        /// Where.
        location: Location,
    },

    /// A size is zero.
    #[error("{what} is zero: give a size in bytes")]
    ZeroSize {
        /// Which size.
        what: What,
    },
    /// Offset and size together exceed the address space.
    #[error("offset {offset} + size {size} overflows: was a negative number converted to an unsigned one?")]
    Overflow {
        /// The offset given.
        offset: usize,
        /// The size given.
        size: usize,
    },
    /// The range does not lie in the reservation.
    #[error("{} is outside {}: offset {offset}, size {size} and the reservation's {len} are bytes, not elements", Bounds::from(&(*offset..offset.saturating_add(*size))), Bounds::from(&(0..*len)))]
    OutOfRange {
        /// The offset given.
        offset: usize,
        /// The size given.
        size: usize,
        /// The size of the reservation.
        len: usize,
    },
    /// A value is not a multiple of the granularity.
    #[error("{what} {value} is not a multiple of the granularity {}{}", Bytes(*granularity), next_multiple(*value, *granularity))]
    Misaligned {
        /// Which value.
        what: What,
        /// The value given.
        value: usize,
        /// What it must be a multiple of.
        granularity: usize,
    },
    /// The alignment of a reservation is not zero or a power of two.
    #[error("alignment {alignment} is not a power of two: use 0 for the driver's choice{}", next_power(*alignment))]
    BadAlignment {
        /// The alignment given.
        alignment: usize,
    },
    /// Something is mapped in the range already.
    #[error(
        "{} overlaps the mapping at {}: unmap that first, or map beside it",
        Bounds::from(asked),
        Bounds::from(existing)
    )]
    Overlap {
        /// The range asked for, as offsets.
        asked: Range<usize>,
        /// The first mapping in the way.
        existing: Range<usize>,
    },
    /// The range contains bytes that are not mapped, or nothing but those.
    #[error("{}", hole_text(asked, hole))]
    Hole {
        /// The range asked for, as offsets.
        asked: Range<usize>,
        /// The first hole in it.
        hole: Range<usize>,
    },
    /// The range cuts a mapping, which the driver maps, grants and unmaps as a whole only.
    #[error(
        "{} cuts the mapping at {}: name whole mappings",
        Bounds::from(asked),
        Bounds::from(mapping)
    )]
    PartialMapping {
        /// The range asked for, as offsets.
        asked: Range<usize>,
        /// The mapping that is cut.
        mapping: Range<usize>,
    },
    /// The mapping that the id names is gone, or belongs to another reservation.
    #[error("the mapping made at offset {offset:#x} is no longer in this reservation: it was unmapped by range, or the id is another reservation's")]
    NotMapped {
        /// Where it was mapped.
        offset: usize,
    },
    /// The size does not equal the allocation's.
    #[error("the driver will not map {} of this allocation: a handle is mapped whole, so its size is not what was claimed for it", Bytes(*claimed))]
    WrongSize {
        /// The size that was claimed for the allocation.
        claimed: usize,
    },
    /// What is to be used together was made through different drivers.
    #[error("this was made through another driver than what it is to be used with: make both with the same one")]
    ForeignDriver,
    /// There is no such device.
    #[error("there is no device {ordinal}: the driver has {count}{}", devices(*count))]
    NoSuchDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// A location is written in a way in which no place is called.
    #[error("{location} names no place: use Location::Device, Location::Host, or Location::HostNuma with a node below 2147483648")]
    NoSuchPlace {
        /// The location given.
        location: Location,
    },
    /// No device has this UUID.
    #[error("no device has the UUID {}", uuid_text(uuid))]
    NoSuchUuid {
        /// The UUID asked for.
        uuid: [u8; 16],
    },
    /// A location was given rights twice in one policy.
    #[error("{location} is given rights twice: name each location once")]
    DuplicateAccess {
        /// The location.
        location: Location,
    },
    /// The driver reserved addresses elsewhere than exactly asked; they were freed again.
    #[error("the address {wanted:#x} was not to be had: the driver offered {got:#x}, which was given back; ask with `hint` if another address will do")]
    HintNotHonoured {
        /// The address asked for.
        wanted: u64,
        /// Where the driver put it.
        got: u64,
    },
    /// A mapping in the range is left over from an operation that could not be undone.
    #[error("the mapping at {} is quarantined, left over from a failed operation: unmap it (its rights and contents are not known), then map again", Bounds::from(mapping))]
    Quarantined {
        /// The mapping, as offsets.
        mapping: Range<usize>,
    },
    /// The host may read the memory but not write it. The driver writes memory that the host has rights to through the
    /// host's own mapping, so that a copy by a device would end the process, whatever the device may do.
    #[error("the host may only read the mapping at {}, and the driver copies to it as the host: grant the host read-write, or nothing", Bounds::from(mapping))]
    HostReadOnly {
        /// The mapping, as offsets.
        mapping: Range<usize>,
    },
    /// No device of the access policy may do this with all of the range.
    #[error(
        "no device may {verb} all of {}: grant one the access first",
        Bounds::from(range)
    )]
    NoAccess {
        /// The range, as offsets.
        range: Range<usize>,
        /// `read` or `write`.
        verb: &'static str,
    },
    /// A device may read the source of a copy, and another one may write its target, but none may do both.
    #[error(
        "no one device may both read {} and write {}: grant one of them the access that it lacks",
        Bounds::from(from),
        Bounds::from(to)
    )]
    NoCommonDevice {
        /// The target, as offsets in its reservation.
        to: Range<usize>,
        /// The source, as offsets in its reservation.
        from: Range<usize>,
    },
    /// The target of a copy shares memory with its source, by its addresses or as a mirror.
    #[error(
        "{} cannot be copied to {}, which shares memory with it: copy by way of a third range",
        Bounds::from(from),
        Bounds::from(to)
    )]
    OverlappingCopy {
        /// The target, as offsets.
        to: Range<usize>,
        /// The source, as offsets.
        from: Range<usize>,
    },
    /// The allocation was not created for this kind of sharing.
    #[error("{}", exportable_text(*asked, *needed))]
    NotExportable {
        /// What it was created for.
        asked: HandleTypes,
        /// What the operation needs.
        needed: HandleTypes,
    },
    /// The allocation came from another process, and the driver exports only what was created.
    #[error("the allocation was imported, and an import cannot be exported: have its maker share it with the third process")]
    ImportNotExportable,
    /// A file descriptor is no export of the driver's.
    #[error("file descriptor {fd} is no exported allocation: {why}")]
    NotAnExport {
        /// Its number.
        fd: i32,
        /// What is wrong with it, as far as can be seen.
        why: BadFd,
    },
    /// An import does not lie where it was said to.
    #[error("the imported memory is on {actual}, but was said to be on {claimed}")]
    WrongPlace {
        /// Where it was said to lie, as this process numbers devices.
        claimed: Location,
        /// Where it lies.
        actual: Location,
    },
    /// Memory of other processes is used as its maker offers it, or with less.
    #[error("{asked} was asked for, but the memory's maker offers {offered}: ask for {offered}")]
    MoreThanOffered {
        /// The access asked for.
        asked: Access,
        /// The access that came with the memory.
        offered: Access,
    },
    /// A span was to be shared with no rights at all.
    #[error("a span is offered for reading or for reading and writing, not for nothing")]
    NothingOffered,
    /// The bytes describe no span.
    #[error("the bytes describe no shared span: {0}")]
    Descriptor(DecodeError),
    /// A span came with too few or too many file descriptors.
    #[error("the span needs {needed} file descriptors, and {got} came with it")]
    WrongFdCount {
        /// As many as it has allocations, or none where they are named by fabric handles.
        needed: usize,
        /// How many there are.
        got: usize,
    },
    /// Addresses in a span that was to be shared belong to no virtual memory management.
    #[error(
        "{} in {} is not mapped by virtual memory management: ask for less, or allow for gaps",
        Bounds::from(gap),
        Bounds::from(asked)
    )]
    Gap {
        /// The addresses asked for.
        asked: Range<u64>,
        /// The first that are not mapped.
        gap: Range<u64>,
    },
    /// Memory cannot be shared in this way here.
    #[error(
        "memory of this device cannot be shared: {}",
        handle_type::All(refusals)
    )]
    Unshareable {
        /// What was tried, and how it was refused.
        refusals: Vec<Refusal>,
    },
    /// An element type does not fit the range.
    #[error(
        "{} holds no whole number of aligned {}-byte elements",
        Bounds::from(range),
        size
    )]
    Elements {
        /// The range, as offsets.
        range: Range<usize>,
        /// Size of an element in bytes.
        size: usize,
    },
    /// The blocks of an elastic range are powers of two.
    #[error("block size {size} is not a power of two{}", next_power(*size))]
    BlockNotPowerOfTwo {
        /// The size given.
        size: usize,
    },
    /// The blocks of an elastic range are not smaller than the memory's granularity.
    #[error("block size {size} is below the granularity {}", Bytes(*granularity))]
    BlockBelowGranularity {
        /// The size given.
        size: usize,
        /// The granularity of the memory.
        granularity: usize,
    },
    /// The least block of an elastic range is larger than the greatest.
    #[error("the least block, {}, is larger than the greatest, {}", Bytes(*least), Bytes(*greatest))]
    BlocksOutOfOrder {
        /// The least size given.
        least: usize,
        /// The greatest size given.
        greatest: usize,
    },
    /// The cache of an elastic range may not hold more than the device has.
    #[error("a cache of {} is more than {location} has, {}", Bytes(*cache), Bytes(*total))]
    CacheBeyondMemory {
        /// The bound given.
        cache: usize,
        /// All memory there.
        total: usize,
        /// Where.
        location: Location,
    },
    /// The range contains bytes that are not committed.
    #[error(
        "{} contains the bytes {}, which are not committed: commit them first",
        Bounds::from(asked),
        Bounds::from(gap)
    )]
    NotCommitted {
        /// The range asked for, as offsets.
        asked: Range<usize>,
        /// The first bytes in it that are not committed; of a resize, those that the range would end behind.
        gap: Range<usize>,
    },
    /// There is not enough memory to commit a range, which is as it was before. What its cache held was released before
    /// memory was asked for a last time.
    #[error("not enough free memory on {location} for the {} that committing needs{}{}", Bytes(*asked), free_bytes(*free), cached_text(*cached))]
    CommitOutOfMemory {
        /// The bytes that had to be created, all blocks of the commit together.
        asked: usize,
        /// What was free afterwards, where the driver could be asked.
        free: Option<usize>,
        /// What was in the cache.
        cached: usize,
        /// Where.
        location: Location,
    },
    /// A block cannot be split whose memory others may know: it was exported, or is held elsewhere. Splitting copies
    /// what survives to other memory, which they would not see.
    #[error("the block at {} was exported or is held elsewhere, so it cannot be split: decommit without splitting", Bounds::from(block))]
    BlockKnownOutside {
        /// The block, as offsets.
        block: Range<usize>,
    },
    /// The alignment of a piece of an arena is not zero or a power of two.
    #[error("alignment {alignment} is not a power of two{}", next_power(*alignment))]
    AlignmentNotPowerOfTwo {
        /// The alignment given.
        alignment: usize,
    },
    /// Two extents of an arena have addresses in common.
    #[error(
        "the extents {} and {} overlap: give each address once",
        Bounds::from(first),
        Bounds::from(second)
    )]
    ExtentsOverlap {
        /// The one with the lower address.
        first: Range<u64>,
        /// The other one.
        second: Range<u64>,
    },
    /// No extent of an arena has room for a piece.
    #[error("no extent has room for {} aligned to {alignment}; the most that one has is {}: reset the arena, or give it more extents", Bytes(*size), Bytes(*largest))]
    ArenaFull {
        /// The size asked for.
        size: usize,
        /// The alignment asked for.
        alignment: usize,
        /// The largest piece with that alignment that there is room for.
        largest: usize,
    },
    /// A piece is another arena's, or was forgotten when this one began anew.
    #[error("the {} at {address:#x} were not handed out by this arena since it began anew", Bytes(*size))]
    NotOfThisArena {
        /// First address.
        address: u64,
        /// Bytes.
        size: usize,
    },
    /// A piece that was to be committed would lie in an extent outside the elastic range.
    #[error(
        "the extent {} is not in the elastic range {}: commit with the range that it lies in",
        Bounds::from(extent),
        Bounds::from(range)
    )]
    ExtentElsewhere {
        /// The extent.
        extent: Range<u64>,
        /// The range that was given.
        range: Range<u64>,
    },
    /// The work that was to be waited for is not done.
    #[error("the work was not done after {waited:?}: nothing was unmapped; wait longer, or look for what holds the stream")]
    DeadlinePassed {
        /// How long was waited.
        waited: std::time::Duration,
    },
    /// The caller's closure did not come to wait for the work, or what was called to wait for it panicked.
    #[error("waiting for the work failed, nothing was unmapped: {0}")]
    WaitFailed(Box<dyn std::error::Error + Send + Sync>),
    /// A member of a group is suspended: its addresses are kept, and nothing is mapped at them.
    #[error("{tag:?}, {} at {base:#x}, is suspended: resume it first", Bytes(*size).short())]
    Suspended {
        /// Its tag.
        tag: String,
        /// Its base.
        base: u64,
        /// Bytes reserved.
        size: usize,
    },
    /// A member that was to be suspended, by its key, is.
    #[error("{tag:?}, {} at {base:#x}, is suspended already", Bytes(*size).short())]
    AlreadySuspended {
        /// Its tag.
        tag: String,
        /// Its base.
        base: u64,
        /// Bytes reserved.
        size: usize,
    },
    /// A member that was to be resumed, by its key, is not suspended.
    #[error("{tag:?}, {} at {base:#x}, is not suspended: there is nothing to resume", Bytes(*size).short())]
    NotSuspended {
        /// Its tag.
        tag: String,
        /// Its base.
        base: u64,
        /// Bytes reserved.
        size: usize,
    },
    /// A key names nothing in this group.
    #[error("the key names no member of this group: the member was taken out, or the key is another group's")]
    NoSuchMember,
    /// No member of the group has this tag.
    #[error("no member of the group has the tag {tag:?}")]
    NoSuchTag {
        /// The tag asked for.
        tag: String,
    },
    /// Memory that was to be suspended is held in this process by something else than its mapping: an export by fabric
    /// handles, or an allocation that was retained of it or imported again. Open file descriptors are not found.
    #[error("the memory of {tag:?} at {} is held in this process, by an export by fabric handles or by an allocation that was retained of it or imported: drop that first, or the memory would not go", Bounds::from(mapping))]
    Held {
        /// The tag of the member.
        tag: String,
        /// The mapping, as offsets.
        mapping: Range<usize>,
    },
    /// Memory that was to be suspended could not be made again.
    #[error("the memory at {} is a caller's, and its handle was lost in a failed operation: it could not be brought back", Bounds::from(mapping))]
    Irreplaceable {
        /// The mapping, as offsets.
        mapping: Range<usize>,
    },
    /// The host has no memory for a copy. This is not [`is_out_of_memory`](Error::is_out_of_memory), which is about what
    /// the driver has.
    #[error("the host has no {} for a copy of what is to be suspended: {why}", Bytes(*size))]
    NoHostMemory {
        /// Bytes asked for.
        size: usize,
        /// The system's answer.
        why: std::io::Error,
    },
    /// The driver's answer contradicts what this crate knows to be so.
    #[error("the driver and this crate disagree: {ours}, but the driver {theirs}")]
    Disagreement {
        /// What this crate's state says.
        ours: String,
        /// What the driver said.
        theirs: String,
        /// The call, where what it said was a failure.
        failure: Option<Box<DriverFailure>>,
    },
    /// A parcel did not arrive at another process, or nobody knows that it did.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A group of ranks has failed.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// An operation failed and could not be undone in full; what is left is still owned.
    #[error("{}", .0)]
    NotUndone(Box<NotUndone>),
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Error::Descriptor(error)
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NotFound { tried } => Error::DriverNotFound { tried },
            LoadError::StubLibrary { path } => Error::StubLibrary { path },
            other => Error::Load(other),
        }
    }
}
