//! Memory that two processes share for control words: a sealed memfd, mapped on both sides.
//!
//! # Safety
//!
//! The memory is reached through atomics alone, since the other process writes to it at any time. The file cannot
//! shrink: it is sealed before it is passed on, and the receiver checks the seal, so that no peer can make an access
//! fault. Any bytes are valid entries.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use super::entry::Entry;

const PAGE: usize = 4096;
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// The control words of one session, mapped into this process.
#[derive(Debug)]
pub(super) struct ControlMemory {
    address: usize,
    size: usize,
    entries: usize,
    is_kept: AtomicBool,
}

/// Why control memory that came from another process cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it has {found} bytes instead of {expected}")]
    Size { expected: usize, found: u64 },
    #[error("it is not sealed against shrinking")]
    NotSealed,
}

impl ControlMemory {
    /// Creates the memory, all zeroes, and the descriptor to pass on.
    pub(super) fn create(entries: usize) -> io::Result<(ControlMemory, OwnedFd)> {
        let size = bytes_of(entries);
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"cuda-vmm-pool".as_ptr(), flags) };
        checked(fd)?;
        // SAFETY: the kernel made the descriptor for this process a moment ago.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a file of our own, and numbers.
        checked(unsafe { libc::ftruncate(fd.as_raw_fd(), size as libc::off_t) })?;
        // SAFETY: as before.
        checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        let memory = ControlMemory::map(&fd, size, entries)?;
        Ok((memory, fd))
    }

    /// Maps what another process created for as many entries.
    pub(super) fn open(fd: &OwnedFd, entries: usize) -> Result<ControlMemory, Unusable> {
        let expected = bytes_of(entries);
        // SAFETY: two numbers. Of what is no memfd the kernel says so.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        checked(seals)?;
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(Unusable::NotSealed);
        }
        let found = file_size(fd)?;
        if found != expected as u64 {
            return Err(Unusable::Size { expected, found });
        }
        Ok(ControlMemory::map(fd, expected, entries)?)
    }

    fn map(fd: &OwnedFd, size: usize, entries: usize) -> io::Result<ControlMemory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                null_mut(),
                size,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(ControlMemory {
            address: at as usize,
            size,
            entries,
            is_kept: AtomicBool::new(false),
        })
    }

    /// Leaves the words mapped for good: a driver may still write to them.
    pub(super) fn keep_mapped(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// First address, for the driver.
    pub(super) fn address(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// Bytes, in whole pages.
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

impl AsRef<[Entry]> for ControlMemory {
    fn as_ref(&self) -> &[Entry] {
        // SAFETY: `entries` of them lie in the mapping, which is aligned to a page, cannot shrink, and lives as long as
        // `self`. They are atomics, of which every value is valid.
        unsafe { std::slice::from_raw_parts(self.address as *const Entry, self.entries) }
    }
}

impl Drop for ControlMemory {
    fn drop(&mut self) {
        if *self.is_kept.get_mut() {
            return;
        }
        // SAFETY: mapped by `map`, and no reference into it is left.
        unsafe { libc::munmap(self.address(), self.size) };
    }
}

fn bytes_of(entries: usize) -> usize {
    (entries * size_of::<Entry>()).next_multiple_of(PAGE)
}

fn file_size(fd: &OwnedFd) -> io::Result<u64> {
    std::fs::File::from(fd.try_clone()?)
        .metadata()
        .map(|metadata| metadata.len())
}

fn checked(result: i32) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor that becomes readable once.
#[derive(Debug)]
pub(super) struct Signal(OwnedFd);

impl Signal {
    pub(super) fn new() -> io::Result<Signal> {
        // SAFETY: two numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        checked(fd)?;
        // SAFETY: the kernel made the descriptor for this process a moment ago.
        Ok(Signal(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable. May be called from a thread of the driver's.
    pub(super) fn raise(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes of a local. The counter is far from full, so that nothing is left to do about a failure.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::super::entry::Scope;
    use super::*;

    #[test]
    fn both_sides_see_the_same_words() {
        let (ours, fd) = ControlMemory::create(300).unwrap();
        let theirs = ControlMemory::open(&fd, 300).unwrap();
        assert_eq!(ours.as_ref().len(), 300);
        ours.as_ref()[299].offer(7);
        assert_eq!(theirs.as_ref()[299].open(7), Ok(()));
        theirs.as_ref()[299].finish(7, Scope::Own);
        assert_eq!(ours.as_ref()[299].acknowledged(7), Some(Scope::Own));
    }

    #[test]
    fn memory_that_could_shrink_or_has_another_size_is_refused() {
        let (_ours, fd) = ControlMemory::create(300).unwrap();
        match ControlMemory::open(&fd, 3000) {
            Err(Unusable::Size { expected, found }) => {
                assert_eq!((expected, found), (49152, 8192));
            }
            other => panic!("{other:?}"),
        }
        // SAFETY: the name is a C string; the descriptor is new.
        let open = unsafe {
            let fd = libc::memfd_create(c"open".as_ptr(), libc::MFD_ALLOW_SEALING);
            OwnedFd::from_raw_fd(fd)
        };
        assert!(matches!(
            ControlMemory::open(&open, 1),
            Err(Unusable::NotSealed)
        ));
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(matches!(
            ControlMemory::open(&file, 1),
            Err(Unusable::Io(error)) if error.raw_os_error() == Some(libc::EINVAL)
        ));
    }

    #[test]
    fn a_signal_is_readable_once_it_was_raised() {
        let signal = Signal::new().unwrap();
        let readable = || {
            let mut watched = libc::pollfd {
                fd: signal.fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one struct.
            unsafe { libc::poll(&mut watched, 1, 0) }
        };
        assert_eq!(readable(), 0);
        signal.raise();
        assert_eq!(readable(), 1);
    }
}
