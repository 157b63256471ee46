//! One parcel over one connection, waiting for it.

use std::fmt;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use super::error::{Step, WireError};
use super::frame::Frame;
use super::incoming::Incoming;
use super::link::{Flow, Link};
use super::outgoing::Outgoing;
use super::parcel::{Limits, Parcel};
use super::socket_kind::SocketKind;
use super::syscalls;
use super::wait::drive;

/// The topic of a parcel that is sent by itself.
pub(super) const ALONE: u32 = 0;

/// Two sockets connected with each other, close-on-exec, for a parent and its child or for two threads.
///
/// A child gets its end as its standard input:
///
/// ```no_run
/// use std::io::stdin;
/// use std::process::{Command, Stdio};
/// use std::time::{Duration, Instant};
/// use cuda_vmm::wire::{pair, receive_parcel, send_parcel, Limits, Parcel, SocketKind};
///
/// let deadline = || Some(Instant::now() + Duration::from_secs(10));
///
/// // The parent
/// # fn parent(parcel: Parcel, deadline: impl Fn() -> Option<Instant>) -> Result<(), Box<dyn std::error::Error>> {
/// let (ours, theirs) = pair(SocketKind::Packets)?;
/// let mut child = Command::new("worker").stdin(Stdio::from(theirs)).spawn()?;
/// send_parcel(&ours, &parcel, deadline())?;
/// # child.wait()?;
/// # Ok(())
/// # }
///
/// // The child
/// # fn child(deadline: impl Fn() -> Option<Instant>) -> Result<Parcel, Box<dyn std::error::Error>> {
/// let received = receive_parcel(stdin(), Limits::default(), deadline())?;
/// // Attach what is in it, and then say that all is well:
/// let parcel = received.accept()?;
/// # Ok(parcel)
/// # }
/// ```
///
/// # Errors
///
/// [`WireError::Io`].
pub fn pair(kind: SocketKind) -> Result<(OwnedFd, OwnedFd), WireError> {
    syscalls::socket_pair(kind).map_err(WireError::io(Step::Opening))
}

/// Sends a parcel to whoever calls [`receive_parcel`] at the other end, and waits until it was accepted there.
///
/// The socket is a connected Unix socket, SOCK_SEQPACKET or SOCK_STREAM, blocking or not; its flags are left as they
/// are. When all goes well it can be used on. After an error it is shut down: half a conversation cannot be resumed,
/// and the other end is to know at once.
///
/// # Errors
///
/// [`WireError::Refused`] with the receiver's reason; [`WireError::Vanished`] when it is gone; [`WireError::TimedOut`];
/// and what is wrong with its messages.
pub fn send_parcel(
    socket: impl AsFd,
    parcel: &Parcel,
    deadline: Option<Instant>,
) -> Result<(), WireError> {
    let mut link = Link::new(socket)?;
    let mut outgoing = Outgoing::new(parcel, ALONE, &link)?;
    drive(&mut link, deadline, |link| {
        let went = outgoing.step(link, parcel);
        (outgoing.at(), went)
    })
}

/// Receives a parcel from whoever calls [`send_parcel`] at the other end. The sender waits until the [`Received`] is
/// accepted or refused.
///
/// What it says of the socket holds here too. Pass a reference to keep the socket.
///
/// # Errors
///
/// As for [`send_parcel`], and [`WireError::TooManyBytes`] or [`WireError::TooManyFds`] before anything is received.
/// Descriptors that had come are closed.
pub fn receive_parcel<S: AsFd>(
    socket: S,
    limits: Limits,
    deadline: Option<Instant>,
) -> Result<Received<S>, WireError> {
    receive_after(socket, None, limits, deadline)
}

/// Receives a parcel, after a hello where there is one.
pub(super) fn receive_after<S: AsFd>(
    socket: S,
    hello: Option<&[u8]>,
    limits: Limits,
    deadline: Option<Instant>,
) -> Result<Received<S>, WireError> {
    let mut link = Link::new(socket)?;
    if let Some(bytes) = hello {
        say(&mut link, &Frame::Hello { bytes }, Step::Hello, deadline)?;
    }
    let mut incoming = Incoming::new(ALONE, limits);
    drive(&mut link, deadline, |link| {
        let went = incoming.step(link);
        (incoming.at(), went)
    })?;
    Ok(Received {
        link: Some(link),
        parcel: incoming.into_parcel(),
        deadline,
    })
}

/// Sends one whole message.
fn say<S: AsFd>(
    link: &mut Link<S>,
    frame: &Frame<'_>,
    at: Step,
    deadline: Option<Instant>,
) -> Result<(), WireError> {
    let mut begun = false;
    drive(link, deadline, |link| {
        if !begun {
            match link.send(frame, &[], at) {
                Ok(Flow::Done) => begun = true,
                other => return (at, other),
            }
        }
        (at, link.flush(at))
    })
}

/// A parcel that is here, whole, and whose sender waits to hear what became of it.
///
/// Use what is in it (import the memory, say), then [`accept`](Self::accept) or [`refuse`](Self::refuse). Dropping it
/// refuses it.
#[must_use = "the sender waits for an answer; dropping this refuses the parcel"]
pub struct Received<S: AsFd> {
    /// Until it is answered.
    link: Option<Link<S>>,
    parcel: Parcel,
    deadline: Option<Instant>,
}

impl<S: AsFd> Received<S> {
    /// What came.
    pub fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    /// What came, to take descriptors out of it before the answer.
    pub fn parcel_mut(&mut self) -> &mut Parcel {
        &mut self.parcel
    }

    /// Tells the sender that all is well, and hands over what came. A sender that fails before it has read this, or
    /// whose time is up, still has an error ([`Step::Answer`]): of the last word of a conversation nobody can know that
    /// it was heard.
    ///
    /// # Errors
    ///
    /// The sender could not be told: it is gone, say. Then nothing is handed over, and descriptors still in the parcel
    /// are closed.
    pub fn accept(self) -> Result<Parcel, WireError> {
        self.accept_and_keep().map(|(parcel, _)| parcel)
    }

    /// Accepts, and keeps the connection.
    pub(super) fn accept_and_keep(mut self) -> Result<(Parcel, Link<S>), WireError> {
        let mut link = self.link.take().expect("it is answered only once");
        say(&mut link, &Frame::Accepted, Step::Answer, self.deadline)?;
        Ok((mem::take(&mut self.parcel), link))
    }

    /// The socket it came over.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        let link = self.link.as_ref();
        link.expect("it is not answered yet").socket()
    }

    /// Tells the sender why not, and ends the connection. The sender gets at most 512 bytes of the reason.
    pub fn refuse(mut self, reason: &str) {
        self.say_no(reason);
    }

    fn say_no(&mut self, reason: &str) {
        if let Some(mut link) = self.link.take() {
            let reason = reason.to_owned();
            link.abort(&Frame::Refused { reason });
        }
    }
}

impl<S: AsFd> Drop for Received<S> {
    fn drop(&mut self) {
        self.say_no("dropped");
    }
}

impl<S: AsFd> fmt::Debug for Received<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("parcel", &self.parcel)
            .finish_non_exhaustive()
    }
}
