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
    /// Threads in [`Gate::wait`].
    waiting: usize,
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
        let mut inside = lock(&self.inside);
        inside.count -= 1;
        // Waking is a system call even where no thread waits.
        let wake = inside.count == 0 && inside.waiting > 0;
        drop(inside);
        if wake {
            self.left.notify_all();
        }
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
        inside.waiting += 1;
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
        inside.waiting -= 1;
        inside.count
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_to_leave_wakes_who_waits() {
        let gate = Gate::default();
        for _ in 0..2 {
            gate.enter().unwrap();
        }
        thread::scope(|scope| {
            let waiter = scope.spawn(|| gate.wait(None));
            while lock(&gate.inside).waiting == 0 {
                thread::yield_now();
            }
            gate.leave();
            let soon = Instant::now() + Duration::from_millis(20);
            assert_eq!(gate.wait(Some(soon)), 1);
            assert!(!waiter.is_finished());
            gate.leave();
            assert_eq!(waiter.join().unwrap(), 0);
        });
        let inside = lock(&gate.inside);
        assert_eq!((inside.count, inside.waiting), (0, 0));
    }
}
