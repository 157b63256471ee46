//! The arguments of a call, made safe at the door.
//!
//! The rest of the core is written without `unsafe`: a pointer becomes an [`Out`], an [`In`] or a [`Raw`] here, each of
//! which checks for null and knows what may be done with it; a context, stream, event, module or function becomes a
//! [`Token`].
//!
//! # Safety
//!
//! [`Checked::checked`] is the one way to make these types, and whoever calls it vouches for the pointer as the driver
//! call demands. They live no longer than the call (but for the host buffers of work on a stream, for which the driver
//! demands more). So a pointer that is not null may be read or written as its type says.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::sync::atomic::{AtomicU32, Ordering}; // Of memory that other processes share.

use crate::sys::{
    CUcontext, CUctx_st, CUdevice_attribute, CUevent, CUevent_st, CUfunc_st, CUfunction, CUhostFn,
    CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemLocation, CUmemRangeHandleType, CUmod_st, CUmodule,
    CUpointer_attribute, CUresult, CUstream, CUstream_st, CUuuid, CUDA_MEMCPY2D,
};

use super::{Answer, Refusal};

/// Where a call writes a value.
#[derive(Clone, Copy)]
pub(super) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Refuses a null pointer before anything has been done that would have to be undone.
    pub(super) fn wanted(self) -> Answer {
        refuse_null(self.0)
    }

    pub(super) fn put(self, value: T) -> Answer {
        self.wanted()?;
        self.put_if_wanted(value);
        Ok(())
    }

    /// For outputs that a caller may leave out.
    pub(super) fn put_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and vouched for as an output of this type.
            unsafe { self.0.write(value) };
        }
    }

    /// Writes as many as fit into `capacity` elements.
    pub(super) fn put_slice(self, values: &[T], capacity: usize) -> Answer {
        self.wanted()?;
        let count = values.len().min(capacity);
        // SAFETY: not null, vouched for as an output of `capacity` elements; `values` is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0, count) };
        Ok(())
    }
}

/// Where a call reads a value.
#[derive(Clone, Copy)]
pub(super) struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(super) fn get(self) -> Answer<T> {
        refuse_null(self.0)?;
        // SAFETY: not null, and vouched for as an input of this type.
        Ok(unsafe { self.0.read() })
    }

    /// The `index`-th of as many as the caller said there are.
    pub(super) fn nth(self, index: usize) -> Answer<T> {
        refuse_null(self.0)?;
        // SAFETY: not null, and vouched for as an array of more than `index` elements.
        Ok(unsafe { self.0.add(index).read() })
    }
}

/// A `void *`: a buffer of the host, or a value in a pointer's clothes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw(*mut c_void);

// SAFETY: the pointer is used only while the core is locked, and the driver call that brought it demands that its
// memory stay valid for any thread until the work is done.
unsafe impl Send for Raw {}

impl Raw {
    pub(super) fn of(pointer: *mut c_void) -> Self {
        Raw(pointer)
    }

    /// Memory of the host that a device's address means.
    pub(super) fn at(address: u64) -> Self {
        Raw(address as usize as *mut c_void)
    }

    /// So many bytes further on.
    pub(super) fn behind(self, bytes: usize) -> Self {
        Raw(self.pointer().wrapping_add(bytes).cast())
    }

    pub(super) fn bits(self) -> usize {
        self.0 as usize
    }

    pub(super) fn pointer(self) -> *mut u8 {
        self.0.cast()
    }

    pub(super) fn wanted(self) -> Answer {
        refuse_null(self.0)
    }

    /// Copies out of a host buffer.
    pub(super) fn read_at(self, offset: usize, bytes: &mut [u8]) {
        // SAFETY: vouched for as a buffer of the copy's size, of which this is a part.
        unsafe {
            let from = self.pointer().add(offset);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    /// Copies into a host buffer.
    pub(super) fn write_at(self, offset: usize, bytes: &[u8]) {
        // SAFETY: vouched for as a buffer of the copy's size, of which this is a part.
        unsafe {
            let to = self.pointer().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    pub(super) fn fill(self, value: u8, size: usize) {
        // SAFETY: registered memory of the host, as long as the books say, for whose life its owner vouches.
        unsafe { self.pointer().write_bytes(value, size) };
    }

    /// Writes a word that other threads and processes may look at meanwhile.
    pub(super) fn store(self, value: u32) {
        // SAFETY: as above; the address was found to be a multiple of 4, and a word that a device writes is read by
        // atomic loads alone.
        let word = unsafe { AtomicU32::from_ptr(self.pointer().cast()) };
        word.store(value, Ordering::Release);
    }

    /// The text that begins here, without the zero at its end.
    pub(super) fn text(self) -> Answer<Vec<u8>> {
        self.wanted()?;
        // SAFETY: not null, and vouched for as a name, which ends with a zero, or as an image of code: source text ends
        // with a zero, and the header of any other image has one.
        let text = unsafe { CStr::from_ptr(self.pointer().cast()) };
        Ok(text.to_bytes().to_vec())
    }

    pub(super) fn put<T: Copy>(self, value: T) -> Answer {
        self.wanted()?;
        // SAFETY: not null, and vouched for as an output of the type that the call's other arguments name.
        unsafe { self.0.cast::<T>().write_unaligned(value) };
        Ok(())
    }

    pub(super) fn get<T: Copy>(self) -> Answer<T> {
        self.wanted()?;
        // SAFETY: not null, and vouched for as an input of the type that the call's other arguments name.
        Ok(unsafe { self.0.cast::<T>().read_unaligned() })
    }
}

/// A context, stream, event, module or function: a pointer to the caller, a number here. It is never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token(pub(super) u64);

impl Token {
    pub(super) const NULL: Token = Token(0);

    /// The pointer that stands for it, which points to nothing.
    pub(super) fn pointer<T>(self) -> *mut T {
        std::ptr::null_mut::<u8>()
            .wrapping_add(self.0 as usize)
            .cast()
    }
}

fn refuse_null<T>(pointer: *const T) -> Answer {
    if pointer.is_null() {
        return Err(Refusal::Code(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
    Ok(())
}

/// An argument in the form the core works with.
pub(super) trait Checked {
    type Form;

    /// # Safety
    ///
    /// The argument must be as the driver call demands.
    unsafe fn checked(self) -> Self::Form;
}

macro_rules! forms {
    ($($ty:ty => $form:ty: $arg:ident => $value:expr;)*) => {$(
        impl Checked for $ty {
            type Form = $form;

            unsafe fn checked(self) -> $form {
                let $arg = self;
                $value
            }
        }
    )*};
}
forms! {
    u8 => u8: value => value;
    c_int => c_int: value => value;
    c_uint => c_uint: value => value;
    u64 => u64: value => value;
    usize => usize: value => value;
    CUdevice_attribute => CUdevice_attribute: value => value;
    CUpointer_attribute => CUpointer_attribute: value => value;
    CUmemAllocationHandleType => CUmemAllocationHandleType: value => value;
    CUmemAllocationGranularity_flags => CUmemAllocationGranularity_flags: value => value;
    CUmemRangeHandleType => CUmemRangeHandleType: value => value;
    CUcontext => Token: pointer => Token(pointer as usize as u64);
    CUstream => Token: pointer => Token(pointer as usize as u64);
    CUevent => Token: pointer => Token(pointer as usize as u64);
    CUmodule => Token: pointer => Token(pointer as usize as u64);
    CUfunction => Token: pointer => Token(pointer as usize as u64);
    CUhostFn => CUhostFn: function => function;
    *mut c_void => Raw: pointer => Raw(pointer);
    *const c_void => Raw: pointer => Raw(pointer.cast_mut());
    *const c_char => Raw: pointer => Raw(pointer.cast_mut().cast());
    *mut c_char => Out<c_char>: pointer => Out(pointer);
    *mut c_int => Out<c_int>: pointer => Out(pointer);
    *mut u64 => Out<u64>: pointer => Out(pointer);
    *mut usize => Out<usize>: pointer => Out(pointer);
    *mut CUuuid => Out<CUuuid>: pointer => Out(pointer);
    *mut CUmemAllocationProp => Out<CUmemAllocationProp>: pointer => Out(pointer);
    *mut *mut CUctx_st => Out<CUcontext>: pointer => Out(pointer);
    *mut *mut CUstream_st => Out<CUstream>: pointer => Out(pointer);
    *mut *mut CUevent_st => Out<CUevent>: pointer => Out(pointer);
    *mut *mut CUmod_st => Out<CUmodule>: pointer => Out(pointer);
    *mut *mut CUfunc_st => Out<CUfunction>: pointer => Out(pointer);
    *mut *mut c_void => In<*mut c_void>: pointer => In(pointer);
    *const CUmemAllocationProp => In<CUmemAllocationProp>: pointer => In(pointer);
    *const CUmemAccessDesc => In<CUmemAccessDesc>: pointer => In(pointer);
    *const CUDA_MEMCPY2D => In<CUDA_MEMCPY2D>: pointer => In(pointer);
    *const CUmemLocation => In<CUmemLocation>: pointer => In(pointer);
}
