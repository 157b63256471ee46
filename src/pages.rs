//! Memory of the host, in whole pages, for copies of what lies on a device.
//!
//! Ordinary anonymous memory, in huge pages where the kernel gives them: with those, touching it costs a fifth, and so
//! does registering it. Nothing is touched until it is asked for, which several threads can do at once.
//!
//! # Safety
//!
//! No reference of Rust's ever points into the pages: they are touched through raw pointers here, and otherwise read and
//! written by the driver alone.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::ptr::null_mut;

/// What a huge page is aligned to, and the largest step between two touches that misses no page.
const HUGE: usize = 2 << 20;
const SMALLEST: usize = 4096;

/// Pages of the host, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    address: usize,
    size: usize,
    /// What was mapped: more, so that the address could be aligned.
    mapped: (usize, usize),
}

impl Pages {
    /// Asks the system for so many bytes. They take memory once they are touched.
    pub(crate) fn new(size: usize) -> io::Result<Pages> {
        let room = size
            .checked_add(HUGE)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a new mapping, at an address of the system's choice.
        let at = unsafe {
            libc::mmap(
                null_mut(),
                room,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = (at as usize).next_multiple_of(HUGE);
        let pages = Pages {
            address,
            size,
            mapped: (at as usize, room),
        };
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // Advice: without huge pages it is slower, and a forked child does not need these. Refused, it does no harm.
            // SAFETY: a range of our own.
            unsafe { libc::madvise(at, room, advice) };
        }
        Ok(pages)
    }

    /// First address.
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Makes the system provide the pages of a range. Threads may touch different ranges at once; the contents are lost.
    pub(crate) fn touch(&self, range: Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.size,
            "{range:?} is not within {} bytes",
            self.size
        );
        for offset in range.step_by(SMALLEST) {
            // SAFETY: within the pages, which nothing else reads or writes before they are all touched.
            unsafe { ((self.address + offset) as *mut u8).write_volatile(0) };
        }
    }

    /// Leaves the pages mapped for good: a driver may still write to them, or this is a forked child without them.
    pub(crate) fn abandon(self) {
        std::mem::forget(self);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let (address, size) = self.mapped;
        // SAFETY: mapped by `new`, and nothing points into it.
        unsafe { libc::munmap(address as *mut libc::c_void, size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_touched_from_several_threads() {
        let pages = Pages::new(3 << 20).unwrap();
        assert_eq!((pages.address() % HUGE, pages.size()), (0, 3 << 20));
        std::thread::scope(|scope| {
            scope.spawn(|| pages.touch(0..1 << 20));
            scope.spawn(|| pages.touch(1 << 20..3 << 20));
        });
    }

    #[test]
    fn more_than_there_are_addresses_is_refused() {
        for size in [usize::MAX, 1 << 60] {
            let error = Pages::new(size).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        }
    }
}
