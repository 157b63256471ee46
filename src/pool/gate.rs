//! Who is inside the pool while it closes.

use std::time::Instant;

use crate::sync::{lock, Condvar, Mutex};

/// Counts publishers that are at work. Once it is closed, no further one enters.
#[derive(Debug, Default)]
pub(super) struct Gate {
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    count: usize,
    closed: bool,
}

/// The pool is closing: no further publisher enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

impl Gate {
    /// Enters, to [leave](Self::leave) again.
    pub(super) fn enter(&self) -> Result<(), Closed> {
        let mut inside = lock(&self.inside);
        if inside.closed {
            return Err(Closed);
        }
        inside.count += 1;
        Ok(())
    }

    pub(super) fn leave(&self) {
        lock(&self.inside).count -= 1;
        self.left.notify_all();
    }

    pub(super) fn close(&self) {
        lock(&self.inside).closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.inside).closed
    }

    /// Waits until nobody is inside, until the deadline at the latest; how many are.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> usize {
        let mut inside = lock(&self.inside);
        while inside.count > 0 {
            let Some(deadline) = deadline else {
                let woken = self.left.wait(inside);
                inside = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
                continue;
            };
            let now = Instant::now();
            if deadline <= now {
                break;
            }
            let woken = self.left.wait_timeout(inside, deadline - now);
            inside = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        inside.count
    }
}
