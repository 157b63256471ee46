//! Misuse: what would have killed the process on a real driver.

use std::fmt;

use crate::sys::Call;

/// A call that was handed something it must never be handed. A real driver follows a handle as a pointer and dies, or
/// destroys what somebody else owns by now; the simulated one answers an error and keeps this note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misuse {
    /// The call.
    pub call: Call,
    /// What was wrong with its argument.
    pub kind: MisuseKind,
    /// The argument.
    pub value: u64,
}

/// What was wrong with an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MisuseKind {
    /// An allocation handle this driver never gave out.
    MadeUpHandle,
    /// An allocation handle whose last count was released and whose last mapping is gone.
    StaleHandle,
    /// An allocation handle released once more than it was created, imported and retained.
    ReleasedTwice,
    /// A stream that was never created, or is destroyed.
    NoSuchStream,
    /// An event that was never created, or is destroyed.
    NoSuchEvent,
    /// A context that is none of the devices' primary contexts.
    NoSuchContext,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misuse { call, kind, value } = self;
        let what = match kind {
            MisuseKind::MadeUpHandle => "is no handle of this driver",
            MisuseKind::StaleHandle => "is the handle of an allocation that is gone",
            MisuseKind::ReleasedTwice => "was released more often than it was taken",
            MisuseKind::NoSuchStream => "is no live stream",
            MisuseKind::NoSuchEvent => "is no live event",
            MisuseKind::NoSuchContext => "is no primary context of a device",
        };
        write!(f, "{call}: {value:#x} {what}")
    }
}
