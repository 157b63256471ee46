//! What keeps a mapping's memory: a handle and its count, taken, released, retained again and given up.

use std::mem;
use std::sync::Arc;

use super::{BackingKind, Mapping};
use crate::access::Access;
use crate::driver::RawHandle;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::identity::{self, Identity};

/// What keeps a mapping's memory.
pub(crate) enum Backing {
    /// One count of a handle, of the mapping's own.
    Owned(RawHandle),
    /// A share of an allocation of the caller's.
    Shared(Arc<Handle>),
    /// The driver alone, until the unmap: the handle was given up.
    GivenUp,
    /// As `GivenUp`, but only for the length of an unmap: if that fails, this handle is taken back.
    Released(RawHandle),
    /// Nothing: the mapping is asleep, and its memory is to be made anew.
    Asleep,
}

impl Mapping {
    /// How the memory is held.
    pub fn backing(&self) -> BackingKind {
        match self.backing {
            Backing::Asleep if !self.gives_up => BackingKind::Owned,
            Backing::Owned(_) => BackingKind::Owned,
            Backing::Shared(_) => BackingKind::Shared,
            Backing::GivenUp | Backing::Released(_) | Backing::Asleep => BackingKind::GivenUp,
        }
    }

    /// The raw handle, where one is held.
    pub(crate) fn raw_handle(&self) -> Option<RawHandle> {
        match &self.backing {
            Backing::Owned(raw) => Some(*raw),
            Backing::Shared(handle) => Some(handle.raw()),
            Backing::GivenUp | Backing::Released(_) | Backing::Asleep => None,
        }
    }

    /// Takes the handle whose count is to be given back, if there is one: the mapping's own, or a share that is the
    /// last. The mapping is then without.
    #[inline]
    pub(crate) fn take_handle(&mut self) -> Option<Handle> {
        match mem::replace(&mut self.backing, Backing::GivenUp) {
            Backing::Owned(raw) => {
                let identity = mem::take(&mut self.identity);
                Some(Handle::created(&self.driver, raw, self.memory(), identity))
            }
            Backing::Shared(share) => Arc::into_inner(share).filter(Handle::is_owned),
            Backing::GivenUp | Backing::Released(_) | Backing::Asleep => None,
        }
    }

    /// Releases the mapping's own handle, or a share that is the last, while the memory is mapped. A share that is not
    /// the last stays.
    #[inline]
    pub(crate) fn release_handle(&mut self) -> Result<()> {
        match &mut self.backing {
            // Nobody else can come by a share of an allocation that only this mapping holds.
            Backing::Shared(share) => Arc::get_mut(share).map_or(Ok(()), Handle::release_count),
            _ => self.release_own_handle(),
        }
    }

    /// Releases the mapping's own handle, while the memory is mapped.
    #[inline]
    pub(crate) fn release_own_handle(&mut self) -> Result<()> {
        if let Backing::Owned(raw) = self.backing {
            self.driver.calls().mem_release(raw, self.size)?;
            self.backing = Backing::Released(raw);
        }
        Ok(())
    }

    /// Takes back the count that `release_handle` released: the driver gives it again for the mapped address. If it
    /// does not, nothing is lost: the driver keeps the memory until the unmap.
    pub(crate) fn retain_handle(&mut self) -> Result<()> {
        let (released, sole_share) = match &mut self.backing {
            Backing::Released(raw) => (*raw, None),
            Backing::Shared(share) => match Arc::get_mut(share).filter(|handle| !handle.is_owned())
            {
                Some(handle) => (handle.raw(), Some(handle)),
                None => return Ok(()),
            },
            Backing::Owned(_) | Backing::GivenUp | Backing::Asleep => return Ok(()),
        };
        let raw = match self.driver.calls().mem_retain(self.address) {
            Ok(raw) => raw,
            Err(error) => {
                let name = sole_share.and_then(|handle| handle.known_identity().cloned());
                if let Some(name) = name {
                    self.hold_identity(&name);
                }
                self.backing = Backing::GivenUp;
                let error = error.contradicting(|| self.is_mapped(released));
                self.quarantined |= error.is_disagreement();
                return Err(error);
            }
        };
        // Whichever it is, its count is to be given back.
        match sole_share {
            Some(handle) => handle.take_count(raw),
            None => self.backing = Backing::Owned(raw),
        }
        if raw == released {
            return Ok(());
        }
        self.quarantined = true;
        Err(Error::disagreement(
            self.is_mapped(released),
            format!("gives {raw:#x} for that address"),
        ))
    }

    fn is_mapped(&self, raw: RawHandle) -> String {
        format!("handle {raw:#x} is mapped at {:#x}", self.address)
    }

    /// Releases the handle for good: from now on the memory lives by being mapped.
    pub(crate) fn give_handle_up(&mut self) -> Result<()> {
        self.gives_up = true;
        self.release_handle()?;
        self.backing = Backing::GivenUp;
        Ok(())
    }

    /// The caller's allocation that backs it, where it is one.
    pub(crate) fn shared_handle(&self) -> Option<&Arc<Handle>> {
        match &self.backing {
            Backing::Shared(handle) => Some(handle),
            _ => None,
        }
    }

    /// What the memory's maker lets others do with it.
    pub(crate) fn offered(&self) -> Access {
        match &self.backing {
            Backing::Shared(handle) => handle.offered(),
            _ => identity::offered(&self.identity),
        }
    }

    /// Whether others may have come by the memory: it was exported, or is held by somebody else here, by a count that
    /// was taken over or retained from the address, say.
    pub(crate) fn is_known_outside(&self) -> bool {
        match self.backing {
            Backing::Owned(raw) => {
                self.identity.get().is_some() || self.driver.known(raw).is_some()
            }
            _ => true,
        }
    }

    /// Holds the memory's name for as long as the memory is mapped, so that it stays the same.
    pub(crate) fn hold_identity(&self, identity: &Identity) {
        self.identity.get_or_init(|| identity.clone());
    }
}
