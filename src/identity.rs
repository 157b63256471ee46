//! Which allocation is which: a name that is told to other processes, and the rights that came with it from them.
//!
//! A handle's value will not do: the driver gives it to other memory when the first is gone. A name is given when it is
//! first asked for, and is held by whatever holds the memory in this process (an allocation, a mapping). While one of
//! them lives, the value means that memory and nothing else, so that whoever else comes by it gets the same name.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::access::Access;
use crate::fork;

/// Names one allocation, among those of every process: the same for each export of it, and kept by its imports.
///
/// Says nothing of who made it, nor of where; it is for telling allocations apart and for finding one again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId([u8; 16]);

impl AllocationId {
    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        AllocationId(bytes)
    }

    /// Its bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Whether this process gave the id: an import of such memory is one of this process's own exports.
    pub fn is_of_this_process(self) -> bool {
        self.0[..8] == nonce().to_le_bytes()
    }

    fn fresh() -> AllocationId {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        let number = GIVEN.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&nonce().to_le_bytes());
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        AllocationId(bytes)
    }
}

/// What tells this process from every other. A forked child has another one than its parent.
fn nonce() -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    let keys = KEYS.get_or_init(RandomState::new);
    keys.hash_one((std::process::id(), fork::current()))
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllocationId({self})")
    }
}

/// What this process knows of memory that the driver does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) id: AllocationId,
    /// What its maker lets others do with it.
    pub(crate) offered: Access,
}

/// What is known, held by what holds the memory.
pub(crate) type Identity = Arc<Known>;

/// What the memory's maker lets others do with it: everything, where nothing else is known.
pub(crate) fn offered(identity: &OnceLock<Identity>) -> Access {
    identity
        .get()
        .map_or(Access::ReadWrite, |known| known.offered)
}

/// What is known so far, by the handle's value.
#[derive(Default)]
pub(crate) struct Identities {
    known: HashMap<u64, Weak<Known>>,
    /// Forgotten names are cleared away when there are more entries than this.
    sweep_at: usize,
}

impl Identities {
    /// The name of the memory that the handle leads to. The caller holds that memory, and will hold the name as long.
    pub(crate) fn of(&mut self, raw: u64) -> Identity {
        self.known(raw).unwrap_or_else(|| {
            let known = Known {
                id: AllocationId::fresh(),
                offered: Access::ReadWrite,
            };
            self.note(raw, known)
        })
    }

    /// What is known of the memory, if it was named or imported with a name, and is still held.
    pub(crate) fn known(&self, raw: u64) -> Option<Identity> {
        self.known.get(&raw).and_then(Weak::upgrade)
    }

    /// Notes the name that the memory was imported under, and the rights.
    pub(crate) fn note(&mut self, raw: u64, known: Known) -> Identity {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, held| held.strong_count() > 0);
            self.sweep_at = 2 * self.known.len().max(32);
        }
        let identity = Arc::new(known);
        self.known.insert(raw, Arc::downgrade(&identity));
        identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_name_while_it_is_held() {
        let mut identities = Identities::default();
        let first = identities.of(7);
        assert_eq!(identities.of(7), first);
        assert_ne!(identities.of(8), first);
        let id = first.id;
        drop(first);
        assert_ne!(
            identities.of(7).id,
            id,
            "the value may be other memory's by now"
        );
    }

    #[test]
    fn what_an_import_came_with_is_known_while_it_is_held() {
        let mut identities = Identities::default();
        let told = Known {
            id: AllocationId::from_bytes([9; 16]),
            offered: Access::Read,
        };
        let held = identities.note(7, told);
        assert_eq!(identities.known(7).as_deref(), Some(&told));
        assert_eq!(identities.known(8), None, "never named");
        drop(held);
        assert_eq!(identities.known(7), None);
    }

    #[test]
    fn names_that_nobody_holds_are_cleared_away() {
        let mut identities = Identities::default();
        let held = identities.of(0);
        (1..10_000).for_each(|raw| drop(identities.of(raw)));
        assert!(
            identities.known.len() <= 64,
            "{} are known",
            identities.known.len()
        );
        assert_eq!(identities.of(0), held);
    }

    #[test]
    fn a_name_tells_its_process() {
        assert!(AllocationId::fresh().is_of_this_process());
        assert!(!AllocationId::from_bytes([9; 16]).is_of_this_process());
    }
}
