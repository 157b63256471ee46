//! Suspending: contents to the host, then the memory away.

use super::choice::Chosen;
use super::member::{MemberId, Select};
use super::report::{Incomplete, Suspended};
use super::{Group, State};
use crate::error::Error;
use crate::fence::Fence;

impl Group {
    /// Takes the memory of members away and gives it back to the driver; addresses, shape and rights stay.
    ///
    /// Does not wait for work that uses the memory, which would lose its context: see
    /// [`suspend_after`](Self::suspend_after).
    ///
    /// Contents that are to be kept are copied first, those of all members. If a copy fails, nothing was done. Then the
    /// members go to sleep one after the other, each whole or not at all.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::NoSuchMember`], [`Error::NoSuchTag`], [`Error::AlreadySuspended`] (of a member
    /// that was named), [`Error::Quarantined`], [`Error::Held`], [`Error::Irreplaceable`], [`Error::ForeignDriver`] (of
    /// a member that was swapped since it was added). [`Error::NoHostMemory`], or a driver failure: then `done` and `left`
    /// say which members sleep.
    #[doc(alias = "cuMemUnmap")]
    #[doc(alias = "cuMemRelease")]
    pub fn suspend<'s>(
        &mut self,
        which: impl Into<Select<'s>>,
    ) -> Result<Suspended, Box<Incomplete<Suspended>>> {
        let (numbers, already) = self.to_suspend(which.into())?;
        self.put_to_sleep(&numbers, already)
    }

    /// [`suspend`](Self::suspend), once the fence is passed.
    ///
    /// # Errors
    ///
    /// As `suspend`, whose checks come before the wait; [`Error::DeadlinePassed`], [`Error::WaitFailed`] or a driver
    /// failure of the wait itself: then nothing was done.
    #[doc(alias = "cuMemUnmap")]
    pub fn suspend_after<'s>(
        &mut self,
        which: impl Into<Select<'s>>,
        fence: Fence<'_>,
    ) -> Result<Suspended, Box<Incomplete<Suspended>>> {
        let (numbers, already) = self.to_suspend(which.into())?;
        if let Err(error) = fence.wait() {
            return Err(Incomplete::before(error, self.ids(&numbers)));
        }
        self.put_to_sleep(&numbers, already)
    }

    /// The members that are to be suspended and can be, and those that are already.
    fn to_suspend(&self, which: Select<'_>) -> Result<Chosen, Box<Incomplete<Suspended>>> {
        let checked = self.chosen(which, true).and_then(|(numbers, already)| {
            let mut slots = numbers.iter().filter_map(|number| self.slots.get(number));
            slots.try_for_each(|slot| {
                let reservation = slot.member.reservation();
                // Since it was added, `get_mut` may have been used to swap it for one of another driver.
                if !reservation.driver().is_same(&self.driver) {
                    return Err(Error::ForeignDriver);
                }
                reservation.can_be_taken_down(&slot.tag)
            })?;
            Ok((numbers, already))
        });
        checked.map_err(|error| Incomplete::before(error, Vec::new()))
    }

    fn put_to_sleep(
        &mut self,
        numbers: &[u64],
        already: Vec<MemberId>,
    ) -> Result<Suspended, Box<Incomplete<Suspended>>> {
        let mut done = Suspended {
            already,
            ..Suspended::default()
        };
        let mut outgoing = match self.copy_out(numbers) {
            Ok(outgoing) => outgoing,
            Err(error) => {
                let left = self.ids(numbers);
                return Err(Box::new(Incomplete { error, done, left }));
            }
        };
        for (at, number) in numbers.iter().enumerate() {
            let Some(slot) = self.slots.get_mut(number) else {
                continue;
            };
            let let_go = match slot.member.take_down() {
                Ok(let_go) => let_go,
                Err(error) => {
                    let error = self.take_back(outgoing, error);
                    let left = self.ids(&numbers[at..]);
                    return Err(Box::new(Incomplete { error, done, left }));
                }
            };
            let copy = outgoing.remove(number).map(|one| one.copy.settled());
            done.given_back += let_go.given_back;
            done.still_held += let_go.still_held;
            done.copied += copy.as_ref().map_or(0, |copy| copy.size);
            slot.state = State::Asleep(copy);
            done.members.push(self.id_of(*number));
        }
        Ok(done)
    }
}
