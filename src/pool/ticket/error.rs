//! Why bytes are not a ticket of a pool.

use super::PoolId;
use crate::bytes::Bytes;
use crate::pool::layout::LayoutError;

/// The bytes are not a ticket that this pool wrote.
///
/// These errors come from the bytes alone. Whether the slice of a valid ticket is still there is a question of the
/// pool's state, and has other errors.
///
/// The first five say that the bytes are not what the producer sent: check the transport, and which pool the ticket is
/// of. The others need the pool's key, so that they show an error in the producer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// Shorter than every ticket.
    #[error("the ticket has {length} bytes, and the shortest has {least}: it was cut off, or it is not a ticket")]
    Truncated {
        /// The bytes that came.
        length: usize,
        /// The bytes of the shortest ticket.
        least: usize,
    },
    /// The beginning is not that of a ticket.
    #[error("not a ticket: it begins with \"{}\" instead of \"CVMT\"", found.escape_ascii())]
    NotATicket {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The form is one that this version of the crate does not read.
    #[error("the ticket has the form {found}, and this version of the crate reads the form {known}: use the same version in producer and consumers")]
    Version {
        /// The form of the ticket.
        found: u8,
        /// The form that this crate reads.
        known: u8,
    },
    /// A ticket of another pool.
    #[error("the ticket is of pool {found}, and this is pool {expected}: open it in its own pool; after a restart of the producer, attach again")]
    OtherPool {
        /// The pool that the ticket names.
        found: PoolId,
        /// The pool that was asked.
        expected: PoolId,
    },
    /// The check over the ticket's bytes does not match: a byte is altered, missing or too many.
    #[error("the ticket is altered: its check does not match its bytes; request it from the producer again")]
    Altered,
    /// A field that no producer writes in this way.
    #[error("the ticket has no valid field at byte {at}, though its check matches: the producer has an error")]
    Malformed {
        /// Where the field starts.
        at: usize,
    },
    /// The slice has no bytes, or ends behind the largest offset.
    #[error("the ticket names a slice of {} at offset {offset:#x}, which cannot be: the producer has an error", Bytes(*length as usize))]
    Slice {
        /// The slice's offset in the pool.
        offset: u64,
        /// The slice's length in bytes.
        length: u64,
    },
    /// More parts than a ticket has.
    #[error("the ticket has {found} parts, and at most {most} are supported: publish fewer tensors in one slice")]
    TooManyParts {
        /// Parts of the ticket.
        found: usize,
        /// Parts that are supported.
        most: usize,
    },
    /// A part has elements of an unknown type.
    #[error("part {part} of the ticket has elements of the unknown type {code}: use the same version in producer and consumers")]
    ElementType {
        /// Which part, counted from 0.
        part: usize,
        /// The code of the type.
        code: u8,
    },
    /// A part has no valid layout, or does not fit into the slice.
    #[error("part {part} of the ticket is invalid: {error}")]
    Part {
        /// Which part, counted from 0.
        part: usize,
        /// What is wrong with it.
        error: LayoutError,
    },
}
