//! Physical blocks that are kept for the next commit instead of being released.

use std::collections::VecDeque;

use crate::error::Result;
use crate::handle::Handle;

/// Blocks by size, up to a bound in bytes. What came last is taken first, and what came first goes first.
pub(super) struct Cache {
    bound: usize,
    bytes: usize,
    /// One queue for each power of two, the least size first.
    sizes: Vec<VecDeque<Kept>>,
    least: usize,
    clock: u64,
}

struct Kept {
    handle: Handle,
    since: u64,
}

impl Cache {
    pub(super) fn new(bound: usize, least: usize, greatest: usize) -> Cache {
        let sizes = (greatest / least).ilog2() as usize + 1;
        Cache {
            bound,
            bytes: 0,
            sizes: (0..sizes).map(|_| VecDeque::new()).collect(),
            least,
            clock: 0,
        }
    }

    /// Bytes in it.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most bytes that may be in it.
    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// Takes out a block of this size.
    pub(super) fn take(&mut self, size: usize) -> Option<Handle> {
        let kept = self.of(size).pop_back()?;
        self.bytes -= size;
        Some(kept.handle)
    }

    pub(super) fn put(&mut self, handle: Handle) {
        let size = handle.memory().size;
        let since = self.clock;
        self.clock += 1;
        self.of(size).push_back(Kept { handle, since });
        self.bytes += size;
    }

    /// Releases what has been here longest until no more than so many bytes are left, or the driver refuses.
    pub(super) fn shrink(&mut self, to: usize) -> Result<()> {
        while self.bytes > to {
            let oldest = self
                .sizes
                .iter_mut()
                .filter(|queue| !queue.is_empty())
                .min_by_key(|queue| queue.front().map(|kept| kept.since));
            let Some(queue) = oldest else {
                break;
            };
            if let Some(kept) = queue.front_mut() {
                kept.handle.release_count()?;
                self.bytes -= kept.handle.memory().size;
            }
            queue.pop_front();
        }
        Ok(())
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Handle> + '_ {
        self.bytes = 0;
        let all = self.sizes.iter_mut().flat_map(|queue| queue.drain(..));
        all.map(|kept| kept.handle)
    }

    fn of(&mut self, size: usize) -> &mut VecDeque<Kept> {
        &mut self.sizes[(size / self.least).ilog2() as usize]
    }
}
