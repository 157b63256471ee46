//! Suspending: contents to the host, then the memory away.

use super::choice::Chosen;
use super::member::{Backup, MemberId, Select};
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
        let kept: Vec<u64> = numbers
            .iter()
            .copied()
            .filter(|number| self.keeps(*number))
            .collect();
        let mut outgoing = match self.copy_out(&kept) {
            Ok(outgoing) => outgoing,
            Err(error) => {
                let left = self.ids(numbers);
                return Err(Box::new(Incomplete { error, done, left }));
            }
        };
        for (at, number) in numbers.iter().enumerate() {
            let slot = self.slots.get_mut(number);
            let taken = slot.map(|slot| slot.member.take_down());
            match taken {
                Some(Ok(let_go)) => {
                    let is_it = |one: &super::copy_out::Outgoing| one.number == *number;
                    let copy = outgoing
                        .iter()
                        .position(is_it)
                        .map(|at| outgoing.remove(at).copy.settled());
                    done.members.push(self.id_of(*number));
                    done.given_back += let_go.given_back;
                    done.still_held += let_go.still_held;
                    done.copied += copy.as_ref().map_or(0, |copy| copy.size);
                    self.set_state(*number, State::Asleep(copy));
                }
                Some(Err(error)) => {
                    let error = self.take_back(outgoing, error);
                    let left = self.ids(&numbers[at..]);
                    return Err(Box::new(Incomplete { error, done, left }));
                }
                None => {}
            }
        }
        Ok(done)
    }

    fn keeps(&self, number: u64) -> bool {
        let slot = self.slots.get(&number);
        slot.is_some_and(|slot| slot.backup == Backup::Host)
    }
}
