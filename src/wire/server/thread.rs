//! The thread of a server: one wait for all its sockets.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::builder::ServerBuilder;
use super::client::{Client, Progress};
use super::offer::Offer;
use super::report::ServerReport;
use super::waker::Heard;
use super::watch::Watch;
use crate::wire::error::{Step, WireError};
use crate::wire::frame::Frame;
use crate::wire::link::{Link, Wait};
use crate::wire::listener::Listener;
use crate::wire::peer::Peer;
use crate::wire::syscalls;
use crate::wire::wait::{earlier, PAUSE};

/// How long nothing is accepted after the process could not: the connection stays readable, and asking at once would
/// be asking for ever.
const REST: Duration = Duration::from_millis(50);

/// The numbers of what is no client.
const HEARD: u64 = 0;
const LISTENER: u64 = 1;

/// Added to a client's number: its process.
const PROCESS: u64 = 1 << 63;

/// All that the thread owns.
pub(super) struct Service {
    builder: ServerBuilder,
    listener: Listener,
    /// The listener is watched for connections.
    listens: bool,
    rests_until: Option<Instant>,
    /// What wakes and stops the thread.
    heard: Heard,
    report: Arc<Mutex<ServerReport>>,
    watch: Watch,
    clients: HashMap<u64, Client>,
    next_number: u64,
    /// Who is to be done by when. All have the same time, so the first to come is the first to be late.
    deadlines: VecDeque<(Instant, u64)>,
    /// Clients for which the kernel does not say when it is worth trying again.
    pausing: BTreeSet<u64>,
}

impl Service {
    /// Finds out what every client would fail of, before there is one.
    pub fn new(
        builder: ServerBuilder,
        listener: Listener,
        heard: Heard,
        report: Arc<Mutex<ServerReport>>,
    ) -> Result<Service, WireError> {
        builder.offer.check()?;
        let watching = |listener: &Listener, heard: &Heard| {
            let watch = Watch::new()?;
            watch.add(HEARD, heard.as_fd(), Wait::Readable)?;
            watch.add(LISTENER, listener.socket(), Wait::Readable)?;
            Ok(watch)
        };
        Ok(Service {
            watch: watching(&listener, &heard).map_err(WireError::io(Step::Opening))?,
            builder,
            listener,
            listens: true,
            rests_until: None,
            heard,
            report,
            clients: HashMap::new(),
            next_number: LISTENER + 1,
            deadlines: VecDeque::new(),
            pausing: BTreeSet::new(),
        })
    }

    /// Serves until it is stopped.
    pub fn run(mut self) {
        let mut ready = Vec::new();
        loop {
            let due = self.tick();
            self.listen_or_not();
            let until = earlier(due, self.next_time());
            if self.watch.wait(until, &mut ready).is_err() {
                // Not for want of anything that a client did: look at everything, a little later.
                std::thread::sleep(PAUSE);
                ready.extend([HEARD, LISTENER]);
                ready.extend(self.clients.keys());
            }
            if ready.contains(&HEARD) && self.heard.is_stop() {
                break;
            }
            ready.extend(&self.pausing);
            for &number in &ready {
                self.go_on(number & !PROCESS);
                if number & PROCESS != 0 {
                    let at = Step::Session;
                    self.end(number & !PROCESS, Some(WireError::Vanished { at }));
                }
            }
            if ready.contains(&LISTENER) {
                self.accept();
            }
            // The last before the wait: it forgets the times of those that are done.
            self.end_the_late();
        }
        self.stop();
    }

    /// Watches the listener as long as there is room for a client, and the process is not known to be short of
    /// anything.
    fn listen_or_not(&mut self) {
        let now = Instant::now();
        self.rests_until = self.rests_until.filter(|&until| until > now);
        let listens = self.rests_until.is_none() && self.clients.len() < self.builder.most_clients;
        if listens != self.listens {
            let wait = if listens { Wait::Readable } else { Wait::Pause };
            let changed = self.watch.change(LISTENER, self.listener.socket(), wait);
            // One that could not be changed is changed the next time; meanwhile it is asked more often than need be, or
            // at the next event.
            if changed.is_ok() {
                self.listens = listens;
            } else {
                self.rests_until = Some(now + REST);
            }
        }
    }

    /// When something is to be done even if no socket is ready.
    fn next_time(&self) -> Option<Instant> {
        let first = self.deadlines.front().map(|&(deadline, _)| deadline);
        let pause = (!self.pausing.is_empty()).then(|| Instant::now() + PAUSE);
        earlier(earlier(first, self.rests_until), pause)
    }

    /// Ends the sessions that the handler wants to end; when it wants to be called at the latest.
    fn tick(&mut self) -> Option<Instant> {
        loop {
            let (ended, due) = self.builder.offer.tick();
            if ended.is_empty() {
                return due;
            }
            for (number, reason) in ended {
                self.end(number, Some(WireError::EndedByHandler { reason }));
            }
        }
    }

    /// Lets a client go on, if it still is one, and watches for what it waits for next.
    fn go_on(&mut self, number: u64) {
        match self.advance(number) {
            Ok(false) => {}
            Ok(true) => self.end(number, None),
            Err(error) => self.end(number, Some(error)),
        }
    }

    /// Whether the client is done: it accepted its parcel, and has no session.
    fn advance(&mut self, number: u64) -> Result<bool, WireError> {
        let Some(client) = self.clients.get_mut(&number) else {
            return Ok(false);
        };
        let offer = &mut self.builder.offer;
        let waited = client.wait();
        while client.step(number, offer)? == Progress::Accepts {
            locked(&self.report).served += 1;
            match (client.session(), &mut *offer) {
                (Some(session), Offer::Sessions(handler)) => handler.established(session)?,
                _ => return Ok(true),
            }
            if let Some(process) = client.watch_process() {
                // Without it the end of the connection still tells.
                let _ = self.watch.add(number | PROCESS, process, Wait::Readable);
            }
        }
        let wait = client.wait();
        if wait == Wait::Pause {
            self.pausing.insert(number);
        } else {
            self.pausing.remove(&number);
        }
        if wait != waited {
            let changed = self.watch.change(number, client.socket(), wait);
            changed.map_err(WireError::io(client.at()))?;
        }
        Ok(false)
    }

    fn end_the_late(&mut self) {
        let now = Instant::now();
        while let Some(&(deadline, number)) = self.deadlines.front() {
            match self.clients.get(&number) {
                // An established session has no deadline.
                Some(client) if !client.has_accepted() => {
                    if deadline > now {
                        break;
                    }
                    let at = client.at();
                    self.end(number, Some(WireError::TimedOut { at }));
                }
                _ => {}
            }
            self.deadlines.pop_front();
        }
    }

    /// Is done with a client. Without an error it accepted the parcel, and has no session.
    fn end(&mut self, number: u64, error: Option<WireError>) {
        let Some(client) = self.clients.remove(&number) else {
            return;
        };
        self.pausing.remove(&number);
        self.watch.remove(client.socket());
        client
            .process()
            .into_iter()
            .for_each(|it| self.watch.remove(it));
        let Some(error) = error else {
            return;
        };
        if !client.has_accepted() {
            locked(&self.report).refuse(Some(client.peer()), error.clone());
        }
        let session = client.session();
        client.refuse(&error.to_string());
        if let (Some(session), Offer::Sessions(handler)) = (session, &mut self.builder.offer) {
            handler.closed(session, &error);
        }
    }

    fn accept(&mut self) {
        while self.clients.len() < self.builder.most_clients {
            match syscalls::accept(self.listener.socket()) {
                Ok(socket) => self.admit(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    locked(&self.report).accept_failures += 1;
                    self.rests_until = Some(Instant::now() + REST);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let peer = match Peer::of(socket.as_fd()) {
            Ok(peer) => peer,
            Err(error) => {
                let error = WireError::io(Step::Opening)(error);
                return self.turn_away(socket, None, error);
            }
        };
        // A closure that panics has not allowed anything; the thread is everybody's and goes on.
        let allowed = catch_unwind(AssertUnwindSafe(|| (self.builder.allow)(&peer)));
        if !allowed.unwrap_or(false) {
            return self.turn_away(socket, Some(peer), WireError::NotAllowed { peer });
        }
        let client = match Client::new(socket, peer, &self.builder.offer) {
            Ok(client) => client,
            Err(error) => return locked(&self.report).refuse(Some(peer), error),
        };
        let number = self.next_number;
        self.next_number += 1;
        let added = self.watch.add(number, client.socket(), client.wait());
        self.clients.insert(number, client);
        // A time beyond all counting never comes.
        if let Some(deadline) = Instant::now().checked_add(self.builder.timeout) {
            self.deadlines.push_back((deadline, number));
        }
        match added {
            Ok(()) => self.go_on(number),
            Err(error) => self.end(number, Some(WireError::io(Step::Opening)(error))),
        }
    }

    fn turn_away(&self, socket: OwnedFd, peer: Option<Peer>, error: WireError) {
        let reason = error.to_string();
        locked(&self.report).refuse(peer, error);
        if let Ok(mut link) = Link::new(socket) {
            link.abort(&Frame::Refused { reason });
        }
    }

    /// Tells everybody, those who wait to be accepted too.
    fn stop(mut self) {
        let clients = self.clients.iter();
        let clients: Vec<(u64, Step)> = clients.map(|(&it, client)| (it, client.at())).collect();
        for (number, at) in clients {
            // An answer that is there already counts: the client has it behind it. A hello opens no session any more.
            if at != Step::Hello {
                self.go_on(number);
            }
            self.end(number, Some(WireError::Stopped));
        }
        let reason = WireError::Stopped.to_string();
        self.listener.close(&Frame::Refused { reason });
    }
}

fn locked(report: &Mutex<ServerReport>) -> MutexGuard<'_, ServerReport> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
