//! Misuse: arguments that no program may pass, whatever a real driver makes of them.

use std::fmt;

use crate::sys::Call;

/// A call that was handed something it must never be handed. A real driver follows a made-up handle as a
/// pointer and dies; a second release it was measured to refuse with `INVALID_VALUE`, but a handle that it has given out
/// anew by then is somebody else's, who loses it. The simulated one answers an error and keeps this note.
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
    /// An allocation handle released once more than it was created, imported and retained. A real driver (an H200's)
    /// answers `INVALID_VALUE`, as the simulated one does.
    ReleasedTwice,
    /// A stream that was never created, or is destroyed.
    NoSuchStream,
    /// An event that was never created, or is destroyed.
    NoSuchEvent,
    /// A module that was never loaded, or is unloaded.
    NoSuchModule,
    /// A function of no module that is loaded.
    NoSuchFunction,
    /// A context that is none of the devices' primary contexts.
    NoSuchContext,
    /// Where a copy or a fill begins that reaches over the end of a mapping, while the host has rights to what it
    /// touches. A real driver (an H200's) works through the host's own mapping there, and ends the process.
    OverHostSeam,
    /// Where a copy or a fill begins that writes to memory which the host may only read. A real driver (an H200's) writes
    /// as the host there, and ends the process.
    HostReadOnly,
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
            MisuseKind::NoSuchModule => "is no loaded module",
            MisuseKind::NoSuchFunction => "is no function of a loaded module",
            MisuseKind::NoSuchContext => "is no primary context of a device",
            MisuseKind::OverHostSeam => {
                "begins what reaches from one mapping into the next, where the host has rights"
            }
            MisuseKind::HostReadOnly => "begins what writes to memory that the host may only read",
        };
        write!(f, "{call}: {value:#x} {what}")
    }
}
