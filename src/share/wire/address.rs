//! Where a server is found: names of the kernel's own, and socket files.

use std::fmt;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::WireError;

/// What a `sockaddr_un` has room for. A file's path has to end with a NUL byte, and an abstract name begins with one.
const ROOM: usize = 107;

/// The name under which a server is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Name {
    /// A name that the kernel keeps for as long as the server lives (`unix(7)`, abstract). Linux only, per network
    /// namespace, and open to every user: both ends check whom they talk to.
    Abstract(Vec<u8>),
    /// A socket file. The permissions of its folder count too.
    File(PathBuf),
}

impl Name {
    /// An abstract name.
    pub fn new(name: impl AsRef<[u8]>) -> Name {
        Name::Abstract(name.as_ref().to_vec())
    }

    /// A socket file.
    pub fn file(path: impl AsRef<Path>) -> Name {
        Name::File(path.as_ref().to_owned())
    }

    /// The name as the kernel takes it. It is never cut short: two names that differ late would become one.
    pub(super) fn address(&self) -> Result<Address, WireError> {
        let bytes = match self {
            Name::Abstract(name) => name.as_slice(),
            Name::File(path) => path.as_os_str().as_bytes(),
        };
        if bytes.is_empty() || (bytes.contains(&0) && matches!(self, Name::File(_))) {
            return Err(WireError::BadName { name: self.clone() });
        }
        if bytes.len() > ROOM {
            return Err(WireError::NameTooLong {
                length: bytes.len(),
                limit: ROOM,
                name: self.clone(),
            });
        }
        Ok(Address::new(bytes, matches!(self, Name::Abstract(_))))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Abstract(name) => write!(f, "abstract name \"{}\"", name.escape_ascii()),
            Name::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A name in the kernel's form.
pub(super) struct Address {
    raw: libc::sockaddr_un,
    length: libc::socklen_t,
}

impl Address {
    /// `bytes` are no more than [`ROOM`], and not none.
    fn new(bytes: &[u8], is_abstract: bool) -> Address {
        let mut raw = libc::sockaddr_un {
            sun_family: libc::AF_UNIX as _,
            sun_path: [0; ROOM + 1],
        };
        let place = raw.sun_path.iter_mut().skip(usize::from(is_abstract));
        for (place, &byte) in place.zip(bytes) {
            *place = byte as _;
        }
        // The NUL byte, before or behind, counts.
        let length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
        Address {
            raw,
            length: length as _,
        }
    }

    pub(super) fn raw(&self) -> (&libc::sockaddr_un, libc::socklen_t) {
        (&self.raw, self.length)
    }
}
