//! Fabric handles: 64 bytes that name an allocation and, unlike a file descriptor, keep nothing alive.
//!
//! On a real machine they are good on every node of the fabric. Here they are good in every process of the machine that
//! may look into the exporter's `/proc/<pid>/fd`, which is how far the memory of a process reaches.

use std::os::fd::AsRawFd;

use crate::sys::CUmemFabricHandle;

use super::store::{Identity, Store};

const MAGIC: &[u8; 8] = b"cuvmmfab";

/// What a handle says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) identity: Identity,
    /// The exporter's process and its descriptor of the memory; `None` for memory kept in a ledger.
    pub(super) held_by: Option<(u32, i32)>,
}

impl Named {
    pub(super) fn path(&self) -> Option<String> {
        let (pid, fd) = self.held_by?;
        Some(format!("/proc/{pid}/fd/{fd}"))
    }
}

pub(super) fn handle(store: &Store, identity: Identity) -> Option<CUmemFabricHandle> {
    let (pid, fd) = match store {
        Store::Own(fd) => (std::process::id(), fd.as_raw_fd()),
        Store::Pages(_) => (0, 0),
        Store::Piece { .. } => return None,
    };
    let mut data = [0; 64];
    data[..8].copy_from_slice(MAGIC);
    data[8..12].copy_from_slice(&pid.to_be_bytes());
    data[12..16].copy_from_slice(&fd.to_be_bytes());
    data[16..24].copy_from_slice(&identity.0.to_be_bytes());
    data[24..32].copy_from_slice(&identity.1.to_be_bytes());
    Some(CUmemFabricHandle { data })
}

/// `None` for bytes that no simulated driver made.
pub(super) fn read(handle: &CUmemFabricHandle) -> Option<Named> {
    let data = &handle.data;
    if data[..8] != *MAGIC || data[32..] != [0; 32] {
        return None;
    }
    let pid = u32::from_be_bytes(data[8..12].try_into().ok()?);
    let fd = i32::from_be_bytes(data[12..16].try_into().ok()?);
    Some(Named {
        identity: (
            u64::from_be_bytes(data[16..24].try_into().ok()?),
            u64::from_be_bytes(data[24..32].try_into().ok()?),
        ),
        held_by: (pid != 0).then_some((pid, fd)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_was_put_in() {
        let made = handle(&Store::Pages(9), (4, 9)).unwrap();
        let named = read(&made).unwrap();
        assert_eq!(named.identity, (4, 9));
        assert_eq!(named.path(), None);
    }

    #[test]
    fn other_bytes_are_no_handle() {
        assert_eq!(read(&CUmemFabricHandle { data: [0; 64] }), None);
        let mut made = handle(&Store::Pages(9), (4, 9)).unwrap();
        made.data[40] = 1;
        assert_eq!(read(&made), None);
    }
}
