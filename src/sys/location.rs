//! `CUmemLocation`, the one type of the header that is written by hand.

use super::CUmemLocationType;

/// Where memory lies, or who is to have access to it.
///
/// Up to CUDA 13.1 the header's `id` is an `int`; from 13.2 on it is one member of an unnamed union of the same size.
/// Here it is an `int` for both. `wrapper.h` has the C compiler assert, against the header at hand, that size and
/// offsets are the same.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
pub struct CUmemLocation_st {
    /// What `id` counts.
    pub type_: CUmemLocationType,
    /// The ordinal of a device, or the number of a NUMA node.
    pub id: std::ffi::c_int,
}

const _: () = {
    assert!(std::mem::size_of::<CUmemLocation_st>() == 8);
    assert!(std::mem::align_of::<CUmemLocation_st>() == 4);
    assert!(std::mem::offset_of!(CUmemLocation_st, type_) == 0);
    assert!(std::mem::offset_of!(CUmemLocation_st, id) == 4);
};

impl Default for CUmemLocation_st {
    fn default() -> Self {
        CUmemLocation_st {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID,
            id: 0,
        }
    }
}
