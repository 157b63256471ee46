//! What failed while undoing, attached to what failed first.

use std::fmt;

use super::{Error, Result};

/// An operation failed, and so did undoing a part of it.
///
/// The piece that is left is kept by the reservation it belongs to (which undoes it when closed) or, where there is
/// none, by the driver ([`Driver::reclaim`](crate::Driver::reclaim)).
#[derive(Debug)]
#[non_exhaustive]
pub struct NotUndone {
    /// What went wrong first.
    pub error: Error,
    /// What then went wrong while undoing, in the order it happened.
    pub undo: Vec<Error>,
}

impl fmt::Display for NotUndone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        for (i, error) in self.undo.iter().enumerate() {
            let before = if i == 0 {
                "undoing it failed too: "
            } else {
                ""
            };
            write!(f, "; {before}{error}")?;
        }
        f.write_str("; what is left is kept and is undone by a later close or reclaim")
    }
}

impl Error {
    /// The first error: this one, or the cause of a [`NotUndone`](Error::NotUndone).
    pub fn first(&self) -> &Error {
        match self {
            Error::NotUndone(parts) => parts.error.first(),
            other => other,
        }
    }

    /// What failed while undoing, if anything did.
    pub fn undo_failures(&self) -> &[Error] {
        match self {
            Error::NotUndone(parts) => &parts.undo,
            _ => &[],
        }
    }

    /// The first of several failures, with the further ones attached. Where there are none, nothing has failed.
    pub(crate) fn first_of(mut failures: Vec<Error>) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        Err(failures.remove(0).with_undo(failures))
    }

    /// What could not be given back after an operation was done: [`NotUndone`](Error::NotUndone) though nothing else
    /// failed, since what is left is still owned.
    pub(crate) fn left_over(mut failures: Vec<Error>) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        Err(Error::NotUndone(Box::new(NotUndone {
            error: failures.remove(0),
            undo: failures,
        })))
    }

    /// This error, with what failed while undoing attached to it, behind what was attached before.
    pub(crate) fn with_undo(self, undo: Vec<Error>) -> Error {
        if undo.is_empty() {
            return self;
        }
        let mut parts = self.into_parts();
        parts.undo.extend(undo.into_iter().flat_map(|error| {
            let NotUndone { error, undo } = error.into_parts();
            std::iter::once(error).chain(undo)
        }));
        Error::NotUndone(Box::new(parts))
    }

    /// The first error apart from what is attached to it, so that one list holds every failure.
    pub(crate) fn into_parts(self) -> NotUndone {
        match self {
            Error::NotUndone(parts) => *parts,
            error => NotUndone {
                error,
                undo: Vec::new(),
            },
        }
    }
}
