//! The words that messages are made of.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::bytes::{round_up, Bounds, Bytes};
use crate::recipe::HandleTypes;

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
    /// The size of a block of an elastic range.
    BlockSize,
    /// The size of an extent of an arena.
    ExtentSize,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Offset => "offset",
            What::Size => "size",
            What::ReservationSize => "reservation size",
            What::AllocationSize => "allocation size",
            What::Address => "address",
            What::BlockSize => "block size",
            What::ExtentSize => "extent size",
        })
    }
}

/// What is wrong with a file descriptor that was to be imported. The driver itself gives no reason (UNKNOWN).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadFd {
    /// It is not open.
    Closed,
    /// It is something else.
    Other {
        /// What `/proc/self/fd` says it leads to.
        leads_to: PathBuf,
    },
    /// It looks like an export.
    Unknown {
        /// What `/proc/self/fd` says it leads to, if it can be asked.
        leads_to: Option<PathBuf>,
    },
}

impl fmt::Display for BadFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadFd::Closed => {
                f.write_str("it is not open; the numbers mean nothing in another process")
            }
            BadFd::Other { leads_to } => {
                write!(
                    f,
                    "it leads to {}, which is nothing of CUDA's",
                    leads_to.display()
                )
            }
            BadFd::Unknown { leads_to: Some(to) } => write!(
                f,
                "it leads to {} as exports do; is the memory's device visible to this process?",
                to.display()
            ),
            BadFd::Unknown { leads_to: None } => {
                f.write_str("it is open, and nothing more can be seen of it")
            }
        }
    }
}

pub(super) fn next_multiple(value: usize, granularity: usize) -> String {
    match round_up(value, granularity) {
        Some(next) => format!(
            ": the next multiple is {next}, the one before {}",
            next - granularity
        ),
        None => String::new(),
    }
}

pub(super) fn next_power(alignment: usize) -> String {
    match alignment.checked_next_power_of_two() {
        Some(next) => format!(", or {next}"),
        None => String::new(),
    }
}

/// `, with 6 GiB free`, where that could be asked.
pub(super) fn free_bytes(free: Option<usize>) -> String {
    match free {
        Some(free) => format!(", with {} free", Bytes(free)),
        None => String::new(),
    }
}

/// What was tried in vain, where there was anything.
pub(super) fn cached_text(cached: usize) -> String {
    match cached {
        0 => String::new(),
        cached => format!(", after {} of cached blocks were released", Bytes(cached)),
    }
}

pub(super) fn hole_text(asked: &Range<usize>, hole: &Range<usize>) -> String {
    let bounds = Bounds::from(asked);
    match asked == hole {
        true => format!("nothing is mapped in {bounds}"),
        false => format!(
            "{bounds} contains the unmapped bytes {}: name a range that is mapped throughout",
            Bounds::from(hole)
        ),
    }
}

pub(super) fn exportable_text(asked: HandleTypes, needed: HandleTypes) -> String {
    let way = match needed {
        HandleTypes::POSIX_FD => "create it with shareable_as(HandleTypes::POSIX_FD)".into(),
        HandleTypes::FABRIC => "create it with shareable_as(HandleTypes::FABRIC)".into(),
        other => format!("ask for {other} when creating it"),
    };
    match asked {
        HandleTypes::NONE => format!("the allocation was not created shareable: {way}"),
        asked => format!("the allocation was created shareable as {asked}, not as {needed}: {way}"),
    }
}

pub(super) fn devices(count: u32) -> String {
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
