//! The log: what was called, with what, and what came of it.
//!
//! How an argument is shown goes by its type, so no call needs code of its own.
//!
//! # Safety
//!
//! Arguments are read as the driver reads them: an input behind its pointer, an output behind its pointer once the call
//! has succeeded. Both stand on what the caller of the driver call vouches for, and null is never followed.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::fmt;

use crate::code::Code;
use crate::sys::{
    CUcontext, CUctx_st, CUdevice_attribute, CUevent, CUevent_st, CUfunc_st, CUfunction, CUhostFn,
    CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemLocation, CUmemRangeHandleType, CUmemorytype, CUmod_st, CUmodule,
    CUpointer_attribute, CUresult, CUstream, CUstream_st, CUuuid, Call, CUDA_MEMCPY2D,
};

use super::place::Place;

/// How much of the past is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogMode {
    /// Nothing: calls are only counted.
    Off,
    /// The last so many calls.
    Last(usize),
    /// Every call. A long run grows without bound.
    All,
}

impl Default for LogMode {
    /// The last 10,000 calls: more than a test makes, and bounded.
    fn default() -> Self {
        LogMode::Last(10_000)
    }
}

/// One call as it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallRecord {
    /// Which call.
    pub call: Call,
    /// Its arguments, in order.
    pub args: Vec<Arg>,
    /// What it answered.
    pub result: CUresult,
}

impl CallRecord {
    pub(super) fn new(call: Call, args: Vec<Arg>, result: CUresult) -> Self {
        CallRecord { call, args, result }
    }

    /// The value of the argument of that name, as the list of calls names it.
    pub fn arg(&self, name: &str) -> Option<&Value> {
        self.args
            .iter()
            .find(|arg| arg.name == name)
            .map(|arg| &arg.value)
    }
}

/// An argument of a recorded call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arg {
    /// Its name in the list of calls.
    pub name: &'static str,
    /// What was passed; for an output of a call that succeeded, what came back.
    pub value: Value,
}

impl Arg {
    pub(super) fn new(name: &'static str, value: Value) -> Self {
        Arg { name, value }
    }
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A size or a count.
    Size(usize),
    /// An address, a handle or flags.
    Word(u64),
    /// An ordinal, an attribute's number or value.
    Number(i64),
    /// A context, stream, event, module, function or host buffer.
    Pointer(usize),
    /// A null pointer where one may or must not stand.
    Null,
    /// An output of a call that failed, or one whose length the type does not tell.
    Unread,
    /// Properties of an allocation.
    Properties {
        /// The allocation type.
        kind: u32,
        /// Where it lies.
        location: CUmemLocation,
        /// The requested handle types.
        handle_types: u32,
        /// The compression type.
        compression: u8,
        /// Whether RDMA was asked for or granted.
        rdma: u8,
    },
    /// The first access descriptor of an array.
    Access(CUmemAccessDesc),
    /// A location.
    Location(CUmemLocation),
    /// A device's UUID.
    Uuid([u8; 16]),
    /// A name.
    Text(String),
    /// A copy of rows.
    Rows {
        /// The base address of the target.
        to: u64,
        /// The bytes from one row of the target to the next.
        to_pitch: usize,
        /// The base address of the source.
        from: u64,
        /// The bytes from one row of the source to the next.
        from_pitch: usize,
        /// The bytes of a row that are copied.
        width: usize,
        /// The number of rows.
        rows: usize,
    },
}

impl fmt::Display for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.call)?;
        for (index, arg) in self.args.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}={}", arg.name, arg.value)?;
        }
        write!(f, ") = {}", code_name(self.result))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Size(size) => write!(f, "{size}"),
            Value::Word(0) => f.write_str("0"),
            Value::Word(word) => write!(f, "{word:#x}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Pointer(pointer) => write!(f, "{pointer:#x}"),
            Value::Null => f.write_str("null"),
            Value::Unread => f.write_str("?"),
            Value::Properties {
                kind,
                location,
                handle_types,
                compression,
                rdma,
            } => write!(
                f,
                "{{type {kind}, {}, handle types {handle_types}, compression {compression}, rdma {rdma}}}",
                Shown(location)
            ),
            Value::Access(access) => {
                write!(
                    f,
                    "{{{}, flags {}}}",
                    Shown(&access.location),
                    access.flags.0
                )
            }
            Value::Location(location) => write!(f, "{{{}}}", Shown(location)),
            Value::Rows {
                to,
                to_pitch,
                from,
                from_pitch,
                width,
                rows,
            } => write!(
                f,
                "{{{rows} rows of {width}, from {from:#x} by {from_pitch}, to {to:#x} by {to_pitch}}}"
            ),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Uuid(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

struct Shown<'a>(&'a CUmemLocation);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Place::of(self.0) {
            Some(place) => place.fmt(f),
            None => write!(f, "location type {}", self.0.type_.0),
        }
    }
}

/// How an argument is recorded, by its type.
pub(super) trait Logged {
    /// # Safety
    ///
    /// A pointer must be what the driver call demands of it; `succeeded` says that outputs were written.
    unsafe fn value(self, succeeded: bool) -> Value;
}

macro_rules! plain {
    ($($ty:ty, $value:ident => $shown:expr;)*) => {$(
        impl Logged for $ty {
            unsafe fn value(self, _succeeded: bool) -> Value {
                let $value = self;
                $shown
            }
        }
    )*};
}
plain! {
    u8, value => Value::Number(value.into());
    c_int, value => Value::Number(value.into());
    c_uint, value => Value::Number(value.into());
    u64, value => Value::Word(value);
    usize, value => Value::Size(value);
    CUdevice_attribute, value => Value::Number(value.0.into());
    CUpointer_attribute, value => Value::Number(value.0.into());
    CUmemAllocationHandleType, value => Value::Number(value.0.into());
    CUmemAllocationGranularity_flags, value => Value::Number(value.0.into());
    CUmemRangeHandleType, value => Value::Number(value.0.into());
    CUcontext, value => Value::Pointer(value as usize);
    CUstream, value => Value::Pointer(value as usize);
    CUevent, value => Value::Pointer(value as usize);
    CUmodule, value => Value::Pointer(value as usize);
    CUfunction, value => Value::Pointer(value as usize);
    *const c_void, value => Value::Pointer(value as usize);
    *mut c_void, value => Value::Pointer(value as usize);
    *mut *mut c_void, value => if value.is_null() { Value::Null } else { Value::Pointer(value as usize) };
    *mut c_char, value => if value.is_null() { Value::Null } else { Value::Unread };
    CUuuid, value => Value::Uuid(value.bytes.map(|byte| byte as u8));
    CUmemAllocationProp, value => Value::Properties {
        kind: value.type_.0,
        location: value.location,
        handle_types: value.requestedHandleTypes.0,
        compression: value.allocFlags.compressionType,
        rdma: value.allocFlags.gpuDirectRDMACapable,
    };
    CUhostFn, value => match value {
        Some(function) => Value::Pointer(function as usize),
        None => Value::Null,
    };
    CUmemAccessDesc, value => Value::Access(value);
    CUmemLocation, value => Value::Location(value);
    CUDA_MEMCPY2D, value => Value::Rows {
        to: base(value.dstMemoryType, value.dstHost as u64, value.dstDevice),
        to_pitch: value.dstPitch,
        from: base(value.srcMemoryType, value.srcHost as u64, value.srcDevice),
        from_pitch: value.srcPitch,
        width: value.WidthInBytes,
        rows: value.Height,
    };
}

/// The base of one side of a copy of rows.
fn base(kind: CUmemorytype, host: u64, device: u64) -> u64 {
    match kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => host,
        _ => device,
    }
}

impl Logged for *const c_char {
    unsafe fn value(self, _succeeded: bool) -> Value {
        if self.is_null() {
            return Value::Null;
        }
        // SAFETY: not null, and by this trait's contract a name, which ends with a zero.
        let text = unsafe { CStr::from_ptr(self) };
        Value::Text(text.to_string_lossy().into_owned())
    }
}

macro_rules! behind_pointer {
    ($pointer:tt: $($ty:ty),* $(,)?) => {$(
        impl Logged for *$pointer $ty {
            unsafe fn value(self, succeeded: bool) -> Value {
                if self.is_null() {
                    return Value::Null;
                }
                if !succeeded && stringify!($pointer) == "mut" {
                    return Value::Unread;
                }
                // SAFETY: not null, and by this trait's contract an input, or an output that the call has written.
                unsafe { self.read().value(succeeded) }
            }
        }
    )*};
}
behind_pointer!(mut: c_int, u64, usize, CUuuid, CUmemAllocationProp, *mut CUctx_st, *mut CUstream_st, *mut CUevent_st, *mut CUmod_st, *mut CUfunc_st);
behind_pointer!(const: CUmemAllocationProp, CUmemAccessDesc, CUmemLocation, CUDA_MEMCPY2D);

/// The recorded calls.
#[derive(Debug)]
pub(super) struct Log {
    mode: LogMode,
    records: VecDeque<CallRecord>,
}

impl Log {
    pub(super) fn new(mode: LogMode) -> Self {
        Log {
            mode,
            records: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, record: CallRecord) {
        match self.mode {
            LogMode::Off | LogMode::Last(0) => return,
            LogMode::Last(most) if self.records.len() >= most => drop(self.records.pop_front()),
            LogMode::Last(_) | LogMode::All => {}
        }
        self.records.push_back(record);
    }

    pub(super) fn records(&self) -> Vec<CallRecord> {
        self.records.iter().cloned().collect()
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
    }
}

/// The header's name of a code, or its number.
pub(super) fn code_name(code: CUresult) -> String {
    match Code::from(code).name() {
        Some(name) => name.to_owned(),
        None => format!("code {}", code.0),
    }
}
