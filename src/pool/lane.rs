//! The control words of one session.

use std::sync::Arc;

use super::entry::Entry;

/// An entry for each slot.
pub(super) type Lane = Arc<dyn AsRef<[Entry]> + Send + Sync>;

/// The words of a slot.
pub(super) fn entry(lane: &Lane, slot: u32) -> &Entry {
    &(**lane).as_ref()[slot as usize]
}
