//! What a server is told before it serves.

use std::fmt;
use std::time::Duration;

use super::offer::Offer;
use crate::wire::peer::Peer;

/// A server to be.
#[must_use = "nobody is served before `serve`"]
pub struct ServerBuilder {
    pub(super) offer: Offer,
    pub(super) allow: Box<dyn FnMut(&Peer) -> bool + Send>,
    pub(super) timeout: Duration,
    pub(super) most_clients: usize,
}

impl ServerBuilder {
    /// For this user's own clients, 256 at once, with 5 seconds each.
    pub(super) fn new(offer: Offer) -> ServerBuilder {
        ServerBuilder {
            offer,
            allow: Box::new(Peer::is_same_user),
            timeout: Duration::from_secs(5),
            most_clients: 256,
        }
    }

    /// Which clients are served; this process's user alone, if nothing is said. It is asked on the server's
    /// thread, so all clients wait for it; one for which it panics is refused.
    pub fn allow(mut self, allow: impl FnMut(&Peer) -> bool + Send + 'static) -> ServerBuilder {
        self.allow = Box::new(allow);
        self
    }

    /// How long one client may take, from its connecting to its answer; 5 seconds, if nothing is said. An established
    /// session has no time limit.
    pub fn client_timeout(mut self, timeout: Duration) -> ServerBuilder {
        self.timeout = timeout;
        self
    }

    /// How many clients are served at once, one at the least; 256, if nothing is said. Established sessions count. Others
    /// wait to be accepted. Each takes one descriptor of this process, and a session two. A handler that wants to refuse further sessions
    /// rather than let them wait counts them itself, and sets this number higher than its own.
    pub fn most_clients(mut self, most: usize) -> ServerBuilder {
        self.most_clients = most.max(1);
        self
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("timeout", &self.timeout)
            .field("most_clients", &self.most_clients)
            .finish_non_exhaustive()
    }
}
