//! One count of one physical handle.

use std::fmt;
use std::sync::OnceLock;

use crate::access::Access;
use crate::driver::{Driver, RawHandle};
use crate::error::Result;
use crate::identity::{self, Identity, Known};
use crate::location::Location;
use crate::props::AllocationProps;
use crate::recipe::{HandleTypes, Recipe};
use crate::report::{self, Leak};

/// How an allocation's handle came to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// Created here.
    Created,
    /// Retained from an address at which it is mapped.
    Retained,
    /// Taken over as a raw handle.
    Raw,
    /// Imported: another process's memory, or an export of one's own.
    Imported,
}

/// What there is to know of memory, to map it.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) size: usize,
    pub(crate) granularity: usize,
    pub(crate) location: Location,
    /// The kinds of sharing it was created for; an import reads as none.
    pub(crate) handle_types: HandleTypes,
    pub(crate) rdma: bool,
    pub(crate) compression: bool,
}

impl Memory {
    pub(crate) fn of(recipe: &Recipe, size: usize, granularity: usize) -> Memory {
        let Recipe {
            location,
            handle_types,
            rdma,
            compression,
        } = *recipe;
        Memory {
            size,
            granularity,
            location,
            handle_types,
            rdma,
            compression,
        }
    }

    /// What memory like this is created from.
    pub(crate) fn recipe(&self) -> Recipe {
        Recipe {
            location: self.location,
            handle_types: self.handle_types,
            rdma: self.rdma,
            compression: self.compression,
        }
    }
}

/// One count of one physical handle. Dropping it releases; nothing else does.
pub(crate) struct Handle {
    driver: Driver,
    raw: RawHandle,
    memory: Memory,
    origin: Origin,
    /// Its name, once somebody asked or it came with one, and with that the rights that it came with.
    identity: OnceLock<Identity>,
    /// Whether the count is still this value's to give back.
    owned: bool,
}

impl Handle {
    pub(crate) fn create(props: &AllocationProps, size: usize) -> Result<Handle> {
        let granularity = props.granularity()?.minimum();
        let raw = props.driver().calls().mem_create(size, props.recipe())?;
        Ok(Handle::created(
            props.driver(),
            raw,
            Memory::of(props.recipe(), size, granularity),
            OnceLock::new(),
        ))
    }

    /// Wraps a count of a handle that was created here.
    #[inline]
    pub(crate) fn created(
        driver: &Driver,
        raw: RawHandle,
        memory: Memory,
        identity: OnceLock<Identity>,
    ) -> Handle {
        let mut handle = Handle::owned(driver, raw, memory, Origin::Created);
        handle.identity = identity;
        handle
    }

    pub(crate) fn owned(driver: &Driver, raw: RawHandle, memory: Memory, origin: Origin) -> Handle {
        Handle {
            driver: driver.clone(),
            raw,
            memory,
            origin,
            identity: OnceLock::new(),
            owned: true,
        }
    }

    /// Wraps a count of memory that another handle here may lead to as well: what is known of it holds for this one. It
    /// gets a name in any case, by which whoever mapped it sees that it is held elsewhere.
    pub(crate) fn recognised(
        driver: &Driver,
        raw: RawHandle,
        memory: Memory,
        origin: Origin,
    ) -> Handle {
        let handle = Handle::owned(driver, raw, memory, origin);
        handle.identity();
        handle
    }

    /// Wraps a count of an import: its name and the rights that came with it, if they were told.
    pub(crate) fn imported(
        driver: &Driver,
        raw: RawHandle,
        memory: Memory,
        known: Option<Known>,
    ) -> Handle {
        let mut handle = Handle::owned(driver, raw, memory, Origin::Imported);
        if let Some(known) = known {
            handle.identity = driver.note_identity(raw, known).into();
        }
        handle
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// What its maker lets others do with it; everything, if nothing else was said.
    pub(crate) fn offered(&self) -> Access {
        identity::offered(&self.identity)
    }

    pub(crate) fn identity(&self) -> &Identity {
        self.identity.get_or_init(|| self.driver.identity(self.raw))
    }

    /// Its name, if somebody asked for it.
    pub(crate) fn known_identity(&self) -> Option<&Identity> {
        self.identity.get()
    }

    pub(crate) fn raw(&self) -> RawHandle {
        self.raw
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Whether there is a count to give back.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned
    }

    /// Releases the count and stays, for it to be [taken back](Handle::take_count).
    pub(crate) fn release_count(&mut self) -> Result<()> {
        self.driver
            .calls()
            .mem_release(self.raw, self.memory.size)?;
        self.owned = false;
        Ok(())
    }

    /// Says what memory it is, where that was not known when the count was taken.
    pub(crate) fn describe(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// Takes over a count of the same memory, in place of the one released.
    pub(crate) fn take_count(&mut self, raw: RawHandle) {
        self.raw = raw;
        self.owned = true;
    }

    /// Gives the count up without releasing it: somebody else has it now.
    pub(crate) fn give_up(&mut self) -> RawHandle {
        self.owned = false;
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // Never panics; a failure is reported, and the count is leaked with its memory.
        if let Err(error) = self.driver.calls().mem_release(self.raw, self.memory.size) {
            report::leaked(Leak::Memory {
                size: self.memory.size,
                error,
            });
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("raw", &format_args!("{:#x}", self.raw))
            .field("size", &self.memory.size)
            .field("location", &self.memory.location)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
