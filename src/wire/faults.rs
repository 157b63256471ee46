//! Makes the transport's system calls fail, for tests of what becomes of both sides then (feature `sim`).
//!
//! The count is the process's: a server's thread makes calls too. So a test of this kind has a process to itself.

#[cfg(feature = "sim")]
pub use plan::{start, stop};

/// Which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // They are the names of the calls.
pub enum Syscall {
    Socket,
    Socketpair,
    Bind,
    Listen,
    Connect,
    Accept,
    Sendmsg,
    Recvmsg,
    Poll,
    EpollCreate,
    EpollCtl,
    EpollWait,
    Getsockopt,
    PidfdOpen,
    Shutdown,
    Flock,
}

/// The error with which this call fails instead of being made; none without the feature.
#[cfg(not(feature = "sim"))]
pub(super) fn due(_: Syscall) -> Option<std::io::Error> {
    None
}

#[cfg(feature = "sim")]
pub(super) use plan::due;

#[cfg(feature = "sim")]
mod plan {
    use std::io;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::Syscall;

    /// What is to fail, and what was called so far.
    struct Plan {
        fail: Option<(usize, i32)>,
        calls: Vec<Syscall>,
        recording: bool,
    }

    static PLAN: Mutex<Plan> = Mutex::new(Plan {
        fail: None,
        calls: Vec::new(),
        recording: false,
    });

    /// Counts calls from here on; the one with this index (from 0), if one is given, fails with this `errno` and is not
    /// made.
    pub fn start(fail: Option<(usize, i32)>) {
        *lock() = Plan {
            fail,
            calls: Vec::new(),
            recording: true,
        };
    }

    /// Stops counting: which calls were attempted, in order. Failing one that was never reached is seen by its absence.
    pub fn stop() -> Vec<Syscall> {
        let mut plan = lock();
        plan.recording = false;
        plan.fail = None;
        std::mem::take(&mut plan.calls)
    }

    fn lock() -> MutexGuard<'static, Plan> {
        PLAN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error with which this call fails instead of being made.
    pub fn due(call: Syscall) -> Option<io::Error> {
        let mut plan = lock();
        if !plan.recording {
            return None;
        }
        let index = plan.calls.len();
        plan.calls.push(call);
        let (fail, errno) = plan.fail?;
        (fail == index).then(|| io::Error::from_raw_os_error(errno))
    }
}
