//! The end of a group: that of its members, and of all host memory.

use std::collections::BTreeMap;

use super::report::Unclosed;
use super::{Group, Slot, State};

impl Group {
    /// Closes the members, the last one added first, and gives back all host memory. Members that sleep are not woken:
    /// their addresses are freed, and their contents go.
    ///
    /// Does not wait for work that uses the memory.
    ///
    /// # Errors
    ///
    /// Every failure, and the group with what is left. One failure does not stop the rest. What is left of a member that
    /// sleeps can be resumed, but its contents are gone.
    #[doc(alias = "cuMemAddressFree")]
    pub fn close(mut self) -> Result<(), Box<Unclosed>> {
        let mut failures = Vec::new();
        let mut left = BTreeMap::new();
        while let Some((number, slot)) = self.slots.pop_last() {
            let Slot {
                member,
                tag,
                backup,
                mut state,
            } = slot;
            // Contents go with the close, refused or not: they fit all of the member, and not what may be left.
            if let State::Asleep(contents) = &mut state {
                let blocks = contents.take().map_or_else(Vec::new, |copy| copy.blocks);
                self.pool.hold(blocks);
            }
            if let Err(unclosed) = member.close() {
                let (member, errors) = *unclosed;
                failures.extend(errors);
                let slot = Slot {
                    member,
                    tag,
                    backup,
                    state,
                };
                left.insert(number, slot);
            }
        }
        self.slots = left;
        failures.extend(self.pool.trim().1);
        let mut failures = failures.into_iter();
        match failures.next() {
            None => Ok(()),
            Some(error) => Err(Box::new(Unclosed {
                error,
                further: failures.collect(),
                group: self,
            })),
        }
    }
}
