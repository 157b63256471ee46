//! What lies beneath the books: the process's own memory, or more books.

use std::ops::Range;
use std::os::fd::{OwnedFd, RawFd};

use super::super::place::{Place, Rights};
use super::ledger::Ledger;
use super::memory::Memory;
use super::store::{End, Identity, Origin, Segment, Shared, Store};
use super::Answer;

#[derive(Debug)]
pub(super) enum Backend {
    Memory(Memory),
    Ledger(Ledger),
}

impl Backend {
    pub(super) fn new(ledger_only: bool) -> Self {
        if ledger_only {
            Backend::Ledger(Ledger::default())
        } else {
            Backend::Memory(Memory::default())
        }
    }

    /// Addresses that are ours from the start.
    pub(super) fn first_addresses(&self) -> Range<u64> {
        match self {
            Backend::Memory(_) => 0..0,
            Backend::Ledger(_) => Ledger::ADDRESSES,
        }
    }

    /// At least so many more addresses.
    pub(super) fn grow(&mut self, bytes: u64) -> Option<Range<u64>> {
        match self {
            Backend::Memory(memory) => memory.arenas.grow(bytes),
            Backend::Ledger(_) => None,
        }
    }

    /// Makes every address of the range ours: the pieces that were not yet, or `None` if somebody else has one.
    pub(super) fn claim(&mut self, range: Range<u64>) -> Option<Vec<Range<u64>>> {
        match self {
            Backend::Memory(memory) => memory.arenas.claim(range),
            Backend::Ledger(_) => {
                let all = Ledger::ADDRESSES;
                (all.start <= range.start && range.end <= all.end).then(Vec::new)
            }
        }
    }

    /// Hands back addresses got for one reservation alone, once all of them are free again: those that are no longer
    /// ours.
    pub(super) fn shrink(&mut self, free: &Range<u64>) -> Vec<Range<u64>> {
        match self {
            Backend::Memory(memory) => memory.arenas.shrink(free),
            Backend::Ledger(_) => Vec::new(),
        }
    }

    /// Memory that reads zero.
    pub(super) fn create(
        &mut self,
        place: Place,
        origin: Origin,
        size: u64,
        exportable: bool,
    ) -> Answer<Store> {
        match self {
            Backend::Memory(_) if exportable => Memory::create_own(origin, size),
            Backend::Memory(memory) => memory.create_piece(place, size),
            Backend::Ledger(ledger) => Ok(ledger.create()),
        }
    }

    pub(super) fn destroy(&mut self, store: Store, size: u64) {
        match self {
            Backend::Memory(memory) => memory.destroy(store, size),
            Backend::Ledger(ledger) => ledger.destroy(&store),
        }
    }

    pub(super) fn map(&mut self, address: u64, size: u64, store: &Store) -> Answer {
        match self {
            Backend::Memory(memory) => memory.map(address, size, store),
            Backend::Ledger(_) => Ok(()),
        }
    }

    pub(super) fn unmap(&mut self, address: u64, size: u64) -> Answer {
        match self {
            Backend::Memory(memory) => memory.unmap(address, size),
            Backend::Ledger(_) => Ok(()),
        }
    }

    pub(super) fn protect(&mut self, address: u64, size: u64, rights: Rights) -> Answer {
        match self {
            Backend::Memory(memory) => memory.protect(address, size, rights),
            Backend::Ledger(_) => Ok(()),
        }
    }

    /// Copies `size` bytes. Both ends were checked, and reach at least so far.
    pub(super) fn copy(&mut self, to: &End, from: &End, size: u64) {
        match self {
            Backend::Memory(memory) => memory.copy(to, from, size),
            Backend::Ledger(ledger) => ledger.copy(to, from, size),
        }
    }

    /// Sets every byte of the segments.
    pub(super) fn fill(&mut self, to: &[Segment], value: u8) {
        match self {
            Backend::Memory(memory) => memory.fill(to, value),
            Backend::Ledger(ledger) => ledger.fill(to, value),
        }
    }

    /// Writes a word, which lies in one segment, as a whole.
    pub(super) fn store(&mut self, to: &[Segment], value: u32) {
        match self {
            Backend::Memory(memory) => memory.store(to, value),
            Backend::Ledger(ledger) => ledger.store(to, value),
        }
    }

    /// A file descriptor that keeps the memory; `None` where there is none to be had.
    pub(super) fn export(&self, store: &Store) -> Option<OwnedFd> {
        match self {
            Backend::Memory(_) => Memory::export(store),
            Backend::Ledger(_) => None,
        }
    }

    pub(super) fn import(&self, fd: RawFd) -> Option<Shared> {
        match self {
            Backend::Memory(_) => Memory::import(fd),
            Backend::Ledger(_) => None,
        }
    }

    /// Memory that another process has open under that path.
    pub(super) fn import_path(&self, path: &str) -> Option<Shared> {
        match self {
            Backend::Memory(_) => Memory::import_path(path),
            Backend::Ledger(_) => None,
        }
    }

    /// Which allocation a store is, to those that can share it.
    pub(super) fn identity(&self, store: &Store) -> Option<Identity> {
        match (self, store) {
            (Backend::Memory(_), Store::Own(fd)) => Memory::identity(fd),
            (Backend::Ledger(ledger), Store::Pages(number)) => Some(ledger.identity(*number)),
            _ => None,
        }
    }

    /// Whether an exported file descriptor, or an import of another simulation, is open anywhere on the machine.
    pub(super) fn shared(&self, store: &Store) -> bool {
        match store {
            Store::Own(fd) => Memory::shared(fd),
            _ => false,
        }
    }
}
