//! Taking the memory out of a reservation and putting other memory in its place, at the same addresses, in the same
//! shape, with the same rights.
//!
//! The mappings stay in the table without memory, so that their ids, their ranges and their rights stay what they were.
//! Memory that was made for a mapping goes and is made anew; a caller's allocation is unmapped, kept, and mapped again.
//! While it is down, a reservation is lent to nobody: see [`suspend`](crate::suspend).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::table::Span;
use super::Reservation;
use crate::error::{Error, Result};
use crate::mapping::Mapping;

/// What became of the memory that was taken out, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LetGo {
    /// The last count that is known here went.
    pub(crate) given_back: usize,
    /// A caller's allocation has it still, or an export may.
    pub(crate) still_held: usize,
}

/// What is to be done with memory before it is anybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waking {
    /// Nothing: it reads as zero.
    Empty,
    /// It is written to by copies.
    Filled,
}

impl Reservation {
    /// Whether the memory can be taken out at all, as the member with this tag. No driver call is made.
    pub(crate) fn can_be_taken_down(&self, tag: &str) -> Result<()> {
        for mapping in self.mappings() {
            if mapping.is_quarantined() {
                return Err(Error::Quarantined {
                    mapping: mapping.range(),
                });
            }
            if mapping.is_held() {
                return Err(Error::Held {
                    tag: tag.into(),
                    mapping: mapping.range(),
                });
            }
            if mapping.is_irreplaceable() {
                return Err(Error::Irreplaceable {
                    mapping: mapping.range(),
                });
            }
        }
        Ok(())
    }

    /// Bytes of memory that was made for its mappings, and goes when it is taken down.
    pub(crate) fn own_bytes(&self) -> usize {
        let own = self.mappings().filter(|mapping| mapping.is_own());
        own.map(Mapping::size).sum()
    }

    /// Takes all memory out; all of it, or after a driver failure none.
    ///
    /// The handles are released first, which frees nothing and can be taken back, and all is unmapped last, by one call
    /// from the first mapping to the last: the driver passes over the holes between them.
    pub(crate) fn take_down(&mut self) -> Result<LetGo> {
        let Some(hull) = self.hull(&(0..self.size)) else {
            return Ok(LetGo::default());
        };
        let let_go = self.would_let_go();
        self.release_and_unmap(hull, Mapping::release_own_handle)?;
        self.table.iter_mut().for_each(Mapping::fall_asleep);
        Ok(let_go)
    }

    /// Puts memory back where it was taken out, in pieces of about this many bytes: creates, maps, grants, and then
    /// hands each piece over, as a range of offsets.
    ///
    /// After a failure a part of it is there; [`lay_down`](Self::lay_down) takes it out again, once nothing copies to it
    /// any more.
    pub(crate) fn put_back(
        &mut self,
        piece: usize,
        waking: Waking,
        mut ready: impl FnMut(&Reservation, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        // What an earlier failure could not take out again is in the way.
        let mut left = self.lay_down();
        for handle in std::mem::take(&mut self.stuck) {
            left.extend(self.release(handle).err());
        }
        Error::first_of(left)?;
        let mut next = self.table.first_from(0);
        while let Some(Span { start, .. }) = next {
            let (mut bytes, mut end) = (0, start);
            while let Some(span) = next.filter(|_| bytes < piece) {
                if let Some(mapping) = self.table.at_mut(span) {
                    mapping.wake()?;
                    bytes += mapping.size();
                }
                end = span.end;
                next = self.table.first_from(span.end);
            }
            let range = start * self.unit..end * self.unit;
            self.grant_again(range.clone(), waking)?;
            ready(self, range)?;
        }
        Ok(())
    }

    /// Takes out again what [`put_back`](Self::put_back) has put back, in reverse, and gives what the driver refused.
    /// That stays here, as if in a mapping's quarantine, and is tried again by the next `put_back` or by `close`.
    pub(crate) fn lay_down(&mut self) -> Vec<Error> {
        let mut failures = Vec::new();
        let mut offsets: Vec<usize> = self.mappings().map(Mapping::offset).collect();
        while let Some(offset) = offsets.pop() {
            let Some(mapping) = self.table.get_mut(offset / self.unit) else {
                continue;
            };
            match mapping.lie_down() {
                Ok(None) => {}
                Ok(Some(handle)) => failures.extend(self.release(handle).err()),
                Err(error) => failures.push(error),
            }
        }
        failures
    }

    fn would_let_go(&self) -> LetGo {
        let mut let_go = LetGo::default();
        let mut seen = HashSet::new();
        for mapping in self.mappings() {
            match mapping.shared_handle() {
                // Mirrors are one memory.
                Some(share) if !seen.insert(Arc::as_ptr(share)) => {}
                Some(_) => let_go.still_held += mapping.size(),
                None if mapping.was_exported() => let_go.still_held += mapping.size(),
                None => let_go.given_back += mapping.size(),
            }
        }
        let_go
    }
}
