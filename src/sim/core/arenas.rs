//! The arenas: inaccessible mappings of the process, out of which all addresses are given.
//!
//! # Safety
//!
//! What is not ours is never replaced: without `MAP_FIXED` the system finds addresses that are free, and with
//! `MAP_FIXED_NOREPLACE` it refuses those that are not. What is unmapped was mapped here.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Range;

/// The arena that is asked for first; halved while the system refuses, as it does under a sanitizer or a resource
/// limit.
const ARENA: u64 = 64 << 30;

/// Start to end, and whether the range stays ours when nothing is left in it.
#[derive(Debug, Default)]
pub(super) struct Arenas(BTreeMap<u64, (u64, bool)>);

impl Arenas {
    /// At least so many more addresses.
    pub(super) fn grow(&mut self, bytes: u64) -> Option<Range<u64>> {
        let mut size = ARENA;
        while size >= bytes {
            if let Some(start) = reserve(None, size) {
                self.0.insert(start, (start + size, true));
                return Some(start..start + size);
            }
            size /= 2;
        }
        let start = reserve(None, bytes)?;
        self.0.insert(start, (start + bytes, false));
        Some(start..start + bytes)
    }

    /// Makes every address of the range ours: the pieces that were not yet, or `None` if somebody else has one.
    pub(super) fn claim(&mut self, range: Range<u64>) -> Option<Vec<Range<u64>>> {
        let mut claimed = Vec::new();
        for gap in self.gaps(range) {
            match reserve(Some(gap.start), gap.end - gap.start) {
                Some(_) => claimed.push(gap),
                None => {
                    claimed.iter().for_each(release);
                    return None;
                }
            }
        }
        for piece in &claimed {
            self.0.insert(piece.start, (piece.end, false));
        }
        Some(claimed)
    }

    /// Unmaps the arenas that lie in a free range, but for those of the ordinary size: what it unmapped.
    pub(super) fn shrink(&mut self, free: &Range<u64>) -> Vec<Range<u64>> {
        let gone: Vec<Range<u64>> = self
            .0
            .range(free.clone())
            .filter(|(_, (end, stays))| !stays && *end <= free.end)
            .map(|(start, (end, _))| *start..*end)
            .collect();
        for arena in &gone {
            self.0.remove(&arena.start);
            release(arena);
        }
        gone
    }

    /// The parts of a range that lie in no arena.
    fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut from = range.start;
        if let Some((_, (end, _))) = self.0.range(..=from).next_back() {
            from = from.max(*end);
        }
        for (start, (end, _)) in self.0.range(from..range.end.max(from)) {
            if from < *start {
                gaps.push(from..*start);
            }
            from = *end;
        }
        if from < range.end {
            gaps.push(from..range.end);
        }
        gaps
    }
}

impl Drop for Arenas {
    fn drop(&mut self) {
        for (start, (end, _)) in &self.0 {
            release(&(*start..*end));
        }
    }
}

/// Maps inaccessible addresses, where asked or wherever the system likes.
fn reserve(at: Option<u64>, size: u64) -> Option<u64> {
    let (address, fixed) = match at {
        Some(address) => (address, libc::MAP_FIXED_NOREPLACE),
        None => (0, 0),
    };
    // SAFETY: without MAP_FIXED nothing that exists is replaced.
    let got = unsafe { inaccessible(address, size, fixed) };
    if got == libc::MAP_FAILED {
        return None;
    }
    let got = got as u64;
    if at.is_some_and(|address| address != got) {
        // A kernel that does not know MAP_FIXED_NOREPLACE takes the address as a hint.
        release(&(got..got + size));
        return None;
    }
    Some(got)
}

/// Maps addresses that cannot be touched and cost nothing.
///
/// # Safety
///
/// With `MAP_FIXED` the range must lie in the arenas.
pub(super) unsafe fn inaccessible(
    address: u64,
    size: u64,
    fixed: libc::c_int,
) -> *mut libc::c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    let at = address as *mut libc::c_void;
    // SAFETY: nothing is replaced but what the caller vouches for.
    unsafe { libc::mmap(at, size as usize, libc::PROT_NONE, flags, -1, 0) }
}

fn release(range: &Range<u64>) {
    let at = range.start as *mut libc::c_void;
    // SAFETY: the range was mapped by `reserve`, and is used no more. Failure leaves addresses that nobody uses.
    unsafe { libc::munmap(at, (range.end - range.start) as usize) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_others_are_not_claimed() {
        let mut arenas = Arenas::default();
        let theirs = Box::new([0u8; 8192]);
        let page = (theirs.as_ptr() as u64) & !4095;
        assert_eq!(arenas.claim(page..page + 4096), None);
        assert!(arenas.0.is_empty());
    }

    #[test]
    fn claims_fill_the_gaps_between_arenas() {
        let mut arenas = Arenas::default();
        let around = arenas.grow(ARENA * 2).expect("addresses");
        assert_eq!(arenas.shrink(&around), std::slice::from_ref(&around));
        let middle = around.start + (1 << 30)..around.start + (2 << 30);
        assert_eq!(arenas.claim(middle.clone()), Some(vec![middle.clone()]));
        let all = around.start..around.start + (3 << 30);
        let pieces = arenas.claim(all.clone()).expect("free a moment ago");
        assert_eq!(pieces, [all.start..middle.start, middle.end..all.end]);
        assert_eq!(arenas.claim(all), Some(vec![]));
    }
}
