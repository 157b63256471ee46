//! A mapping without its memory: what it takes to let the memory go, and to have other memory in its place.

use std::sync::{Arc, OnceLock};

use super::{Backing, Mapping};
use crate::error::Result;
use crate::handle::Handle;

impl Mapping {
    /// Whether the memory is the mapping's alone, so that it can go and other memory can be made in its place. A
    /// caller's allocation cannot: it is unmapped, kept, and mapped again.
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    /// Whether its memory could not be made again: it was somebody else's, and its handle is gone.
    pub(crate) fn is_irreplaceable(&self) -> bool {
        !self.own && self.shared_handle().is_none()
    }

    /// Whether the memory, the mapping's own, is held by an export in this process.
    pub(crate) fn is_held(&self) -> bool {
        let holds = self.identity.get().map_or(0, Arc::strong_count);
        self.own && holds > 1
    }

    /// Whether the memory was ever exported: descriptors of it may be open anywhere.
    pub(crate) fn was_exported(&self) -> bool {
        self.identity.get().is_some()
    }

    /// Notes that its handle was released and its pages unmapped, so that memory of its own is gone, and the memory's
    /// name with it.
    pub(crate) fn fall_asleep(&mut self) {
        self.mapped = false;
        self.quarantined = false;
        if self.own {
            self.backing = Backing::Asleep;
            self.identity = OnceLock::new();
        }
    }

    /// Makes memory like that which is gone, and maps it; a handle that had been given up is given up again. A caller's
    /// allocation is mapped as it is. What was done before a failure stays, for [`lie_down`](Self::lie_down).
    pub(crate) fn wake(&mut self) -> Result<()> {
        if let Backing::Asleep = self.backing {
            let recipe = self.memory().recipe();
            let raw = self.driver.calls().mem_create(self.size, &recipe)?;
            self.backing = Backing::Owned(raw);
        }
        self.map()?;
        if self.own && self.gives_up {
            self.give_handle_up()?;
        }
        Ok(())
    }

    /// Undoes [`wake`](Self::wake), as far as that had come, and hands over the handle that is to be released.
    pub(crate) fn lie_down(&mut self) -> Result<Option<Handle>> {
        if let Err(error) = self.unmap() {
            self.quarantined = true;
            return Err(error);
        }
        let handle = if self.own { self.take_handle() } else { None };
        self.fall_asleep();
        Ok(handle)
    }
}
