//! What can go wrong between two processes, with the numbers.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::address::Name;
use super::frame::{Frame, FrameError};
use super::host::HostId;
use super::peer::Peer;
use super::session_id::SessionId;

/// Where in a conversation something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Before the first message: making, naming and connecting sockets.
    Opening,
    /// The sender says what is to come.
    Announcement,
    /// The receiver says that it wants it.
    Consent,
    /// The bytes and descriptors themselves.
    Pieces,
    /// The receiver says what became of it.
    Answer,
    /// A rank says which one it is.
    Joining,
    /// A rank says that it has everything.
    Agreement,
    /// A client says hello to a server of sessions.
    Hello,
    /// An established session.
    Session,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Opening => "opening the connection",
            Step::Announcement => "the announcement",
            Step::Consent => "the consent",
            Step::Pieces => "the pieces",
            Step::Answer => "the answer",
            Step::Joining => "joining",
            Step::Agreement => "the agreement",
            Step::Hello => "the hello",
            Step::Session => "the session",
        })
    }
}

/// A parcel did not arrive, or nobody knows that it did.
///
/// What was received of it is closed. The connection it came over is shut down, so that the other end learns of it at
/// once. Where the crate's own [`Result`](crate::Result) is returned, `?` makes it an
/// [`Error::Wire`](crate::Error::Wire).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A system call failed, on this side.
    #[error("{step}: {error}")]
    Io {
        /// During what.
        step: Step,
        /// The kernel's reason.
        error: Arc<io::Error>,
    },
    /// The deadline passed.
    #[error("no progress with {at} before the deadline")]
    TimedOut {
        /// What was being waited for.
        at: Step,
    },
    /// The other end closed the connection, or died.
    #[error("the other end vanished during {at}")]
    Vanished {
        /// What was being waited for.
        at: Step,
    },
    /// The other end refuses, in its own words.
    #[error("the other end refused during {at}: {reason}")]
    Refused {
        /// What was being waited for.
        at: Step,
        /// Its reason; printable, and short.
        reason: String,
    },
    /// The other end of a connection between ranks says which rank failed.
    #[error("rank {rank} failed: {reason}")]
    RankFailed {
        /// The rank that it names.
        rank: u32,
        /// Its reason; printable, and short.
        reason: String,
    },
    /// What came is no message of this protocol.
    #[error("{at}: {error}")]
    BadMessage {
        /// What was being waited for.
        at: Step,
        /// What is wrong with it.
        error: FrameError,
    },
    /// A message of this protocol, but of another kind than is due.
    #[error("{at}: a message of kind {found} came out of turn")]
    OutOfTurn {
        /// What was being waited for.
        at: Step,
        /// What came instead.
        found: &'static str,
    },
    /// The other end runs on another machine, or another boot of this one; descriptors cannot go there.
    #[error("the other end runs on host {theirs}, this one on {ours}: descriptors only pass within one host")]
    DifferentHost {
        /// This machine.
        ours: HostId,
        /// The other one.
        theirs: HostId,
    },
    /// The two ends are about different things.
    #[error("the other end sends topic {theirs}, and topic {ours} is due")]
    OtherTopic {
        /// What this side expects.
        ours: u32,
        /// What the sender announces.
        theirs: u32,
    },
    /// More bytes are announced than the receiver takes.
    #[error("{announced} bytes are announced, and the limit is {limit}")]
    TooManyBytes {
        /// By the sender.
        announced: u64,
        /// Of the receiver.
        limit: usize,
    },
    /// More descriptors are announced than the receiver takes.
    #[error("{announced} descriptors are announced, and the limit is {limit}")]
    TooManyFds {
        /// By the sender.
        announced: u32,
        /// Of the receiver.
        limit: usize,
    },
    /// The announcement contradicts itself.
    #[error("{pieces} pieces are announced for {bytes} bytes and {fds} descriptors")]
    ImpossiblePieces {
        /// Pieces announced.
        pieces: u32,
        /// Bytes announced.
        bytes: u64,
        /// Descriptors announced.
        fds: u32,
    },
    /// Another number of descriptors came than was announced.
    #[error("{announced} descriptors were announced with {at}, and {received} came")]
    FdCount {
        /// With which message.
        at: Step,
        /// By the sender.
        announced: usize,
        /// Truly there; closed since.
        received: usize,
    },
    /// Another number of bytes came than was announced.
    #[error("{announced} bytes were announced, and {received} came")]
    ByteCount {
        /// By the sender.
        announced: u64,
        /// Truly there.
        received: u64,
    },
    /// A piece was left out.
    #[error("piece {expected} is missing: piece {found} of {pieces} came instead")]
    MissingPiece {
        /// The one that was due.
        expected: u32,
        /// The one that came.
        found: u32,
        /// How many were announced.
        pieces: u32,
    },
    /// A piece came twice.
    #[error("piece {found} of {pieces} came twice: piece {expected} was due")]
    DuplicatePiece {
        /// The one that was due.
        expected: u32,
        /// The one that came.
        found: u32,
        /// How many were announced.
        pieces: u32,
    },
    /// A piece that was never announced.
    #[error("piece {found} came, and only {pieces} were announced")]
    ExtraPiece {
        /// The one that came.
        found: u32,
        /// How many were announced.
        pieces: u32,
    },
    /// The kernel could not hand over all descriptors of a message: this process has as many open as it may.
    #[error("only {received} of the descriptors of a message could be received: this process is at its limit of open files")]
    ControlTruncated {
        /// Those that were handed over; closed since.
        received: usize,
    },
    /// More pieces than can be counted are to be sent.
    #[error("a parcel of {bytes} bytes and {fds} descriptors is too large to send")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// Its descriptors.
        fds: usize,
    },
    /// The hello does not fit into one message.
    #[error("a hello of {length} bytes is too long: the limit is {limit}")]
    HelloTooLong {
        /// Its bytes.
        length: usize,
        /// The most there can be.
        limit: usize,
    },
    /// The socket cannot pass descriptors.
    #[error("a socket of family {family} and type {kind} cannot pass descriptors: use a connected Unix socket, SOCK_SEQPACKET or SOCK_STREAM")]
    UnusableSocket {
        /// SO_DOMAIN.
        family: i32,
        /// SO_TYPE.
        kind: i32,
    },
    /// The server was stopped while it served this client.
    #[error("the server has stopped")]
    Stopped,
    /// The server's [`Sessions`](super::Sessions) refused the client, or ended its session.
    #[error("{reason}")]
    EndedByHandler {
        /// Its reason.
        reason: String,
    },
    /// The server's [`Sessions`](super::Sessions) panicked while it served this client.
    #[error("the server's handler panicked in {method}")]
    HandlerPanicked {
        /// The method that panicked.
        method: &'static str,
    },
    /// The server's [`Sessions`](super::Sessions) gave a new session the number of a live one.
    #[error("the server's handler opened session {session} twice")]
    SessionOpenTwice {
        /// The number.
        session: SessionId,
    },
    /// The other end is not to be talked to.
    #[error("process {} of user {} is not allowed", peer.pid(), peer.uid())]
    NotAllowed {
        /// Who it is.
        peer: Peer,
    },
    /// The name does not fit into a socket's address. It is never cut short.
    #[error(
        "{name}: {length} bytes are too long for the name of a socket, which has room for {limit}"
    )]
    NameTooLong {
        /// The name.
        name: Name,
        /// Its bytes.
        length: usize,
        /// The most there can be.
        limit: usize,
    },
    /// The name is empty, or a path with a NUL byte in it.
    #[error("\"{name}\" is no name for a socket")]
    BadName {
        /// The name.
        name: Name,
    },
    /// A live server has the name.
    #[error("{name} is taken by a live server")]
    NameTaken {
        /// The name.
        name: Name,
    },
    /// Something that is not a socket is at the path; it is left alone.
    #[error("{} is there, and is no socket", path.display())]
    NotASocket {
        /// Where.
        path: PathBuf,
    },
    /// Nobody serves under the name.
    #[error("no server has {name}")]
    NoServer {
        /// The name.
        name: Name,
    },
}

impl WireError {
    pub(super) fn io(step: Step) -> impl FnOnce(io::Error) -> WireError {
        move |error| WireError::Io {
            step,
            error: Arc::new(error),
        }
    }

    pub(super) fn out_of_turn(at: Step, found: &Frame<'_>) -> WireError {
        WireError::OutOfTurn {
            at,
            found: found.name(),
        }
    }

    /// Whether the failure is this process's own, rather than the other end's.
    pub fn is_local(&self) -> bool {
        matches!(
            self,
            WireError::Io { .. } | WireError::ControlTruncated { .. } | WireError::TooLarge { .. }
        )
    }
}
