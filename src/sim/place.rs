//! Where memory lies, and who may touch it.

use std::fmt;

use crate::sys::{CUmemAccess_flags, CUmemLocation, CUmemLocationType};

/// A place memory can lie in, or can be reached from: `CUmemLocation` with the kinds told apart.
///
/// The number is what the caller passed; it need not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A device, by ordinal.
    Device(i32),
    /// The host, no particular node.
    Host,
    /// A NUMA node of the host.
    HostNuma(i32),
}

impl Place {
    /// `None` for a kind that no memory can lie in: `NONE`, `HOST_NUMA_CURRENT`, and what is not known.
    pub(super) fn of(location: &CUmemLocation) -> Option<Self> {
        match location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Some(Place::Device(location.id)),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Some(Place::Host),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => Some(Place::HostNuma(location.id)),
            _ => None,
        }
    }

    pub(super) fn to_location(self) -> CUmemLocation {
        let (type_, id) = match self {
            Place::Device(ordinal) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, ordinal),
            Place::Host => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0),
            Place::HostNuma(node) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, node),
        };
        CUmemLocation { type_, id }
    }

    pub(super) fn is_host(self) -> bool {
        !matches!(self, Place::Device(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Device(ordinal) => write!(f, "device {ordinal}"),
            Place::Host => f.write_str("host"),
            Place::HostNuma(node) => write!(f, "host node {node}"),
        }
    }
}

/// What a place may do with a mapping. The order is that of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Rights {
    /// Nothing, which is also where a new mapping starts.
    #[default]
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

impl Rights {
    /// `None` for flags that the driver refuses.
    pub(super) fn of(flags: CUmemAccess_flags) -> Option<Self> {
        match flags {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => Some(Rights::None),
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => Some(Rights::Read),
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Some(Rights::ReadWrite),
            _ => None,
        }
    }

    pub(super) fn flags(self) -> CUmemAccess_flags {
        match self {
            Rights::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Rights::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Rights::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rights::None => "no access",
            Rights::Read => "read",
            Rights::ReadWrite => "read-write",
        })
    }
}
