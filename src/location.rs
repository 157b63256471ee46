//! Where memory lies, and from where it is accessed.

use std::fmt;

use crate::sys::{CUmemLocation, CUmemLocationType};

/// A place that has memory, and from which memory is accessed (`CUmemLocation`).
///
/// A NUMA node is an unsigned number here: the -1 that the driver reports for "no such node" cannot be passed back to
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Location {
    /// The device with this ordinal.
    Device(u32),
    /// Host memory, no particular node (CUDA 12.2 and newer).
    Host,
    /// Host memory of this NUMA node (CUDA 12.2 and newer).
    HostNuma(u32),
    /// A place this crate has no name for, as the driver reported it. One that has a name is not taken under this.
    Other {
        /// `CUmemLocationType`, as a number.
        kind: u32,
        /// Its `id`.
        id: i32,
    },
}

impl Location {
    /// Whether the memory is the host's (as far as this crate knows the kind).
    pub const fn is_host(self) -> bool {
        matches!(self, Location::Host | Location::HostNuma(_))
    }

    /// The device's ordinal, where it is a device.
    pub const fn device(self) -> Option<u32> {
        match self {
            Location::Device(ordinal) => Some(ordinal),
            _ => None,
        }
    }

    /// Whether the driver would report the place under this very name.
    pub(crate) fn is_canonical(self) -> bool {
        Location::from_raw(self.to_raw()) == self
    }

    pub(crate) fn to_raw(self) -> CUmemLocation {
        let (type_, id) = match self {
            Location::Device(ordinal) => (
                CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                ordinal as i32,
            ),
            Location::Host => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0),
            Location::HostNuma(node) => (
                CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA,
                node as i32,
            ),
            Location::Other { kind, id } => (CUmemLocationType(kind), id),
        };
        CUmemLocation { type_, id }
    }

    pub(crate) fn from_raw(raw: CUmemLocation) -> Self {
        match (raw.type_, u32::try_from(raw.id)) {
            (CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, Ok(id)) => Location::Device(id),
            (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, _) => Location::Host,
            (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, Ok(id)) => Location::HostNuma(id),
            (kind, _) => Location::Other {
                kind: kind.0,
                id: raw.id,
            },
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Device(ordinal) => write!(f, "device {ordinal}"),
            Location::Host => f.write_str("host"),
            Location::HostNuma(node) => write!(f, "host NUMA node {node}"),
            Location::Other { kind, id } => write!(f, "location of type {kind}, id {id}"),
        }
    }
}
