//! Lanes of sessions that ended, watched for acknowledgements that come late.

use std::collections::VecDeque;

use super::lane::{self, Lane};
use super::slots::SlotRef;

/// How many lanes are watched. The memory of older ones is let go.
const KEPT: usize = 16;

#[derive(Default)]
pub(super) struct Retired(VecDeque<(Lane, Vec<SlotRef>)>);

impl Retired {
    /// A lane, and the holds that were reclaimed from its consumer.
    pub(super) fn add(&mut self, lane: Lane, reclaimed: Vec<SlotRef>) {
        if reclaimed.is_empty() {
            return;
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((lane, reclaimed));
    }

    /// How many of those holds were acknowledged since this was asked last.
    pub(super) fn count_late(&mut self) -> u64 {
        let mut late = 0;
        for (lane, reclaimed) in &mut self.0 {
            reclaimed.retain(|at| {
                let came = lane::entry(lane, at.slot)
                    .acknowledged(at.generation)
                    .is_some();
                late += u64::from(came);
                !came
            });
        }
        self.0.retain(|(_, reclaimed)| !reclaimed.is_empty());
        late
    }
}
