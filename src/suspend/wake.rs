//! Resuming: memory back where it was, then the contents.

use std::mem;

use super::host::HostCopy;
use super::lane::Lanes;
use super::member::{MemberId, Select};
use super::report::{Incomplete, Resumed};
use super::{Group, Slot, State};
use crate::access::Access;
use crate::error::{Error, Result};
use crate::reservation::{Reservation, Segment, Waking};

impl Group {
    /// Puts memory back where members had it, with the same rights, and contents that were kept.
    ///
    /// Each member wakes whole or not at all, one after the other, in the order in which they were added. What was
    /// created for a member that could not be woken is given back, and its contents stay on the host, so that it can be
    /// resumed again, after memory has become free, say.
    ///
    /// Host memory that held contents is given back to the system, unless [it is kept](Self::keep_host_memory). What
    /// the driver does not let go of it stays with the group, counted in [`host_bytes`](Self::host_bytes), until
    /// [`trim`](Self::trim) or the end of the group.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::NoSuchMember`], [`Error::NoSuchTag`], [`Error::NotSuspended`] (of a member that
    /// was named). [`Error::OutOfMemory`] or another driver failure: then `left` says which members still sleep.
    #[doc(alias = "cuMemCreate")]
    #[doc(alias = "cuMemMap")]
    #[doc(alias = "cuMemSetAccess")]
    pub fn resume<'s>(
        &mut self,
        which: impl Into<Select<'s>>,
    ) -> Result<Resumed, Box<Incomplete<Resumed>>> {
        let (mut numbers, already) = self
            .chosen(which.into(), false)
            .map_err(|error| Incomplete::before(error, Vec::new()))?;
        let Progress {
            mut woken,
            filled,
            mut failure,
        } = self.put_back(&numbers);
        for number in filled {
            let member = self.member(number);
            match member.map_or(Ok(()), Reservation::grant_after_copies) {
                Ok(()) => woken.push(number),
                Err(error) => {
                    let error = error.with_undo(self.lay_down(number));
                    failure = Some(together(failure.take(), error));
                }
            }
        }
        woken.sort_unstable();
        let done = self.note_awake(&woken, already);
        match failure {
            None => Ok(done),
            Some(error) => {
                numbers.retain(|number| !woken.contains(number));
                let left = self.ids(&numbers);
                Err(Box::new(Incomplete { error, done, left }))
            }
        }
    }

    /// Puts memory back, member by member, until one fails, and waits for all copies. What failed is taken out again.
    fn put_back(&mut self, numbers: &[u64]) -> Progress {
        let driver = self.driver.clone();
        let mut lanes = Lanes::new(&driver);
        let mut progress = Progress::default();
        let mut not_woken = Vec::new();
        for number in numbers {
            let Some(slot) = self.slots.get_mut(number) else {
                continue;
            };
            match slot.put_back(self.pool.piece, &mut lanes) {
                Ok(true) => progress.filled.push(*number),
                Ok(false) => progress.woken.push(*number),
                Err(error) => {
                    not_woken.push(*number);
                    progress.failure = Some(error);
                    break;
                }
            }
        }
        // From here on nothing is copied any more, so that memory can be taken away again.
        if let Err(error) = lanes.end() {
            // Which copies failed is not known: none of them counts.
            progress.failure = Some(together(progress.failure, error));
            not_woken.extend(progress.filled.drain(..).rev());
        }
        if let Some(error) = progress.failure.take() {
            let undo = not_woken.iter().flat_map(|number| self.lay_down(*number));
            progress.failure = Some(error.with_undo(undo.collect()));
        }
        progress
    }

    /// Members that are awake again, whose host memory is no longer needed.
    fn note_awake(&mut self, woken: &[u64], already: Vec<MemberId>) -> Resumed {
        let mut done = Resumed {
            already,
            members: self.ids(woken),
            ..Resumed::default()
        };
        for number in woken {
            let Some(slot) = self.slots.get_mut(number) else {
                continue;
            };
            done.created += slot.member.reservation().own_bytes();
            if let State::Asleep(Some(copy)) = mem::replace(&mut slot.state, State::Awake) {
                done.copied += copy.size;
                self.pool.done_with(copy.blocks);
            }
        }
        done
    }

    /// Takes out again what was put back of a member.
    fn lay_down(&mut self, number: u64) -> Vec<Error> {
        self.member_mut(number)
            .map_or_else(Vec::new, Reservation::lay_down)
    }
}

/// How far a resume has come.
#[derive(Default)]
struct Progress {
    /// Members that are whole again.
    woken: Vec<u64>,
    /// Members whose contents are back, and whose rights may still be those of the copies.
    filled: Vec<u64>,
    failure: Option<Error>,
}

/// The first failure, with a later one attached.
fn together(first: Option<Error>, later: Error) -> Error {
    match first {
        None => later,
        Some(first) => first.with_undo(vec![later]),
    }
}

impl Slot {
    /// Puts the memory back, and enqueues the copies to it; gives whether there are any. After a failure a part of it
    /// is there.
    fn put_back(&mut self, piece: usize, lanes: &mut Lanes<'_>) -> Result<bool> {
        let State::Asleep(copy) = &self.state else {
            return Ok(false);
        };
        let member = self.member.reservation_mut();
        let Some(copy) = copy else {
            let nothing = |_: &_, _| Ok(());
            return member
                .put_back(usize::MAX, Waking::Empty, nothing)
                .map(|()| false);
        };
        let mut position = 0;
        member.put_back(piece, Waking::Filled, |member, range| {
            let segments = member.segments(range, Access::ReadWrite);
            fill(lanes, copy, position, &segments)?;
            position += segments.iter().map(|one| one.size).sum::<usize>();
            Ok(())
        })?;
        Ok(true)
    }
}

fn fill(
    lanes: &mut Lanes<'_>,
    copy: &HostCopy,
    position: usize,
    segments: &[Segment],
) -> Result<()> {
    for piece in copy.cut(position, segments) {
        let Some(pages) = copy.blocks[piece.block].pages() else {
            continue;
        };
        let segment = piece.segment;
        lanes.enqueue(segment.device, |calls, stream| {
            let from = (pages, piece.at);
            calls.enqueue_to_device(segment.address, from, segment.size, stream)
        })?;
    }
    Ok(())
}
