//! What a server has for its clients: one parcel for all, or a session for each.

use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::sessions::Sessions;
use crate::wire::error::{Step, WireError};
use crate::wire::host::HostId;
use crate::wire::parcel::Parcel;
use crate::wire::peer::Peer;
use crate::wire::session_id::SessionId;
use crate::wire::talk::ALONE;

/// When `tick` is called again after it panicked.
const AFTER_PANIC: Duration = Duration::from_secs(1);

pub(super) enum Offer {
    /// Each client receives this parcel at once; its connection ends when it accepts.
    Parcel(Arc<Parcel>),
    /// Each client says hello, and keeps its connection.
    Sessions(Handler),
}

impl Offer {
    /// What would fail for every client.
    pub fn check(&self) -> Result<(), WireError> {
        let host = HostId::here().map_err(WireError::io(Step::Opening))?;
        match self {
            Offer::Parcel(parcel) => parcel.announcement(ALONE, host).map(drop),
            Offer::Sessions(_) => Ok(()),
        }
    }

    /// The clients whose sessions end now, each with the reason; and when to ask again at the latest.
    pub fn tick(&mut self) -> (Vec<(u64, String)>, Option<Instant>) {
        match self {
            Offer::Parcel(_) => (Vec::new(), None),
            Offer::Sessions(handler) => handler.tick(),
        }
    }
}

/// The caller's `Sessions`, with its panics caught, and which client has which session.
pub(super) struct Handler {
    sessions: Box<dyn Sessions>,
    clients: HashMap<SessionId, u64>,
}

impl Handler {
    pub fn new(sessions: impl Sessions) -> Handler {
        Handler {
            sessions: Box::new(sessions),
            clients: HashMap::new(),
        }
    }

    /// A session for this client, from here until `closed`.
    pub fn open(
        &mut self,
        client: u64,
        peer: &Peer,
        hello: &[u8],
    ) -> Result<(SessionId, Parcel), WireError> {
        let opened = self.call("open", |sessions| sessions.open(peer, hello))?;
        let (session, parcel) = opened.map_err(|reason| WireError::EndedByHandler { reason })?;
        if self.clients.contains_key(&session) {
            return Err(WireError::SessionOpenTwice { session });
        }
        self.clients.insert(session, client);
        Ok((session, parcel))
    }

    pub fn established(&mut self, session: SessionId) -> Result<(), WireError> {
        self.call("established", |sessions| sessions.established(session))
    }

    pub fn closed(&mut self, session: SessionId, why: &WireError) {
        self.clients.remove(&session);
        // The session is over, whatever the call does.
        let _ = self.call("closed", |sessions| sessions.closed(session, why));
    }

    fn tick(&mut self) -> (Vec<(u64, String)>, Option<Instant>) {
        let now = Instant::now();
        let mut end = Vec::new();
        let due = self.call("tick", |sessions| sessions.tick(now, &mut end));
        let ended = end.into_iter().filter_map(|(session, reason)| {
            let client = self.clients.get(&session)?;
            Some((*client, reason))
        });
        (
            ended.collect(),
            due.unwrap_or_else(|_| now.checked_add(AFTER_PANIC)),
        )
    }

    /// The thread is every client's, so a panic becomes the error of the one client.
    fn call<T>(
        &mut self,
        method: &'static str,
        call: impl FnOnce(&mut dyn Sessions) -> T,
    ) -> Result<T, WireError> {
        catch_unwind(AssertUnwindSafe(|| call(&mut *self.sessions)))
            .map_err(|_| WireError::HandlerPanicked { method })
    }
}
