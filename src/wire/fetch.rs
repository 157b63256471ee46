//! A server's client.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Instant;

use super::address::Name;
use super::connect::{address, attempt, Attempt};
use super::error::{Step, WireError};
use super::frame::HELLO_BYTES;
use super::parcel::Limits;
use super::peer::Peer;
use super::talk::{receive_after, Received};
use super::wait::PAUSE;

/// Asks a [`Server`](super::Server) for its parcel.
///
/// ```
/// use std::time::{Duration, Instant};
/// use cuda_vmm::wire::{Fetch, Name, Parcel, Server};
///
/// let name = Name::new(format!("example of {}", std::process::id()));
/// let server = Server::builder(Parcel::new(b"bytes".to_vec(), vec![])).serve(&name)?;
///
/// let received = Fetch::new(&name)
///     .by(Instant::now() + Duration::from_secs(5))
///     .waiting_for_server()
///     .receive()?;
/// assert_eq!(received.accept()?.bytes, b"bytes");
///
/// assert_eq!(server.stop().served, 1);
/// # Ok::<(), cuda_vmm::wire::WireError>(())
/// ```
#[must_use = "nothing is fetched before `receive`"]
pub struct Fetch {
    name: Name,
    deadline: Option<Instant>,
    limits: Limits,
    waits: bool,
    hello: Option<Vec<u8>>,
    allow: Box<dyn FnOnce(&Peer) -> bool>,
}

impl Fetch {
    /// From the server of this name: by no time in particular, and from this user's own server alone.
    pub fn new(name: &Name) -> Fetch {
        Fetch {
            name: name.clone(),
            deadline: None,
            limits: Limits::default(),
            waits: false,
            hello: None,
            allow: Box::new(Peer::is_same_user),
        }
    }

    /// Gives up at that time; what is received has to be answered by then, too.
    pub fn by(mut self, deadline: Instant) -> Fetch {
        self.deadline = Some(deadline);
        self
    }

    /// Takes no more than this.
    pub fn limits(mut self, limits: Limits) -> Fetch {
        self.limits = limits;
        self
    }

    /// Where no server has the name yet, tries until one has.
    pub fn waiting_for_server(mut self) -> Fetch {
        self.waits = true;
        self
    }

    /// Whose server it may be. Any user can take an abstract name.
    pub fn allow(mut self, allow: impl FnOnce(&Peer) -> bool + 'static) -> Fetch {
        self.allow = Box::new(allow);
        self
    }

    /// Says hello to the server before it receives, as a [server of sessions](super::Server::sessions) requires; the
    /// server of a single parcel refuses it. At most [`LONGEST_HELLO`](Self::LONGEST_HELLO) bytes.
    pub fn hello(mut self, bytes: impl Into<Vec<u8>>) -> Fetch {
        self.hello = Some(bytes.into());
        self
    }

    /// The longest [`hello`](Self::hello), 4,084 bytes.
    pub const LONGEST_HELLO: usize = HELLO_BYTES;

    /// Connects and receives.
    ///
    /// # Errors
    ///
    /// [`WireError::NoServer`]; [`WireError::NotAllowed`] for another user's server; [`WireError::HelloTooLong`] before
    /// anything is done; and those of [`receive_parcel`](super::receive_parcel).
    pub fn receive(self) -> Result<Received<OwnedFd>, WireError> {
        let length = self.hello.as_ref().map_or(0, Vec::len);
        if length > HELLO_BYTES {
            return Err(WireError::HelloTooLong {
                length,
                limit: HELLO_BYTES,
            });
        }
        let socket = self.connect()?;
        let peer = Peer::of(socket.as_fd()).map_err(WireError::io(Step::Opening))?;
        if !(self.allow)(&peer) {
            return Err(WireError::NotAllowed { peer });
        }
        receive_after(socket, self.hello.as_deref(), self.limits, self.deadline)
    }

    fn connect(&self) -> Result<OwnedFd, WireError> {
        let address = address(&self.name)?;
        loop {
            let nobody = match attempt(&address)? {
                Attempt::Connected(socket) => return Ok(socket),
                Attempt::Busy => false,
                Attempt::Nobody => true,
            };
            let late = self.deadline.is_some_and(|by| by <= Instant::now());
            if nobody && (late || !self.waits) {
                return Err(WireError::NoServer {
                    name: self.name.clone(),
                });
            }
            if late {
                return Err(WireError::TimedOut { at: Step::Opening });
            }
            thread::sleep(PAUSE);
        }
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch")
            .field("name", &self.name)
            .field("deadline", &self.deadline)
            .field("limits", &self.limits)
            .field("waits", &self.waits)
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

/// [`Fetch`] in one line: from this user's own server, which has to be there.
///
/// # Errors
///
/// Those of [`Fetch::receive`].
pub fn fetch(name: &Name, deadline: Instant) -> Result<Received<OwnedFd>, WireError> {
    Fetch::new(name).by(deadline).receive()
}
