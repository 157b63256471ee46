//! How memory is named to another process: one kind of handle, what a fabric handle is, and why a kind was refused.

use std::fmt;

use crate::code::Code;
use crate::recipe::HandleTypes;
use crate::sys::{CUmemAllocationHandleType, Call};

/// One way in which memory is shared (`CUmemAllocationHandleType`); [`HandleTypes`] is a set of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HandleType {
    /// As a POSIX file descriptor: on one machine. It keeps the memory for as long as it is open.
    PosixFd,
    /// As a fabric handle: over NVLink, also across machines. It keeps nothing.
    Fabric,
}

impl HandleType {
    /// The farthest-reaching first.
    pub const DEFAULT_ORDER: [HandleType; 2] = [HandleType::Fabric, HandleType::PosixFd];

    pub(crate) fn to_raw(self) -> CUmemAllocationHandleType {
        CUmemAllocationHandleType(HandleTypes::from(self).bits())
    }
}

impl From<HandleType> for HandleTypes {
    fn from(handle_type: HandleType) -> HandleTypes {
        match handle_type {
            HandleType::PosixFd => HandleTypes::POSIX_FD,
            HandleType::Fabric => HandleTypes::FABRIC,
        }
    }
}

impl fmt::Display for HandleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HandleTypes::from(*self).fmt(f)
    }
}

/// A fabric handle: 64 bytes that name an allocation to whoever is on the same fabric (`CUmemFabricHandle`).
///
/// The bytes travel by whatever the application has. They do not keep the memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FabricHandle(pub [u8; 64]);

impl fmt::Debug for FabricHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FabricHandle(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// What a refusal means to whoever asked for the kind of handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unavailable {
    /// Not on this device, not with this driver, not in this container: asking again changes nothing.
    NotHere,
    /// The fabric is not up, or not yet (802, 401): it may come.
    NotReady,
}

/// Why a device's memory cannot be shared by one kind of handle: the call that said so when it was tried, and its
/// answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// What was tried.
    pub handle_type: HandleType,
    /// The call that refused.
    pub call: Call,
    /// Its answer.
    pub code: Code,
    /// What that means.
    pub meaning: Unavailable,
}

impl Refusal {
    /// The refusal that a code is, if it is one.
    ///
    /// Only for calls whose arguments are known to be good but for the handle type: elsewhere INVALID_VALUE is a
    /// mistake of the caller's.
    pub(crate) fn of(handle_type: HandleType, call: Call, code: Code) -> Option<Refusal> {
        let meaning = match code {
            Code::ERROR_NOT_PERMITTED
            | Code::ERROR_NOT_SUPPORTED
            | Code::ERROR_INVALID_VALUE
            | Code::ERROR_INVALID_DEVICE => Unavailable::NotHere,
            Code::ERROR_SYSTEM_NOT_READY | Code::ERROR_ILLEGAL_STATE => Unavailable::NotReady,
            _ => return None,
        };
        Some(Refusal {
            handle_type,
            call,
            code,
            meaning,
        })
    }

    /// The driver is older than a call that sharing needs.
    pub(crate) fn missing(handle_type: HandleType, call: Call) -> Refusal {
        Refusal {
            handle_type,
            call,
            code: Code::ERROR_NOT_FOUND,
            meaning: Unavailable::NotHere,
        }
    }
}

/// `FABRIC handle: cuMemCreate answered CUDA_ERROR_NOT_PERMITTED (800), which means that there is no IMEX channel`
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal {
            handle_type,
            call,
            code,
            meaning,
        } = self;
        write!(f, "{handle_type}: {call} answered {code}, ")?;
        f.write_str(match (meaning, handle_type, *code) {
            (Unavailable::NotReady, ..) => "not ready: it may be later",
            (_, _, Code::ERROR_NOT_FOUND) => "the driver is too old",
            (_, HandleType::Fabric, Code::ERROR_NOT_PERMITTED) => {
                "there is no IMEX channel in this container"
            }
            _ => "not to be had here",
        })
    }
}

/// Refusals in one line.
pub(crate) struct All<'a>(pub(crate) &'a [Refusal]);

impl fmt::Display for All<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, refusal) in self.0.iter().enumerate() {
            write!(f, "{}{refusal}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
