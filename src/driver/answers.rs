//! Answers that cannot be so: each is checked before anything is built on it, and an error names both sides.

use std::ffi::c_int;
use std::ops::Range;

use super::RawHandle;
use crate::bytes::Bytes;
use crate::code::Code;
use crate::error::{Attempt, DriverFailure, Error, Result};
use crate::sys::{CUcontext, CUevent, CUfunction, CUmodule, CUstream, Call};

/// A count, a version or a device's number: C has it signed, but it is none below zero.
pub(super) fn number(call: Call, value: c_int) -> Result<u32> {
    u32::try_from(value).map_err(|_| {
        Error::disagreement(
            format!("what {call} gives is not negative"),
            format!("says {value}"),
        )
    })
}

/// Yes or no, as 1 or 0.
pub(super) fn truth(call: Call, value: c_int) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::disagreement(
            format!("{call} answers 0 or 1"),
            format!("says {other}"),
        )),
    }
}

/// A handle is never 0: the driver itself refuses to map and to release that.
pub(super) fn handle(call: Call, raw: RawHandle) -> Result<RawHandle> {
    match raw {
        0 => Err(Error::disagreement(
            format!("{call} gives a handle when it succeeds"),
            "says SUCCESS and gives 0".into(),
        )),
        raw => Ok(raw),
    }
}

/// A file descriptor is not negative.
pub(super) fn descriptor(fd: c_int) -> Result<c_int> {
    match fd {
        0.. => Ok(fd),
        fd => Err(Error::disagreement(
            format!(
                "{} gives a descriptor when it succeeds",
                Call::cuMemExportToShareableHandle
            ),
            format!("says SUCCESS and gives {fd}"),
        )),
    }
}

/// Whether this can be a context at all.
pub(super) fn context(raw: CUcontext) -> Result<CUcontext> {
    match raw.is_null() {
        true => Err(Error::disagreement(
            format!(
                "{} gives a context when it succeeds",
                Call::cuDevicePrimaryCtxRetain
            ),
            "says SUCCESS and gives null".into(),
        )),
        false => Ok(raw),
    }
}

/// Whether this is a stream of its own: null is the default one.
pub(super) fn stream(raw: CUstream) -> Result<CUstream> {
    match raw.is_null() {
        true => Err(Error::disagreement(
            format!("{} gives a stream when it succeeds", Call::cuStreamCreate),
            "says SUCCESS and gives null".into(),
        )),
        false => Ok(raw),
    }
}

/// A module is never null.
pub(super) fn module(raw: CUmodule) -> Result<CUmodule> {
    match raw.is_null() {
        true => Err(Error::disagreement(
            format!("{} gives a module when it succeeds", Call::cuModuleLoadData),
            "says SUCCESS and gives null".into(),
        )),
        false => Ok(raw),
    }
}

/// Nor is a function.
pub(super) fn function(raw: CUfunction) -> Result<CUfunction> {
    match raw.is_null() {
        true => Err(Error::disagreement(
            format!(
                "{} gives a function when it succeeds",
                Call::cuModuleGetFunction
            ),
            "says SUCCESS and gives null".into(),
        )),
        false => Ok(raw),
    }
}

/// An event is never null.
pub(super) fn event(raw: CUevent) -> Result<CUevent> {
    match raw.is_null() {
        true => Err(Error::disagreement(
            format!("{} gives an event when it succeeds", Call::cuEventCreate),
            "says SUCCESS and gives null".into(),
        )),
        false => Ok(raw),
    }
}

/// The devices' address of registered memory is never 0.
pub(super) fn device_pointer(address: u64) -> Result<u64> {
    match address {
        0 => Err(Error::disagreement(
            format!(
                "{} gives an address when it succeeds",
                Call::cuMemHostGetDevicePointer_v2
            ),
            "says SUCCESS and gives 0".into(),
        )),
        address => Ok(address),
    }
}

/// Free and all bytes of a device.
pub(super) fn memory(free: usize, total: usize) -> Result<(usize, usize)> {
    match free <= total {
        true => Ok((free, total)),
        false => Err(Error::disagreement(
            "no more memory can be free than there is".into(),
            format!("says that {free} of {total} bytes are free"),
        )),
    }
}

/// The range that lies at an address, as the driver was asked for it.
pub(super) fn range_at(address: u64, base: u64, size: usize) -> Result<(u64, usize)> {
    // Of memory on the host the driver gives the size, and no base (580.159 on an H200).
    let inside = base == 0
        || address
            .checked_sub(base)
            .is_some_and(|offset| offset < size as u64);
    match size != 0 && inside && base.checked_add(size as u64).is_some() {
        true => Ok((base, size)),
        false => Err(Error::disagreement(
            format!("the range at {address:#x} contains that address"),
            format!("says that it is {} at {base:#x}", Bytes(size)),
        )),
    }
}

/// Reserved addresses: aligned as asked and to the unit, and with an end.
pub(super) fn addresses(base: u64, size: usize, alignment: usize) -> Result<Range<u64>> {
    let theirs = || format!("reserved {} at {base:#x}", Bytes(size));
    if base == 0 || base & (alignment as u64 - 1) != 0 {
        return Err(Error::disagreement(
            format!("a reservation begins at a multiple of {alignment} other than 0"),
            theirs(),
        ));
    }
    match base.checked_add(size as u64) {
        Some(end) => Ok(base..end),
        None => Err(Error::disagreement(
            "a reservation ends where addresses end, if not before".into(),
            theirs(),
        )),
    }
}

/// What this crate's state says against an INVALID_VALUE or an INVALID_HANDLE, if it says anything.
///
/// Each of these calls is made only for what the types above own, so the value *is* valid as far as this crate can
/// know. Setting access is not among them: the driver also refuses rights of a device that cannot reach the memory.
pub(super) fn contradicted(failure: &DriverFailure) -> Option<String> {
    match (failure.code, failure.call) {
        (Code::ERROR_INVALID_VALUE, _) => {}
        (Code::ERROR_INVALID_HANDLE, Call::cuMemRelease | Call::cuMemMap) => {
            return Some("the handle is held and was not released".into());
        }
        _ => return None,
    }
    match (failure.call, &failure.attempt) {
        (Call::cuMemUnmap, Attempt::Range { address, size }) => {
            Some(format!("{} at {address:#x} are mapped", Bytes(*size)))
        }
        (Call::cuMemMap, Attempt::Range { address, size }) => Some(format!(
            "{} at {address:#x} are reserved and free",
            Bytes(*size)
        )),
        (Call::cuMemAddressFree, Attempt::Range { address, size }) => Some(format!(
            "{} at {address:#x} are reserved, and nothing is mapped there",
            Bytes(*size)
        )),
        (Call::cuMemRelease, Attempt::Handle { .. }) => {
            Some("the handle is held and was not released".into())
        }
        (Call::cuMemGetAccess, Attempt::Access { address, .. }) => {
            Some(format!("memory is mapped at {address:#x}"))
        }
        _ => None,
    }
}
