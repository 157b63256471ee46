//! What a server of sessions does for its clients.

use std::time::Instant;

use crate::wire::error::WireError;
use crate::wire::parcel::Parcel;
use crate::wire::peer::Peer;
use crate::wire::session_id::SessionId;

/// What a [`Server::sessions`](super::Server::sessions) does for its clients.
///
/// The connection is the session: it stays open after the client accepted its parcel, and when the client closes it or
/// its process dies, the server knows at once. An idle session costs two descriptors, and neither a timer nor a
/// thread. The second one is of the client's process: a child that it forked may keep the connection open.
///
/// All methods are called on the server's thread, one at a time, so all clients wait for each call. The server holds no
/// lock during a call. A panic in a method is caught; it refuses or ends the session that the method was called for, and
/// no other. The value is used again after a panic.
///
/// ```
/// use std::time::{Duration, Instant};
/// use cuda_vmm::wire::{Fetch, Name, Parcel, Peer, Server, SessionId, Sessions, WireError};
///
/// struct Greeter(u64);
///
/// impl Sessions for Greeter {
///     fn open(&mut self, peer: &Peer, hello: &[u8]) -> Result<(SessionId, Parcel), String> {
///         if hello != b"version 1" {
///             return Err("only version 1 is supported".to_owned());
///         }
///         self.0 += 1;
///         let bytes = format!("process {}", peer.pid()).into_bytes();
///         Ok((SessionId(self.0), Parcel::new(bytes, vec![])))
///     }
///
///     fn closed(&mut self, session: SessionId, why: &WireError) {
///         println!("session {session}: {why}");
///     }
/// }
///
/// let name = Name::new(format!("example of sessions, {}", std::process::id()));
/// let server = Server::sessions(Greeter(0)).serve(&name)?;
///
/// let received = Fetch::new(&name)
///     .by(Instant::now() + Duration::from_secs(5))
///     .hello("version 1")
///     .receive()?;
/// let (parcel, session) = received.into_session()?;
/// assert!(parcel.bytes.starts_with(b"process "));
/// assert!(session.is_open());
///
/// server.stop();
/// let reason = session.ended().unwrap().to_string();
/// assert_eq!(reason, "the other end refused during the session: the server has stopped");
/// # Ok::<(), WireError>(())
/// ```
pub trait Sessions: Send + 'static {
    /// An allowed client said hello. Returns a number, which no live session has, and the parcel for this client; or the
    /// reason why the client is refused, of which the client receives at most 512 bytes.
    ///
    /// The server closes its copy of the parcel when the client accepts it, or when the session ends before that. A
    /// number that a live session has refuses the client, and [`closed`](Self::closed) is not called for it.
    fn open(&mut self, peer: &Peer, hello: &[u8]) -> Result<(SessionId, Parcel), String>;

    /// The client accepted its parcel: the session is established.
    fn established(&mut self, session: SessionId) {
        let _ = session;
    }

    /// The connection is gone. This is called exactly once for each [`open`](Self::open) that succeeded, whether the
    /// session was established or not. It is called on the server's thread before
    /// [`Server::stop`](super::Server::stop) returns.
    ///
    /// | `why` | the cause |
    /// |---|---|
    /// | [`Vanished`](WireError::Vanished) | the client closed the connection, or its process died |
    /// | [`Refused`](WireError::Refused) | the client refused the parcel |
    /// | [`TimedOut`](WireError::TimedOut) | the client did not accept the parcel in time |
    /// | [`EndedByHandler`](WireError::EndedByHandler) | [`tick`](Self::tick) ended it |
    /// | [`HandlerPanicked`](WireError::HandlerPanicked) | [`established`](Self::established) panicked |
    /// | [`Stopped`](WireError::Stopped) | the server stops |
    /// | another one | the client broke the protocol, or a system call failed |
    fn closed(&mut self, session: SessionId, why: &WireError);

    /// The server's thread is about to wait. This is called before each wait, so it is also called after
    /// [`Waker::wake`](super::Waker::wake).
    ///
    /// Sessions that are added to `end` end with the reason beside them, which the client receives; numbers of no live
    /// session are ignored. After sessions ended this way it is called again. Returns when it is to be called again at
    /// the latest; with `None` it is called after the next event of any client or waker. While nothing is due the thread
    /// sleeps. After a panic it is called again within a second.
    fn tick(&mut self, now: Instant, end: &mut Vec<(SessionId, String)>) -> Option<Instant> {
        let _ = (now, end);
        None
    }
}
