//! One end of a connection: whole messages in, whole messages out, and no call that blocks.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::error::{Step, WireError};
use super::frame::{Frame, FrameError, Header, HEADER, LONGEST};
use super::host::HostId;
use super::socket_kind::SocketKind;
use super::syscalls;

/// How far something that may have to wait has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Done,
    Wait(Wait),
}

/// What has to happen before it is worth trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// There is something to read.
    Readable,
    /// There is room to write.
    Writable,
    /// Some time: the kernel lets no more descriptors be under way until others have read theirs, and does not say
    /// when.
    Pause,
}

/// A socket with what was only partly sent and only partly received. It reads no byte further than the message it is
/// asked for, so that the caller's socket can go on being used.
pub(super) struct Link<S> {
    socket: S,
    kind: SocketKind,
    host: HostId,
    /// The message being sent, of which the first `sent` bytes are gone; the descriptors went with them.
    out: Vec<u8>,
    sent: usize,
    /// The message being received, of which `filled` bytes are here.
    inbox: Box<[u8; LONGEST]>,
    filled: usize,
    header: Option<Header>,
    fds: Vec<OwnedFd>,
}

impl<S: AsFd> Link<S> {
    pub fn new(socket: S) -> Result<Link<S>, WireError> {
        Ok(Link {
            kind: kind_of(socket.as_fd())?,
            host: HostId::here().map_err(WireError::io(Step::Opening))?,
            socket,
            out: Vec::new(),
            sent: 0,
            inbox: Box::new([0; LONGEST]),
            filled: 0,
            header: None,
            fds: Vec::new(),
        })
    }

    /// The socket alone, between messages.
    pub fn into_socket(self) -> S {
        self.socket
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// This machine.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// The other end's word on where it is.
    pub fn check_host(&self, theirs: HostId) -> Result<(), WireError> {
        match theirs == self.host {
            true => Ok(()),
            false => Err(WireError::DifferentHost {
                ours: self.host,
                theirs,
            }),
        }
    }

    /// Begins to send a message; what does not go at once is sent by [`flush`](Self::flush). When it has to wait,
    /// nothing of it was sent.
    pub fn send(
        &mut self,
        frame: &Frame<'_>,
        fds: &[BorrowedFd<'_>],
        at: Step,
    ) -> Result<Flow, WireError> {
        if let Flow::Wait(wait) = self.flush(at)? {
            return Ok(Flow::Wait(wait));
        }
        frame.encode(fds.len(), &mut self.out);
        self.sent = 0;
        let flow = self.push(fds, at);
        if self.sent == 0 {
            self.out.clear();
            return flow;
        }
        flow.map(|_| Flow::Done)
    }

    /// Sends the rest of a message.
    pub fn flush(&mut self, at: Step) -> Result<Flow, WireError> {
        while self.sent < self.out.len() {
            if let Flow::Wait(wait) = self.push(&[], at)? {
                return Ok(Flow::Wait(wait));
            }
        }
        Ok(Flow::Done)
    }

    fn push(&mut self, fds: &[BorrowedFd<'_>], at: Step) -> Result<Flow, WireError> {
        match syscalls::send(self.socket.as_fd(), &self.out[self.sent..], fds) {
            Ok(bytes) => {
                self.sent += bytes;
                Ok(Flow::Done)
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => Ok(Flow::Wait(Wait::Writable)),
                Some(libc::ETOOMANYREFS) => Ok(Flow::Wait(Wait::Pause)),
                Some(libc::EPIPE | libc::ECONNRESET) => Err(self.last_words(at)),
                _ => Err(WireError::io(at)(error)),
            },
        }
    }

    /// The other end is gone; what it said before, if it said why.
    pub fn last_words(&mut self, at: Step) -> WireError {
        // It may have sent what is ordinarily due before it gave up: a consent, or its agreement.
        for _ in 0..4 {
            match self.receive(at) {
                Ok(Some(_)) => {}
                Err(reason @ (WireError::Refused { .. } | WireError::RankFailed { .. })) => {
                    return reason
                }
                _ => break,
            }
        }
        WireError::Vanished { at }
    }

    /// The next message with its descriptors, or `None` when not all of it is there yet.
    ///
    /// A refusal and the failure of a rank, which may come at any time, are errors.
    pub fn receive(&mut self, at: Step) -> Result<Option<(Frame<'_>, Vec<OwnedFd>)>, WireError> {
        let header = match self.fill(at) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.fds.clear();
                return Err(error);
            }
        };
        let length = std::mem::take(&mut self.filled);
        self.header = None;
        let fds = std::mem::take(&mut self.fds);
        if fds.len() != usize::from(header.fds) {
            return Err(WireError::FdCount {
                at,
                announced: header.fds.into(),
                received: fds.len(),
            });
        }
        match Frame::decode(header, &self.inbox[HEADER..length]) {
            Ok(Frame::Refused { reason }) => Err(WireError::Refused { at, reason }),
            Ok(Frame::RankFailed { rank, reason }) => Err(WireError::RankFailed { rank, reason }),
            Ok(frame) => Ok(Some((frame, fds))),
            Err(error) => Err(WireError::BadMessage { at, error }),
        }
    }

    /// Reads until a whole message is in the inbox, and gives its header.
    fn fill(&mut self, at: Step) -> Result<Option<Header>, WireError> {
        let bad = |error| WireError::BadMessage { at, error };
        loop {
            let wanted = match (self.kind, self.header) {
                (SocketKind::Packets, _) => LONGEST,
                (SocketKind::Stream, None) => HEADER,
                (SocketKind::Stream, Some(header)) => HEADER + header.length,
            };
            if self.filled < wanted && !self.pull(wanted, at)? {
                return Ok(None);
            }
            self.check_fds(at)?;
            if self.kind == SocketKind::Stream && self.filled < wanted {
                continue;
            }
            if let (SocketKind::Stream, Some(header)) = (self.kind, self.header) {
                return Ok(Some(header));
            }
            let start = self.inbox[..self.filled].first_chunk::<HEADER>();
            let start = start.ok_or(bad(FrameError::Length {
                expected: HEADER,
                found: self.filled,
            }))?;
            let header = Header::decode(start).map_err(bad)?;
            self.header = Some(header);
            if self.kind == SocketKind::Packets {
                return Ok(Some(header));
            }
        }
    }

    /// No more descriptors have come than a message holds, however little of this one is here: on a stream every byte
    /// could bring as many.
    fn check_fds(&self, at: Step) -> Result<(), WireError> {
        match self.fds.len() > syscalls::MESSAGE_FDS {
            true => {
                // The last read brought one message's worth at the most: so many can be told.
                let announced = self.fds.len() as u16;
                let error = FrameError::Fds { announced };
                Err(WireError::BadMessage { at, error })
            }
            false => Ok(()),
        }
    }

    /// Reads once, up to `wanted` bytes in all; whether anything was there.
    fn pull(&mut self, wanted: usize, at: Step) -> Result<bool, WireError> {
        let room = &mut self.inbox[self.filled..wanted];
        let mut got = syscalls::receive(self.socket.as_fd(), room, &mut self.fds);
        if is_reset(&got) {
            // The other end closed with something unread. The kernel says so once, before what the other end had sent.
            got = syscalls::receive(self.socket.as_fd(), room, &mut self.fds);
        }
        match got {
            Ok(got) if got.control_cut => Err(WireError::ControlTruncated {
                received: self.fds.len(),
            }),
            Ok(got) if got.cut => Err(WireError::BadMessage {
                at,
                error: FrameError::Oversized,
            }),
            Ok(got) if got.bytes == 0 => Err(WireError::Vanished { at }),
            Ok(got) => {
                self.filled += got.bytes;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(WireError::Vanished { at })
            }
            Err(error) => Err(WireError::io(at)(error)),
        }
    }

    /// Says why it ends, if the other end can still be told, and ends it. Nothing here can fail in a way that matters:
    /// what is not told is seen as the end of the connection.
    pub fn abort(&mut self, last: &Frame<'_>) {
        // Between messages alone: behind half a message this would be taken for the rest of it.
        if matches!(self.send(last, &[], Step::Answer), Ok(Flow::Done)) {
            let _ = self.flush(Step::Answer);
        }
        let _ = syscalls::shutdown(self.socket.as_fd());
    }
}

impl<S: AsFd> fmt::Debug for Link<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("socket", &self.socket.as_fd())
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// What the kernel says a socket is. One that is no Unix socket of these kinds cannot pass descriptors.
fn kind_of(socket: BorrowedFd<'_>) -> Result<SocketKind, WireError> {
    match syscalls::family_and_type(socket).map_err(WireError::io(Step::Opening))? {
        (libc::AF_UNIX, libc::SOCK_SEQPACKET) => Ok(SocketKind::Packets),
        (libc::AF_UNIX, libc::SOCK_STREAM) => Ok(SocketKind::Stream),
        (family, kind) => Err(WireError::UnusableSocket { family, kind }),
    }
}

fn is_reset(got: &io::Result<syscalls::Got>) -> bool {
    matches!(got, Err(error) if error.kind() == io::ErrorKind::ConnectionReset)
}
