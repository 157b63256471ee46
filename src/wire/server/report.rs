//! What a server remembers of its clients.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::wire::error::WireError;
use crate::wire::peer::Peer;

/// How many refusals are kept with their reasons; a client that tries for ever must not fill the memory.
const KEPT: usize = 64;

/// What became of a server's clients so far.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ServerReport {
    /// Clients that have accepted the parcel; so for a server of sessions, all that were established, also those that
    /// have ended since.
    pub served: u64,
    /// Clients that have not: not allowed, not speaking the protocol, too slow, gone, or refusing it themselves.
    pub refused: u64,
    /// The last 64 of those, the oldest first.
    pub recent: VecDeque<Refusal>,
    /// How often no connection could be accepted for a reason of this process: too many open files, say. It was tried
    /// again.
    pub accept_failures: u64,
}

/// A client that was not served, or did not accept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refusal {
    /// Who it was, if the kernel said.
    pub peer: Option<Peer>,
    /// Why.
    pub error: Arc<WireError>,
}

impl ServerReport {
    pub(super) fn refuse(&mut self, peer: Option<Peer>, error: WireError) {
        self.refused += 1;
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(Refusal {
            peer,
            error: Arc::new(error),
        });
    }
}
