//! Messages between two processes through shared memory: one at a time in each direction, and the receiver spins. As
//! `scripts/foreign/mailbox.py` does it.

use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one direction: sequence and length, each in a cache line of its own, then the message.
const MAILBOX: usize = 32 << 10;
const LENGTH: usize = 64;
const DATA: usize = 128;

/// A block of host memory for copies.
pub(crate) const BLOCK: usize = 1 << 20;

/// Both directions, and two blocks: pageable, and one to be registered with the driver.
pub(crate) struct Shared {
    base: usize,
    pub descriptor: RawFd,
}

/// One end of one direction.
pub(crate) struct Mailbox {
    base: usize,
    number: u64,
}

impl Shared {
    const SIZE: usize = 2 * MAILBOX + 2 * BLOCK;

    /// A process that this one starts inherits the descriptor.
    pub fn create() -> Shared {
        let descriptor = unsafe { libc::memfd_create(c"bench-pool".as_ptr(), 0) };
        assert!(descriptor >= 0);
        let sized = unsafe { libc::ftruncate(descriptor, Shared::SIZE as libc::off_t) };
        assert_eq!(sized, 0);
        Shared::open(descriptor)
    }

    pub fn open(descriptor: RawFd) -> Shared {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let base = unsafe {
            libc::mmap(
                null_mut(),
                Shared::SIZE,
                rights,
                libc::MAP_SHARED,
                descriptor,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Shared {
            base: base as usize,
            descriptor,
        }
    }

    /// The direction with this number, 0 or 1.
    pub fn mailbox(&self, number: usize) -> Mailbox {
        Mailbox {
            base: self.base + number * MAILBOX,
            number: 0,
        }
    }

    /// The address of the block with this number, 0 or 1.
    pub fn block(&self, number: usize) -> usize {
        self.base + 2 * MAILBOX + number * BLOCK
    }
}

impl Mailbox {
    fn word(&self, offset: usize) -> &AtomicU64 {
        unsafe { &*((self.base + offset) as *const AtomicU64) }
    }

    /// Shows a message. The one before it was received: each message is answered.
    pub fn send(&mut self, message: &[&[u8]]) {
        let mut at = 0;
        for piece in message {
            assert!(DATA + at + piece.len() <= MAILBOX);
            let to = (self.base + DATA + at) as *mut u8;
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len()) };
            at += piece.len();
        }
        self.word(LENGTH).store(at as u64, Ordering::Relaxed);
        self.number += 1;
        self.word(0).store(self.number, Ordering::Release);
    }

    /// Spins until the next message is there. The message is valid until it is answered.
    pub fn receive(&mut self, mut is_alive: impl FnMut() -> bool) -> &[u8] {
        const SPINS: usize = 50_000;
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            for _ in 0..SPINS {
                if self.word(0).load(Ordering::Acquire) == self.number + 1 {
                    self.number += 1;
                    let length = self.word(LENGTH).load(Ordering::Relaxed) as usize;
                    let from = (self.base + DATA) as *const u8;
                    return unsafe { std::slice::from_raw_parts(from, length) };
                }
                std::hint::spin_loop();
            }
            assert!(is_alive(), "the other process ended");
            assert!(Instant::now() < until, "no message came");
        }
    }
}
