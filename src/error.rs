//! What can go wrong, with the numbers a person needs to put it right.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::bytes::{round_up, Bytes};
use crate::code::Code;
use crate::location::Location;
use crate::recipe::HandleTypes;
use crate::sys::{Call, LoadError};

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that this crate's operations answer instead of doing what was asked.
///
/// An operation that returned an error changed nothing, unless the error is [`Error::NotUndone`], which says what is
/// left and who holds it. Sizes and offsets are bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver library was found; each place is listed with the loader's reason.
    #[error("{}", LoadError::NotFound { tried: tried.clone() })]
    DriverNotFound {
        /// What was opened, and why it failed.
        tried: Vec<crate::sys::Attempt>,
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
    #[error("[{offset}, {}) is outside [0, {len}): the reservation has {}; offsets and sizes are bytes, not elements", offset + size, Bytes(*len))]
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
    #[error("[{}, {}) overlaps the mapping at [{}, {}): unmap that first, or map beside it", asked.start, asked.end, existing.start, existing.end)]
    Overlap {
        /// The range asked for, as offsets.
        asked: Range<usize>,
        /// The first mapping in the way.
        existing: Range<usize>,
    },
    /// The range contains bytes that are not mapped.
    #[error("[{}, {}) contains the unmapped bytes [{}, {}): name a range that is mapped throughout", asked.start, asked.end, hole.start, hole.end)]
    Hole {
        /// The range asked for, as offsets.
        asked: Range<usize>,
        /// The first hole in it.
        hole: Range<usize>,
    },
    /// The range cuts a mapping, which the driver maps, grants and unmaps as a whole only.
    #[error("[{}, {}) cuts the mapping at [{}, {}): name whole mappings", asked.start, asked.end, mapping.start, mapping.end)]
    PartialMapping {
        /// The range asked for, as offsets.
        asked: Range<usize>,
        /// The mapping that is cut.
        mapping: Range<usize>,
    },
    /// The mapping that the id names is gone, or belongs to another reservation.
    #[error("the mapping made at offset {offset} is no longer in this reservation: it was unmapped by range, or the id is another reservation's")]
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
    /// The allocation was made through another driver.
    #[error("the allocation belongs to another driver than the reservation: make both with the same one")]
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
    #[error("the mapping at [{}, {}) is quarantined, left over from a failed operation: unmap it (its rights and contents are not known), then map again", mapping.start, mapping.end)]
    Quarantined {
        /// The mapping, as offsets.
        mapping: Range<usize>,
    },
    /// The host may read the memory but not write it. The driver writes memory that the host has rights to through the
    /// host's own mapping, so that a copy by a device would end the process, whatever the device may do.
    #[error("the host may only read the mapping at [{}, {}), and the driver copies to it as the host: grant the host read-write, or nothing", mapping.start, mapping.end)]
    HostReadOnly {
        /// The mapping, as offsets.
        mapping: Range<usize>,
    },
    /// No device of the access policy may do this with all of the range.
    #[error("no device may {verb} all of [{}, {}): grant one the access first", range.start, range.end)]
    NoAccess {
        /// The range, as offsets.
        range: Range<usize>,
        /// `read` or `write`.
        verb: &'static str,
    },
    /// A device may read the source of a copy, and another one may write its target, but none may do both.
    #[error("no one device may both read [{}, {}) and write [{}, {}): grant one of them the access that it lacks", from.start, from.end, to.start, to.end)]
    NoCommonDevice {
        /// The target, as offsets in its reservation.
        to: Range<usize>,
        /// The source, as offsets in its reservation.
        from: Range<usize>,
    },
    /// The target of a copy shares memory with its source, by its addresses or as a mirror.
    #[error("[{}, {}) cannot be copied to [{}, {}), which shares memory with it: copy by way of a third range", from.start, from.end, to.start, to.end)]
    OverlappingCopy {
        /// The target, as offsets.
        to: Range<usize>,
        /// The source, as offsets.
        from: Range<usize>,
    },
    /// The allocation was not created for this kind of sharing.
    #[error("the allocation was created for {asked}, so it cannot be exported as {needed}: ask for {needed} when creating it")]
    NotExportable {
        /// What it was created for.
        asked: HandleTypes,
        /// What the operation needs.
        needed: HandleTypes,
    },
    /// An element type does not fit the range.
    #[error("[{}, {}) holds no whole number of aligned {}-byte elements", range.start, range.end, size)]
    Elements {
        /// The range, as offsets.
        range: Range<usize>,
        /// Size of an element in bytes.
        size: usize,
    },
    /// The work that was to be waited for is not done.
    #[error("the work was not done after {waited:?}: everything is still mapped; wait longer, or look for what holds the stream")]
    DeadlinePassed {
        /// How long was waited.
        waited: std::time::Duration,
    },
    /// The caller's closure did not come to wait for the work.
    #[error("waiting for the work failed, everything is still mapped: {0}")]
    WaitFailed(Box<dyn std::error::Error + Send + Sync>),
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
    /// An operation failed and could not be undone in full; what is left is still owned.
    #[error("{}", .0)]
    NotUndone(Box<NotUndone>),
}

/// An operation failed, and so did undoing a part of it.
///
/// The piece that is left is kept by the reservation it belongs to (which undoes it when closed) or, where there is
/// none, by the driver ([`Driver::reclaim`](crate::Driver::reclaim)).
#[derive(Debug)]
#[non_exhaustive]
pub struct NotUndone {
    /// What went wrong first.
    pub error: Error,
    /// What then went wrong while undoing, in the order it happened.
    pub undo: Vec<Error>,
}

impl fmt::Display for NotUndone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        for (i, error) in self.undo.iter().enumerate() {
            let before = if i == 0 {
                "undoing it failed too: "
            } else {
                ""
            };
            write!(f, "; {before}{error}")?;
        }
        f.write_str("; what is left is kept and is undone by a later close or reclaim")
    }
}

impl Error {
    /// The first error: this one, or the cause of a [`NotUndone`](Error::NotUndone).
    pub fn first(&self) -> &Error {
        match self {
            Error::NotUndone(parts) => parts.error.first(),
            other => other,
        }
    }

    /// What failed while undoing, if anything did.
    pub fn undo_failures(&self) -> &[Error] {
        match self {
            Error::NotUndone(parts) => &parts.undo,
            _ => &[],
        }
    }

    /// The driver's status, where the first error is a failed driver call.
    pub fn code(&self) -> Option<Code> {
        match self.first() {
            Error::Driver(failure) => Some(failure.code),
            Error::Disagreement {
                failure: Some(failure),
                ..
            } => Some(failure.code),
            Error::OutOfAddressSpace { .. } | Error::OutOfMemory { .. } => {
                Some(Code::ERROR_OUT_OF_MEMORY)
            }
            _ => None,
        }
    }

    /// Memory ran out (not addresses): free some and try again.
    pub fn is_out_of_memory(&self) -> bool {
        match self.first() {
            Error::OutOfMemory { .. } => true,
            Error::Driver(failure) => failure.code == Code::ERROR_OUT_OF_MEMORY,
            _ => false,
        }
    }

    /// The driver knows the thing but does not permit it here (a FABRIC handle without an IMEX channel, say).
    pub fn is_not_permitted(&self) -> bool {
        self.code() == Some(Code::ERROR_NOT_PERMITTED)
    }

    /// The driver or the device cannot do this at all.
    pub fn is_not_supported(&self) -> bool {
        matches!(self.first(), Error::MissingCall { .. })
            || self.code() == Some(Code::ERROR_NOT_SUPPORTED)
    }

    /// An answer that contradicts this crate's state.
    pub(crate) fn disagreement(ours: String, theirs: String) -> Error {
        Error::Disagreement {
            ours,
            theirs,
            failure: None,
        }
    }

    /// A failure that contradicts this crate's state.
    pub(crate) fn contradiction(ours: String, failure: DriverFailure) -> Error {
        Error::Disagreement {
            ours,
            theirs: format!("says otherwise: {failure}"),
            failure: Some(Box::new(failure)),
        }
    }

    /// INVALID_VALUE contradicts what this crate knows to be so.
    pub(crate) fn contradicting(self, ours: impl FnOnce() -> String) -> Error {
        match self {
            Error::Driver(failure) if failure.code == Code::ERROR_INVALID_VALUE => {
                Error::contradiction(ours(), failure)
            }
            other => other,
        }
    }

    pub(crate) fn is_disagreement(&self) -> bool {
        matches!(self.first(), Error::Disagreement { .. })
    }

    /// The driver has shut down, or this process is a forked child: nothing can be done, and nothing needs to be.
    pub(crate) fn driver_is_gone(&self) -> bool {
        matches!(self.first(), Error::ForkedChild)
            || matches!(
                self.code(),
                Some(Code::ERROR_DEINITIALIZED | Code::ERROR_NOT_INITIALIZED)
            )
    }

    /// This error, with what failed while undoing attached to it, behind what was attached before.
    pub(crate) fn with_undo(self, undo: Vec<Error>) -> Error {
        if undo.is_empty() {
            return self;
        }
        let mut parts = self.into_parts();
        parts.undo.extend(undo.into_iter().flat_map(|error| {
            let NotUndone { error, undo } = error.into_parts();
            std::iter::once(error).chain(undo)
        }));
        Error::NotUndone(Box::new(parts))
    }

    /// The first error apart from what is attached to it, so that one list holds every failure.
    pub(crate) fn into_parts(self) -> NotUndone {
        match self {
            Error::NotUndone(parts) => *parts,
            error => NotUndone {
                error,
                undo: Vec::new(),
            },
        }
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

/// A driver call that failed: which, how, and what it was to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverFailure {
    /// The call.
    pub call: Call,
    /// The driver's status.
    pub code: Code,
    /// What was attempted.
    pub attempt: Attempt,
}

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} failed with {}", self.call, self.attempt, self.code)?;
        match &self.attempt {
            Attempt::Create { handle_types, .. }
                if self.code == Code::ERROR_NOT_PERMITTED && handle_types.contains(HandleTypes::FABRIC) =>
            {
                f.write_str(": FABRIC handles need an IMEX channel in this container; ask for POSIX_FD instead")
            }
            _ => Ok(()),
        }
    }
}

/// What a failed driver call was to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempt {
    /// The call's name says it all.
    Plain,
    /// Something with a device.
    Device {
        /// The device's ordinal.
        ordinal: u32,
    },
    /// Something with a range of addresses.
    Range {
        /// First address.
        address: u64,
        /// Bytes.
        size: usize,
    },
    /// Releasing a handle.
    Handle {
        /// Bytes; 0 where they are not known.
        size: usize,
    },
    /// Reserving addresses.
    Reserve {
        /// Bytes.
        size: usize,
        /// Alignment in bytes, 0 for the driver's choice.
        alignment: usize,
        /// Address asked for, 0 for none.
        hint: u64,
    },
    /// Creating memory, or asking for the granularity of memory like this.
    Create {
        /// Bytes; 0 where only the granularity is asked.
        size: usize,
        /// Where.
        location: Location,
        /// For which kinds of sharing.
        handle_types: HandleTypes,
        /// RDMA asked for.
        rdma: bool,
        /// Compression asked for.
        compression: bool,
    },
    /// Granting access, or asking for it.
    Access {
        /// First address.
        address: u64,
        /// Bytes; 0 where access is asked for at one address.
        size: usize,
        /// To whom (the first, where it was several at once).
        location: Location,
    },
}

impl Attempt {
    pub(crate) fn device(device: std::ffi::c_int) -> Attempt {
        Attempt::Device {
            ordinal: device.unsigned_abs(),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Attempt::Plain => Ok(()),
            Attempt::Handle { size } => write!(f, " (a handle of {})", Bytes(size)),
            Attempt::Device { ordinal } => write!(f, " (device {ordinal})"),
            Attempt::Range { address, size } => write!(f, " ({} at {address:#x})", Bytes(size)),
            Attempt::Reserve {
                size,
                alignment,
                hint,
            } => {
                write!(
                    f,
                    " ({}, alignment {alignment}, address hint {hint:#x})",
                    Bytes(size)
                )
            }
            Attempt::Create {
                size,
                location,
                handle_types,
                rdma,
                compression,
            } => {
                let bytes = if size == 0 {
                    String::new()
                } else {
                    format!("{} ", Bytes(size))
                };
                write!(f, " ({bytes}on {location}, shareable as {handle_types}")?;
                f.write_str(if rdma { ", RDMA" } else { "" })?;
                f.write_str(if compression { ", compressible)" } else { ")" })
            }
            Attempt::Access {
                address,
                size: 0,
                location,
            } => write!(f, " ({location} at {address:#x})"),
            Attempt::Access {
                address,
                size,
                location,
            } => write!(f, " ({} at {address:#x} for {location})", Bytes(size)),
        }
    }
}

/// Which value an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// An offset in a reservation.
    Offset,
    /// A size.
    Size,
    /// The size of a reservation.
    ReservationSize,
    /// The size of an allocation.
    AllocationSize,
    /// An address hint.
    Address,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Offset => "offset",
            What::Size => "size",
            What::ReservationSize => "reservation size",
            What::AllocationSize => "allocation size",
            What::Address => "address",
        })
    }
}

fn next_multiple(value: usize, granularity: usize) -> String {
    match round_up(value, granularity) {
        Some(next) => format!(
            ": the next multiple is {next}, the one before {}",
            next - granularity
        ),
        None => String::new(),
    }
}

fn next_power(alignment: usize) -> String {
    match alignment.checked_next_power_of_two() {
        Some(next) => format!(", or {next}"),
        None => String::new(),
    }
}

fn devices(count: u32) -> String {
    match count {
        0 => String::new(),
        1 => ", number 0".into(),
        n => format!(", numbers 0 to {}", n - 1),
    }
}

pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
