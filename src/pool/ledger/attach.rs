//! Consumers that come and go.

use super::Ledger;
use crate::pool::entry::Taken;
use crate::pool::lane::{self, Lane};
use crate::sync::modelled::lock;

impl Ledger {
    /// A consumer attaches: everything that is held for it is offered through its lane. `false` where the rank is taken.
    pub(in crate::pool) fn attach(&self, rank: usize, lane: &Lane) -> bool {
        let mut lanes = lock(&self.lanes);
        if lanes.of[rank].is_some() {
            return false;
        }
        for slot in self.slots.used() {
            self.slots.each_holder(slot, |at, holder| {
                if holder == rank {
                    lane::entry(lane, slot).offer(at.generation);
                }
            });
        }
        lanes.set(rank, Some(lane.clone()));
        if lanes.gone.contains(rank) {
            lanes.gone.remove(rank);
            lanes.returned.insert(rank);
        }
        true
    }

    /// A consumer is gone: what it acknowledged counts, and everything else that it holds is reclaimed.
    pub(in crate::pool) fn detach(&self, rank: usize) {
        self.leave(rank, true);
    }

    /// A consumer did not get through attaching. Unless it was attached before, everything that it did not open is still
    /// held for the one that attaches next.
    pub(in crate::pool) fn withdraw(&self, rank: usize) {
        self.leave(rank, false);
    }

    fn leave(&self, rank: usize, was_attached: bool) {
        let (lane, keeps) = {
            let mut lanes = lock(&self.lanes);
            let Some(lane) = lanes.of[rank].clone() else {
                return;
            };
            let keeps = !was_attached && !lanes.returned.contains(rank);
            if !keeps {
                self.revoke_all(rank, &lane);
            }
            lanes.set(rank, None);
            lanes.returned.remove(rank);
            if !keeps {
                lanes.gone.insert(rank);
            }
            (lane, keeps)
        };
        let mut reclaimed = Vec::new();
        for slot in self.slots.used() {
            self.slots.each_holder(slot, |at, holder| {
                if holder != rank {
                    return;
                }
                let entry = lane::entry(&lane, slot);
                match entry.acknowledged(at.generation) {
                    Some(scope) => drop(self.acknowledged(at, rank, scope)),
                    // Published since the lane went, or not opened, which it never can be now.
                    None if keeps
                        && (!entry.is_offered(at.generation)
                            || entry.take(at.generation, Taken::Cancelled)) => {}
                    None => {
                        self.end_hold(at, rank, || {
                            reclaimed.push(at);
                            self.tally.reclaimed();
                        });
                    }
                }
            });
        }
        lock(&self.retired).add(lane, reclaimed);
    }

    /// Tells a consumer that may still run that it holds nothing any more. While its lane is in place nobody else ends
    /// what it has open, so that nothing that it reads is overwritten before.
    fn revoke_all(&self, rank: usize, lane: &Lane) {
        for slot in self.slots.used() {
            self.slots.each_holder(slot, |at, holder| {
                let entry = lane::entry(lane, slot);
                if holder == rank && !entry.take(at.generation, Taken::Evicted) {
                    entry.revoke(at.generation);
                }
            });
        }
    }

    /// Counts acknowledgements that came after their holds had been reclaimed.
    pub(in crate::pool) fn count_late(&self) {
        let late = lock(&self.retired).count_late();
        self.tally.late(late);
    }

    pub(in crate::pool) fn is_attached(&self, rank: usize) -> bool {
        self.lanes()[rank].is_some()
    }
}
