//! Who holds what, for messages to people.

use super::Ledger;
use crate::pool::lane;
use crate::pool::slots::SlotRef;
use crate::sync::modelled::atomic::Ordering;

/// One consumer's hold on one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct Hold {
    pub(in crate::pool) at: SlotRef,
    pub(in crate::pool) rank: usize,
    /// Nanoseconds since the pool was made.
    pub(in crate::pool) since: u64,
    pub(in crate::pool) length: u64,
    pub(in crate::pool) is_open: bool,
    pub(in crate::pool) is_attached: bool,
}

impl Ledger {
    /// Every hold that there is.
    pub(in crate::pool) fn each_hold(&self, mut each: impl FnMut(Hold)) {
        let lanes = self.lanes();
        for slot in self.slots.used() {
            let about = self.slots.about(slot);
            self.slots.each_holder(slot, |at, rank| {
                let lane = lanes[rank].as_ref();
                each(Hold {
                    at,
                    rank,
                    since: about.published.load(Ordering::Relaxed),
                    length: about.length.load(Ordering::Relaxed),
                    is_open: lane
                        .is_some_and(|lane| lane::entry(lane, slot).is_open(at.generation)),
                    is_attached: lane.is_some(),
                });
            });
        }
    }

    /// The hold that has lasted longest.
    pub(in crate::pool) fn oldest(&self) -> Option<Hold> {
        let mut oldest: Option<Hold> = None;
        self.each_hold(|hold| {
            if oldest.is_none_or(|oldest| hold.since < oldest.since) {
                oldest = Some(hold);
            }
        });
        oldest
    }
}
