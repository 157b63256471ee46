//! A signal to a server's thread, from any other.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use crate::wire::syscalls;

/// Wakes a server's thread, so that it calls [`Sessions::tick`](super::Sessions::tick).
///
/// It may outlive the server, and keeps no descriptor open then.
#[derive(Debug, Clone, Default)]
pub struct Waker(Weak<UnixStream>);

impl Waker {
    /// Wakes the thread soon; several calls before it wakes count as one. This never blocks. It does nothing once the
    /// server stopped.
    pub fn wake(&self) {
        if let Some(bell) = self.0.upgrade() {
            // With a full buffer the thread is going to wake already.
            let _ = syscalls::send(bell.as_fd(), b"w", &[]);
        }
    }
}

/// The server's end: a byte wakes the thread, the end of the stream stops it.
pub(super) struct Bell(Arc<UnixStream>);

impl Bell {
    pub fn new() -> io::Result<(Bell, Heard)> {
        let (here, there) = UnixStream::pair()?;
        there.set_nonblocking(true)?;
        Ok((Bell(Arc::new(here)), Heard(there)))
    }

    pub fn waker(&self) -> Waker {
        Waker(Arc::downgrade(&self.0))
    }

    /// Stops the thread. Closing alone would not, while a forked child has a copy of the descriptor.
    pub fn stop(self) {
        // It can only fail for a stream that has no other end, and then the thread has ended.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// The thread's end.
pub(super) struct Heard(UnixStream);

impl Heard {
    /// Takes what came, and says whether the thread has to stop.
    pub fn is_stop(&self) -> bool {
        let mut bytes = [0; 64];
        loop {
            match (&self.0).read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // There is no more.
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Heard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
