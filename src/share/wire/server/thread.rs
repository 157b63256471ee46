//! The thread of a server: one wait for all its sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::client::Client;
use super::report::ServerReport;
use super::ServerBuilder;
use crate::share::wire::error::WireError;
use crate::share::wire::frame::Frame;
use crate::share::wire::host::HostId;
use crate::share::wire::link::{Link, Wait};
use crate::share::wire::listener::Listener;
use crate::share::wire::peer::Peer;
use crate::share::wire::syscalls::{self, Watched};
use crate::share::wire::talk::ALONE;
use crate::share::wire::wait::{earlier, watched, PAUSE};
use crate::share::wire::Step;

/// How long nothing is accepted after the process could not: the connection stays readable, and asking at once would
/// be asking for ever.
const REST: Duration = Duration::from_millis(50);

/// All that the thread owns.
pub(super) struct Service {
    builder: ServerBuilder,
    listener: Listener,
    stopped: UnixStream,
    report: Arc<Mutex<ServerReport>>,
    clients: Vec<Client>,
    rests_until: Option<Instant>,
}

impl Service {
    /// Finds out what every client would fail of, before there is one.
    pub fn new(
        builder: ServerBuilder,
        listener: Listener,
        stopped: UnixStream,
        report: Arc<Mutex<ServerReport>>,
    ) -> Result<Service, WireError> {
        let host = HostId::here().map_err(WireError::io(Step::Opening))?;
        builder.parcel.announcement(ALONE, host)?;
        Ok(Service {
            builder,
            listener,
            stopped,
            report,
            clients: Vec::new(),
            rests_until: None,
        })
    }

    /// Serves until the other end of `stopped` is closed.
    pub fn run(mut self) {
        let mut watching = Vec::new();
        loop {
            self.watch(&mut watching);
            if syscalls::poll(&mut watching, self.next_time()).is_err() {
                // Not for want of anything that a client did: look at everything, a little later.
                std::thread::sleep(PAUSE);
                for watched in &mut watching[1..] {
                    watched.revents = watched.events;
                }
            }
            if watching[0].revents != 0 {
                break;
            }
            self.serve(&watching[2..]);
            if watching[1].revents != 0 {
                self.accept();
            }
        }
        // An answer that is there already counts: the client has it behind it.
        self.watch(&mut watching);
        watching.iter_mut().for_each(|it| it.revents = it.events);
        self.serve(&watching[2..]);
        for client in std::mem::take(&mut self.clients) {
            let (peer, error) = (client.peer(), WireError::Stopped);
            client.refuse(&error.to_string());
            self.report().refuse(Some(peer), error);
        }
        let reason = WireError::Stopped.to_string();
        self.listener.close(&Frame::Refused { reason });
    }

    /// The end of the server, the listener, and the clients in their order.
    fn watch(&mut self, watching: &mut Vec<Watched>) {
        let now = Instant::now();
        self.rests_until = self.rests_until.filter(|&until| until > now);
        watching.clear();
        watching.push(watched(self.stopped.as_fd(), Wait::Readable));
        let mut listener = watched(self.listener.socket(), Wait::Readable);
        if self.rests_until.is_some() || self.clients.len() >= self.builder.most_clients {
            listener.fd = -1; // Not looked at.
        }
        watching.push(listener);
        watching.extend(self.clients.iter().map(Client::watched));
    }

    /// When something is to be done even if no socket is ready.
    fn next_time(&self) -> Option<Instant> {
        let first = self
            .clients
            .iter()
            .filter_map(|client| client.deadline)
            .min();
        let pausing = self.clients.iter().any(Client::pauses);
        let pause = pausing.then(|| Instant::now() + PAUSE);
        earlier(earlier(first, self.rests_until), pause)
    }

    fn serve(&mut self, watching: &[Watched]) {
        let now = Instant::now();
        // The last first, so that taking one out moves none that is still to be looked at.
        for (index, watched) in watching.iter().enumerate().rev() {
            let client = &mut self.clients[index];
            let ready = watched.revents != 0 || client.pauses();
            let ended = match ready.then(|| client.step(&self.builder.parcel)) {
                Some(Ok(true)) => Ok(()),
                Some(Err(error)) => Err(error),
                _ if client.deadline.is_some_and(|deadline| deadline <= now) => Err(client.late()),
                _ => continue,
            };
            let client = self.clients.swap_remove(index);
            match ended {
                Ok(()) => self.report().served += 1,
                Err(error) => {
                    let peer = client.peer();
                    client.refuse(&error.to_string());
                    self.report().refuse(Some(peer), error);
                }
            }
        }
    }

    fn accept(&mut self) {
        while self.clients.len() < self.builder.most_clients {
            match syscalls::accept(self.listener.socket()) {
                Ok(socket) => self.admit(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.report().accept_failures += 1;
                    self.rests_until = Some(Instant::now() + REST);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let peer = match Peer::of(socket.as_fd()) {
            Ok(peer) => peer,
            Err(error) => return self.turn_away(socket, None, error),
        };
        // A closure that panics has not allowed anything; the thread is everybody's and goes on.
        let allowed = catch_unwind(AssertUnwindSafe(|| (self.builder.allow)(&peer)));
        if !allowed.unwrap_or(false) {
            return self.turn_away(socket, Some(peer), WireError::NotAllowed { peer });
        }
        let deadline = Instant::now().checked_add(self.builder.timeout);
        match Client::new(socket, peer, &self.builder.parcel, deadline) {
            Ok(client) => self.clients.push(client),
            Err(error) => self.report().refuse(Some(peer), error),
        }
    }

    fn turn_away(&self, socket: OwnedFd, peer: Option<Peer>, error: WireError) {
        if let Ok(mut link) = Link::new(socket) {
            let reason = error.to_string();
            link.abort(&Frame::Refused { reason });
        }
        self.report().refuse(peer, error);
    }

    fn report(&self) -> MutexGuard<'_, ServerReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
