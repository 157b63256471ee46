//! Which members an operation changes.

use super::member::{MemberId, Select};
use super::Group;
use crate::error::{Error, Result};

/// The members that an operation changes, and those that are so already.
pub(super) type Chosen = (Vec<u64>, Vec<MemberId>);

impl Group {
    /// The chosen members that are to change, and those that need not: awake ones change when they are to be suspended.
    pub(super) fn chosen(&self, which: Select<'_>, to_suspend: bool) -> Result<Chosen> {
        let numbers: Vec<u64> = match which {
            Select::All => self.slots.keys().copied().collect(),
            Select::Tag(tag) => self.tagged(tag)?,
            Select::Members(members) => self.named(members, to_suspend)?,
        };
        let changes = |number: &u64| {
            let slot = self.slots.get(number);
            slot.is_some_and(|slot| slot.is_asleep() != to_suspend)
        };
        let (change, already): (Vec<u64>, Vec<u64>) = numbers.into_iter().partition(changes);
        Ok((change, self.ids(&already)))
    }

    fn tagged(&self, tag: &str) -> Result<Vec<u64>> {
        let tagged = self.slots.iter().filter(|(_, slot)| slot.tag == tag);
        let numbers: Vec<u64> = tagged.map(|(number, _)| *number).collect();
        if numbers.is_empty() {
            return Err(Error::NoSuchTag { tag: tag.into() });
        }
        Ok(numbers)
    }

    /// Members that are meant one by one: each has to be in the other state.
    fn named(&self, members: &[MemberId], to_suspend: bool) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for member in members {
            let slot = self.slot(*member)?;
            if slot.is_asleep() != to_suspend {
                numbers.push(member.number);
                continue;
            }
            let (tag, base, size) = slot.place();
            return Err(if to_suspend {
                Error::AlreadySuspended { tag, base, size }
            } else {
                Error::NotSuspended { tag, base, size }
            });
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }
}
