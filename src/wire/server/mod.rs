//! Serves any number of clients: one parcel for all, or a session for each.

mod builder;
mod client;
mod offer;
mod report;
mod sessions;
mod thread;
mod waker;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::address::Name;
use super::error::{Step, WireError};
use super::listener::Listener;
use super::parcel::Parcel;
use crate::fork;

pub use builder::ServerBuilder;
use offer::{Handler, Offer};
pub use report::{Refusal, ServerReport};
pub use sessions::Sessions;
use thread::Service;
use waker::Bell;
pub use waker::Waker;

/// Hands a parcel to every client that may have it, or opens a session for each, until it is stopped or dropped.
///
/// One thread serves all: no call of it blocks but the one that waits for all sockets at once, so a client that is slow
/// holds up nobody. What a client costs does not grow with the number of the others. Each client has a time of its own,
/// and is forgotten when that is up.
///
/// Clients are [`Fetch`](super::Fetch), where there is an example.
pub struct Server {
    name: Name,
    report: Arc<Mutex<ServerReport>>,
    running: Option<(JoinHandle<()>, Bell)>,
    generation: u32,
}

impl Server {
    /// Of this parcel. It stays open, with all its descriptors, for as long as the server.
    pub fn builder(parcel: Parcel) -> ServerBuilder {
        ServerBuilder::new(Offer::Parcel(Arc::new(parcel)))
    }

    /// With a session for each client, whose connection stays open after it accepted a parcel of its own. A client says
    /// [`hello`](super::Fetch::hello) first; one that says nothing runs out of its
    /// [time](ServerBuilder::client_timeout).
    pub fn sessions(handler: impl Sessions) -> ServerBuilder {
        ServerBuilder::new(Offer::Sessions(Handler::new(handler)))
    }

    /// The name that clients ask for.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Wakes the server's thread from any other thread.
    pub fn waker(&self) -> Waker {
        let running = self.running.as_ref();
        running.map_or_else(Waker::default, |(_, bell)| bell.waker())
    }

    /// How many clients had the parcel so far, and how many had not, and why.
    pub fn report(&self) -> ServerReport {
        self.report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Ends it: clients that are being served, and sessions, are told, the name is free, and the thread has ended when this returns.
    pub fn stop(mut self) -> ServerReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        let Some((thread, bell)) = self.running.take() else {
            return;
        };
        // A forked child has the parent's server, and not its thread.
        if self.generation == fork::current() {
            bell.stop();
            // The thread catches what callers' closures throw, and has nothing else to throw; either way it has ended.
            let _ = thread.join();
        }
    }
}

impl ServerBuilder {
    /// Takes the name, and serves from here on.
    ///
    /// # Errors
    ///
    /// [`WireError::NameTaken`] by a live server; [`WireError::NameTooLong`], [`WireError::BadName`] and
    /// [`WireError::NotASocket`]; [`WireError::TooLarge`], for a parcel that cannot be sent.
    pub fn serve(self, name: &Name) -> Result<Server, WireError> {
        let opening = WireError::io;
        let listener = Listener::bind(name)?;
        let (bell, heard) = Bell::new().map_err(opening(Step::Opening))?;
        let report = Arc::default();
        let service = Service::new(self, listener, heard, Arc::clone(&report))?;
        let thread = std::thread::Builder::new()
            .name("cuda-vmm server".into())
            .spawn(move || service.run())
            .map_err(opening(Step::Opening))?;
        Ok(Server {
            name: name.clone(),
            report,
            running: Some((thread, bell)),
            generation: fork::join(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
