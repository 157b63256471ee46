//! What was done, and what was not.

use std::fmt;

use super::member::MemberId;
use super::Group;
use crate::bytes::Bytes;
use crate::error::Error;

/// What was suspended. Sizes are bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Suspended {
    /// The members that were put to sleep, in the order in which they were added.
    pub members: Vec<MemberId>,
    /// The members that were asleep before, and were passed over.
    pub already: Vec<MemberId>,
    /// Memory that went: its mappings and all counts of it that this crate knows of are gone.
    pub given_back: usize,
    /// Memory that was taken out but may be there still: a caller's allocation that was mapped (counted once in each
    /// member, however often it was), and memory that was ever exported, which open descriptors and imports keep.
    /// Whether any is open is not known; if none is, it went like the rest. Memory that was exported by its address
    /// counts here only where that is known still: see [what holds the memory](super#what-holds-the-memory-all-the-same).
    pub still_held: usize,
    /// Contents that were copied to the host.
    pub copied: usize,
}

/// What was resumed. Sizes are bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resumed {
    /// The members that were woken, in the order in which they were added.
    pub members: Vec<MemberId>,
    /// The members that were awake before, and were passed over.
    pub already: Vec<MemberId>,
    /// Memory that was created.
    pub created: usize,
    /// Contents that were copied back from the host.
    pub copied: usize,
}

/// A group's operation came to an end before all was done.
///
/// Each member is either done or as it was before: [`done`](Self::done) says which are, [`left`](Self::left) which are
/// not, and the operation can be called again for those.
#[derive(Debug)]
#[non_exhaustive]
pub struct Incomplete<R> {
    /// What went wrong.
    pub error: Error,
    /// What was done before.
    pub done: R,
    /// The members that were chosen and are as they were. Empty where the operation was refused before any driver call:
    /// then nothing was done.
    pub left: Vec<MemberId>,
}

impl<R: Default> Incomplete<R> {
    /// Nothing was done.
    pub(super) fn before(error: Error, left: Vec<MemberId>) -> Box<Self> {
        Box::new(Incomplete {
            error,
            done: R::default(),
            left,
        })
    }
}

/// The error alone, for `?`: see [`Incomplete::into_error`].
impl<R> From<Box<Incomplete<R>>> for Error {
    fn from(incomplete: Box<Incomplete<R>>) -> Error {
        incomplete.into_error()
    }
}

impl<R> Incomplete<R> {
    /// The error alone, for a caller that looks at the group itself for the rest.
    pub fn into_error(self) -> Error {
        self.error
    }
}

impl fmt::Display for Incomplete<Suspended> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, left) = (self.done.members.len(), self.left.len());
        if done + left == 0 {
            return self.error.fmt(f);
        }
        write!(
            f,
            "{}; {done} suspended ({} given back), {left} as before",
            self.error,
            Bytes(self.done.given_back)
        )
    }
}

impl fmt::Display for Incomplete<Resumed> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, left) = (self.done.members.len(), self.left.len());
        if done + left == 0 {
            return self.error.fmt(f);
        }
        write!(f, "{}; {done} resumed, {left} suspended still", self.error)
    }
}

/// The message holds the cause, so there is no further source.
impl<R: fmt::Debug> std::error::Error for Incomplete<R> where Incomplete<R>: fmt::Display {}

/// A member that was not taken into a group.
#[non_exhaustive]
pub struct NotAdded<M> {
    /// Why not.
    pub error: Error,
    /// The member.
    pub member: M,
}

impl<M> fmt::Debug for NotAdded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotAdded")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<M> fmt::Display for NotAdded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// The message holds the cause, so there is no further source.
impl<M> std::error::Error for NotAdded<M> {}

/// Closing a group failed in part. What is still held is in here, and can be closed again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unclosed {
    /// The first failure.
    pub error: Error,
    /// Every further failure, in the order it happened.
    pub further: Vec<Error>,
    /// The group, with the members and the host memory that are left.
    pub group: Group,
}

impl fmt::Display for Unclosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.group.members().count();
        let host = Bytes(self.group.host_bytes());
        write!(
            f,
            "the group is not closed (still held: {members} members, {host} of the host's memory): {}",
            self.error
        )?;
        self.further
            .iter()
            .try_for_each(|error| write!(f, "; {error}"))
    }
}

/// The message holds every failure, so there is no further source.
impl std::error::Error for Unclosed {}
