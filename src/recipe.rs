//! The properties of memory as plain data: what is hashed, compared and sent to the driver; and the granularity they
//! have.

use std::fmt;
use std::ops::BitOr;

use crate::bytes::round_up;
use crate::location::Location;
use crate::sys::{
    CUmemAllocationCompType, CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType,
};

/// A set of the ways in which an allocation can be shared with other processes (`CUmemAllocationHandleType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HandleTypes(u32);

impl HandleTypes {
    /// Cannot be shared.
    pub const NONE: HandleTypes = HandleTypes(0);
    /// As a POSIX file descriptor, on one machine.
    pub const POSIX_FD: HandleTypes = HandleTypes(1);
    /// As a fabric handle, over NVLink also across machines (CUDA 12.3 and newer; needs an IMEX channel).
    pub const FABRIC: HandleTypes = HandleTypes(8);

    /// Whether all of `other` is in this set.
    pub const fn contains(self, other: HandleTypes) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set as `cuda.h` has it.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for HandleTypes {
    type Output = HandleTypes;

    fn bitor(self, other: HandleTypes) -> HandleTypes {
        HandleTypes(self.0 | other.0)
    }
}

impl fmt::Display for HandleTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [
            (HandleTypes::POSIX_FD, "POSIX fd"),
            (HandleTypes::FABRIC, "FABRIC handle"),
        ];
        let mut names: Vec<String> = known
            .iter()
            .filter(|(one, _)| self.contains(*one))
            .map(|(_, name)| name.to_string())
            .collect();
        match self.0 & !9 {
            0 => {}
            rest => names.push(format!("type bits {rest:#x}")),
        }
        f.write_str(&if names.is_empty() {
            "nothing".into()
        } else {
            names.join(" or ")
        })
    }
}

/// The properties alone: what is hashed, compared and sent to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    pub(crate) location: Location,
    pub(crate) handle_types: HandleTypes,
    pub(crate) rdma: bool,
    pub(crate) compression: bool,
}

impl Recipe {
    pub(crate) fn plain(location: Location) -> Self {
        Recipe {
            location,
            handle_types: HandleTypes::NONE,
            rdma: false,
            compression: false,
        }
    }

    pub(crate) fn to_raw(self) -> CUmemAllocationProp {
        let mut raw = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType(self.handle_types.0),
            location: self.location.to_raw(),
            ..Default::default()
        };
        raw.allocFlags.gpuDirectRDMACapable = self.rdma.into();
        raw.allocFlags.compressionType = match self.compression {
            true => CUmemAllocationCompType::CU_MEM_ALLOCATION_COMP_GENERIC.0 as u8,
            false => CUmemAllocationCompType::CU_MEM_ALLOCATION_COMP_NONE.0 as u8,
        };
        raw
    }

    pub(crate) fn from_raw(raw: &CUmemAllocationProp) -> Self {
        Recipe {
            location: Location::from_raw(raw.location),
            handle_types: HandleTypes(raw.requestedHandleTypes.0),
            rdma: raw.allocFlags.gpuDirectRDMACapable != 0,
            compression: raw.allocFlags.compressionType != 0,
        }
    }
}

/// The multiples in which memory of some properties is created, mapped and granted, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granularity {
    minimum: usize,
    recommended: usize,
}

impl Granularity {
    pub(crate) fn new(minimum: usize, recommended: usize) -> Granularity {
        Granularity {
            minimum,
            recommended,
        }
    }

    /// Sizes and offsets must be multiples of this.
    pub fn minimum(self) -> usize {
        self.minimum
    }

    /// Multiples of this perform best.
    pub fn recommended(self) -> usize {
        self.recommended
    }

    /// The size rounded up to a multiple of the recommended granularity, or `None` if that does not fit in a `usize`.
    pub fn round_up(self, size: usize) -> Option<usize> {
        round_up(size, self.recommended)
    }
}
