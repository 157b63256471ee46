//! Where a server is found: names of the kernel's own, and socket files.

use std::fmt;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

    /// Its bytes, without the NUL byte that goes before or behind them.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Name::Abstract(name) => name,
            Name::File(path) => path.as_os_str().as_bytes(),
        }
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
    /// The longest name, in bytes. A file's path has to end with a NUL byte, and an abstract name begins with one.
    pub const ROOM: usize = 107;

    /// The address of a name that is not empty; none where there is no room for it. It is never cut short: two names
    /// that differ late would become one.
    pub fn new(name: &Name) -> Option<Address> {
        let bytes = name.bytes();
        if bytes.len() > Self::ROOM {
            return None;
        }
        let mut raw = libc::sockaddr_un {
            sun_family: libc::AF_UNIX as _,
            sun_path: [0; Self::ROOM + 1],
        };
        let ahead = usize::from(matches!(name, Name::Abstract(_)));
        let place = raw.sun_path.iter_mut().skip(ahead);
        for (place, &byte) in place.zip(bytes) {
            *place = byte as _;
        }
        // The NUL byte, before or behind, counts.
        let length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
        Some(Address {
            raw,
            length: length as _,
        })
    }

    /// For the kernel: so many bytes of the struct are filled in.
    pub fn raw(&self) -> (&libc::sockaddr_un, libc::socklen_t) {
        (&self.raw, self.length)
    }
}
