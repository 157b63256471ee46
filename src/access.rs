//! Who may do what with mapped memory.

use std::fmt;

use crate::location::Location;
use crate::sys::{CUmemAccessDesc, CUmemAccess_flags};

/// What a location may do with a mapping (`CUmemAccess_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Access {
    /// Neither reads nor writes. What a fresh mapping gives to everybody.
    #[default]
    None,
    /// Reads only.
    Read,
    /// Reads and writes.
    ReadWrite,
}

impl Access {
    /// Whether reads are allowed.
    pub const fn reads(self) -> bool {
        !matches!(self, Access::None)
    }

    /// Whether writes are allowed.
    pub const fn writes(self) -> bool {
        matches!(self, Access::ReadWrite)
    }

    /// Two letters for a picture: `--`, `r-`, `rw`.
    pub(crate) const fn letters(self) -> &'static str {
        match self {
            Access::None => "--",
            Access::Read => "r-",
            Access::ReadWrite => "rw",
        }
    }

    pub(crate) fn from_flags(flags: u64) -> Option<Self> {
        match u32::try_from(flags).map(CUmemAccess_flags) {
            Ok(CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE) => Some(Access::None),
            Ok(CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ) => Some(Access::Read),
            Ok(CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE) => Some(Access::ReadWrite),
            _ => None,
        }
    }

    fn to_flags(self) -> CUmemAccess_flags {
        match self {
            Access::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Access::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::None => "no access",
            Access::Read => "read",
            Access::ReadWrite => "read-write",
        })
    }
}

/// Rights of several locations: at most one entry each, in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rights(Vec<(Location, Access)>);

impl Rights {
    pub(crate) fn of(&self, location: Location) -> Access {
        self.0
            .iter()
            .find(|(at, _)| *at == location)
            .map_or(Access::None, |(_, access)| *access)
    }

    pub(crate) fn contains(&self, location: Location) -> bool {
        self.0.iter().any(|(at, _)| *at == location)
    }

    pub(crate) fn set(&mut self, location: Location, access: Access) {
        match self.0.iter_mut().find(|(at, _)| *at == location) {
            Some(entry) => entry.1 = access,
            None => self.0.push((location, access)),
        }
    }

    /// The same rights in one order and without the entries that give none, so that equal rights are equal values.
    pub(crate) fn normal(mut self) -> Rights {
        self.0.retain(|(_, access)| access.reads());
        self.0.sort_unstable();
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Location, Access)> + '_ {
        self.0.iter().copied()
    }

    /// The rights that apply to memory at `backing`: the driver refuses a host location's rights on a device's memory
    /// (NOT_SUPPORTED), so a policy's host entries hold for host memory only. Entries without access are left out: a
    /// fresh mapping has none.
    pub(crate) fn applicable_to(&self, backing: Location) -> Rights {
        let applies = |at: Location| backing.is_host() || !at.is_host();
        Rights(
            self.iter()
                .filter(|(at, access)| applies(*at) && access.reads())
                .collect(),
        )
    }

    pub(crate) fn descriptors(&self) -> Vec<CUmemAccessDesc> {
        self.iter()
            .map(|(location, access)| descriptor(location, access))
            .collect()
    }
}

pub(crate) fn descriptor(location: Location, access: Access) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: location.to_raw(),
        flags: access.to_flags(),
    }
}
