//! What the driver would not take back: kept, and given back later.

use super::{Driver, Inner, Piece};
use crate::error::{Error, Result};
use crate::sync::lock;

impl Driver {
    /// How many pieces (handles, address ranges) the driver refused to take back and nobody else owns.
    ///
    /// None in a forked child: they are the parent's.
    pub fn quarantined(&self) -> usize {
        if self.calls().forked() {
            return 0;
        }
        lock(&self.inner.quarantine).iter().map(Piece::count).sum()
    }

    /// Tries once more to give back what the driver refused to take. Gives the number of pieces that went.
    ///
    /// # Errors
    ///
    /// The first failure, with the further ones attached; what failed again stays quarantined.
    pub fn reclaim(&self) -> Result<usize> {
        // Everything is the parent's, and so may be a lock that was held when the process forked.
        if self.calls().forked() {
            return Err(Error::ForkedChild);
        }
        let pieces = std::mem::take(&mut *lock(&self.inner.quarantine));
        let asked = pieces.iter().map(Piece::count).sum();
        let mut errors = Vec::new();
        let mut rest = Rest {
            driver: self,
            pieces,
        };
        while let Some(piece) = rest.pieces.last().cloned() {
            let refused = self.give_back(piece).err();
            rest.pieces.pop();
            errors.extend(refused);
        }
        Error::first_of(errors).map(|()| asked)
    }

    /// Gives a piece back to the driver, or keeps what it does not take in quarantine.
    pub(crate) fn give_back(&self, piece: Piece) -> Result<()> {
        self.inner.give_back(piece).map_err(|(left, mut errors)| {
            self.keep(left);
            let first = errors.remove(0);
            first.with_undo(errors)
        })
    }

    /// Ends an operation by giving back a piece that it needed: after a failure as a part of undoing it; else a refusal
    /// is the operation's failure, and the piece is tried once more.
    pub(crate) fn settle<T>(&self, piece: Piece, result: Result<T>) -> Result<T> {
        let error = match result {
            Err(error) => error,
            Ok(value) => match self.inner.give_back(piece) {
                Ok(()) => return Ok(value),
                Err((left, mut errors)) => {
                    let first = errors.remove(0).with_undo(errors);
                    let undo = self.give_back(left).err();
                    return Err(first.with_undo(undo.into_iter().collect()));
                }
            },
        };
        Err(error.with_undo(self.give_back(piece).err().into_iter().collect()))
    }

    /// Keeps a piece in quarantine, where [`reclaim`](Driver::reclaim) finds it.
    pub(crate) fn keep(&self, piece: Piece) {
        if self.calls().forked() {
            return;
        }
        lock(&self.inner.quarantine).push(piece);
    }

    /// For the test that shows who is kept waiting then.
    #[cfg(all(test, not(shuttle), feature = "sim"))]
    pub(crate) fn hold_a_lock(&self) -> impl Sized + '_ {
        lock(&self.inner.quarantine)
    }
}

impl Inner {
    /// Gives a piece back to the driver, or gives what is left of it, with every failure.
    pub(super) fn give_back(&self, piece: Piece) -> Result<(), (Piece, Vec<Error>)> {
        let ours_to_free = match &piece {
            _ if self.calls.forked() => Err(Error::ForkedChild),
            // A reservation that was leaked, or came later, may lie there.
            Piece::Addresses { base, size } | Piece::Mapped { base, size, .. } => {
                self.reserved.check(*base, *size)
            }
            _ => Ok(()),
        };
        match ours_to_free {
            Ok(()) => piece.give_back(&self.calls),
            Err(error) => Err((piece, vec![error])),
        }
    }
}

/// Pieces that are being given back. Should that unwind, they go back into quarantine: a driver of the caller's own
/// making may panic.
struct Rest<'a> {
    driver: &'a Driver,
    pieces: Vec<Piece>,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.pieces
            .drain(..)
            .for_each(|piece| self.driver.keep(piece));
    }
}
