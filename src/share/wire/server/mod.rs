//! Hands one parcel to any number of clients.

mod client;
mod report;
mod thread;
mod watch;

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::address::Name;
use super::error::{Step, WireError};
use super::listener::Listener;
use super::parcel::Parcel;
use super::peer::Peer;
use crate::fork;

pub use report::{Refusal, ServerReport};
use thread::Service;

/// Hands a parcel to every client that may have it, until it is stopped or dropped.
///
/// One thread serves all: no call of it blocks but the one that waits for all sockets at once, so a client that is slow
/// holds up nobody. What a client costs does not grow with the number of the others. Each client has a time of its own,
/// and is forgotten when that is up.
///
/// Clients are [`Fetch`](super::Fetch), where there is an example.
pub struct Server {
    name: Name,
    report: Arc<Mutex<ServerReport>>,
    /// Its closing tells the thread to end.
    running: Option<(JoinHandle<()>, UnixStream)>,
    generation: u32,
}

impl Server {
    /// Of this parcel. It stays open, with all its descriptors, for as long as the server.
    pub fn builder(parcel: Parcel) -> ServerBuilder {
        ServerBuilder {
            parcel,
            allow: Box::new(Peer::is_same_user),
            timeout: Duration::from_secs(5),
            most_clients: 256,
        }
    }

    /// The name that clients ask for.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// How many clients had the parcel so far, and how many had not, and why.
    pub fn report(&self) -> ServerReport {
        self.report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Ends it: clients that are being served are told, the name is free, and the thread has ended when this returns.
    pub fn stop(mut self) -> ServerReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        let Some((thread, stop)) = self.running.take() else {
            return;
        };
        drop(stop);
        // A forked child has the parent's server, and not its thread.
        if self.generation == fork::current() {
            // The thread catches what callers' closures throw, and has nothing else to throw; either way it has ended.
            let _ = thread.join();
        }
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

/// A server to be.
#[must_use = "nobody is served before `serve`"]
pub struct ServerBuilder {
    parcel: Parcel,
    allow: Box<dyn FnMut(&Peer) -> bool + Send>,
    timeout: Duration,
    most_clients: usize,
}

impl ServerBuilder {
    /// Which clients may have the parcel; this process's user alone, if nothing is said. It is asked on the server's
    /// thread, so all clients wait for it; one for which it panics is refused.
    pub fn allow(mut self, allow: impl FnMut(&Peer) -> bool + Send + 'static) -> ServerBuilder {
        self.allow = Box::new(allow);
        self
    }

    /// How long one client may take, from its connecting to its answer; 5 seconds, if nothing is said.
    pub fn client_timeout(mut self, timeout: Duration) -> ServerBuilder {
        self.timeout = timeout;
        self
    }

    /// How many clients are served at once, one at the least; 256, if nothing is said. Others wait to be accepted. Each
    /// takes one descriptor of this process.
    pub fn most_clients(mut self, most: usize) -> ServerBuilder {
        self.most_clients = most.max(1);
        self
    }

    /// Takes the name, and serves from here on.
    ///
    /// # Errors
    ///
    /// [`WireError::NameTaken`] by a live server; [`WireError::NameTooLong`], [`WireError::BadName`] and
    /// [`WireError::NotASocket`]; [`WireError::TooLarge`], for a parcel that cannot be sent.
    pub fn serve(self, name: &Name) -> Result<Server, WireError> {
        let opening = WireError::io;
        let listener = Listener::bind(name)?;
        let (stop, stopped) = UnixStream::pair().map_err(opening(Step::Opening))?;
        let report = Arc::default();
        let service = Service::new(self, listener, stopped, Arc::clone(&report))?;
        let thread = std::thread::Builder::new()
            .name("cuda-vmm server".into())
            .spawn(move || service.run())
            .map_err(opening(Step::Opening))?;
        Ok(Server {
            name: name.clone(),
            report,
            running: Some((thread, stop)),
            generation: fork::join(),
        })
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
