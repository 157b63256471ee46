//! A socket that others connect to, and the name it is found by.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::address::{Address, Name};
use super::connect;
use super::error::{Step, WireError};
use super::frame::Frame;
use super::link::Link;
use super::socket_kind::SocketKind;
use super::syscalls;
use super::wait::PAUSE;
use crate::fork;

/// Connections that may wait to be accepted. The kernel takes no more than its own limit (net.core.somaxconn, 4,096).
const BACKLOG: i32 = 1024;

/// How long the folder of a socket file may be locked by others; they hold the lock for a few system calls.
const LOCKED: Duration = Duration::from_secs(2);

/// A listening socket; its file, if it has one, goes with it.
pub(super) struct Listener {
    file: Option<OwnFile>,
    socket: OwnedFd,
}

impl Listener {
    /// Takes the name. A socket file whose server is dead is replaced; one that answers is left alone, and so is
    /// anything else.
    pub fn bind(name: &Name) -> Result<Listener, WireError> {
        let address = connect::address(name)?;
        let socket = syscalls::socket(SocketKind::Packets).map_err(WireError::io(Step::Opening))?;
        let file = match name {
            Name::Abstract(_) => {
                match syscalls::bind(socket.as_fd(), &address) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                        return Err(WireError::NameTaken { name: name.clone() })
                    }
                    other => other.map_err(WireError::io(Step::Opening))?,
                }
                listen(socket.as_fd())?;
                None
            }
            Name::File(path) => {
                // Between being bound and listening a live socket looks like a dead one, and between its being found
                // dead and its removal a file could become another server's: both happen under the lock.
                let _lock = lock_folder(path)?;
                bind_file(socket.as_fd(), &address, name, path)?;
                // What fails from here on takes the file along.
                let file = OwnFile::of(path)
                    .and_then(|file| listen(socket.as_fd()).map(|()| file))
                    .inspect_err(|_| drop(fs::remove_file(path)))?;
                Some(file)
            }
        };
        Ok(Listener { file, socket })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Ends it, with a word to those who wait to be accepted: closed without one, they could not know why.
    pub fn close(self, last: &Frame<'_>) {
        // Whoever connects from here on is refused by the kernel, and those who had before can still be accepted.
        let _ = syscalls::shutdown(self.socket());
        while let Ok(socket) = syscalls::accept(self.socket()) {
            if let Ok(mut link) = Link::new(socket) {
                link.abort(last);
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // While the socket is still open: it keeps its inode from being given to another file, so that the identity
        // below is its own.
        if let Some(file) = &self.file {
            let _lock = lock_folder(&file.path);
            file.remove();
        }
    }
}

fn listen(socket: BorrowedFd<'_>) -> Result<(), WireError> {
    syscalls::listen(socket, BACKLOG).map_err(WireError::io(Step::Opening))
}

/// Binds to the path, after removing a dead server's socket from it.
fn bind_file(
    socket: BorrowedFd<'_>,
    address: &Address,
    name: &Name,
    path: &Path,
) -> Result<(), WireError> {
    match syscalls::bind(socket, address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        other => return other.map_err(WireError::io(Step::Opening)),
    }
    match fs::symlink_metadata(path) {
        // A dead server's socket refuses connections, and so does any other kind of file.
        Ok(found) if !found.file_type().is_socket() => {
            return Err(WireError::NotASocket {
                path: path.to_owned(),
            })
        }
        Ok(_) if !is_dead(address)? => {
            return Err(WireError::NameTaken { name: name.clone() });
        }
        Ok(_) => fs::remove_file(path).map_err(WireError::io(Step::Opening))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(WireError::io(Step::Opening)(error)),
    }
    match syscalls::bind(socket, address) {
        // Somebody who knows nothing of the lock was faster.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(WireError::NameTaken { name: name.clone() })
        }
        other => other.map_err(WireError::io(Step::Opening)),
    }
}

/// Whether nobody listens there: the kernel refuses the connection. Every other answer is a sign of life.
fn is_dead(address: &Address) -> Result<bool, WireError> {
    let probe = syscalls::socket(SocketKind::Packets).map_err(WireError::io(Step::Opening))?;
    match syscalls::connect(probe.as_fd(), address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Ok(()) => Ok(false),
        Err(error) => match error.raw_os_error() {
            // Too many wait to be accepted, or it is a socket of another type: somebody is there.
            Some(libc::EAGAIN | libc::EPROTOTYPE) => Ok(false),
            _ => Err(WireError::io(Step::Opening)(error)),
        },
    }
}

/// Holds off everybody who binds to, or removes, a socket file in the same folder.
fn lock_folder(path: &Path) -> Result<File, WireError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let folder = File::open(folder).map_err(WireError::io(Step::Opening))?;
    let until = Instant::now() + LOCKED;
    loop {
        match syscalls::try_lock(folder.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                thread::sleep(PAUSE);
            }
            other => return other.map(|()| folder).map_err(WireError::io(Step::Opening)),
        }
    }
}

/// A file that this process made, told from every other by its identity.
struct OwnFile {
    path: PathBuf,
    identity: (u64, u64),
    generation: u32,
}

impl OwnFile {
    fn of(path: &Path) -> Result<OwnFile, WireError> {
        let found = fs::symlink_metadata(path).map_err(WireError::io(Step::Opening))?;
        Ok(OwnFile {
            // The program may go to another folder.
            path: std::path::absolute(path).map_err(WireError::io(Step::Opening))?,
            identity: (found.dev(), found.ino()),
            generation: fork::join(),
        })
    }

    /// Removes the file, unless it is another's by now, or the parent's of a forked child.
    fn remove(&self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if is_ours && self.generation == fork::current() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
