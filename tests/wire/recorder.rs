//! A handler of sessions that records its calls, and does what a test or a hello asks it to.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{
    Fetch, Name, Parcel, Peer, Received, Server, Session, SessionId, Sessions, WireError,
};

use crate::surroundings::*;

/// What the handler and the test share.
#[derive(Default)]
pub struct Record {
    /// The calls but for `tick`, in order.
    pub events: Mutex<Vec<String>>,
    /// When `tick` was called.
    pub ticks: Mutex<Vec<Instant>>,
    /// What the next `tick` ends.
    pub end: Mutex<Vec<(SessionId, String)>>,
    /// What `tick` returns, as long as it is not past.
    pub due: Mutex<Option<Instant>>,
    /// The next call of this method panics.
    pub panics_in: Mutex<Option<&'static str>>,
    /// The length of the last hello.
    pub hello: Mutex<usize>,
}

impl Record {
    pub fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    pub fn ticks(&self) -> usize {
        self.ticks.lock().unwrap().len()
    }

    /// Waits for so many events; all that there are.
    #[track_caller]
    pub fn until(&self, count: usize) -> Vec<String> {
        until(|| self.events().len() >= count);
        self.events()
    }

    /// How many events begin like that.
    pub fn count(&self, word: &str) -> usize {
        let events = self.events();
        events.iter().filter(|it| it.starts_with(word)).count()
    }

    fn note(&self, event: String) {
        self.events.lock().unwrap().push(event);
    }

    fn panic_if_due(&self, method: &str) {
        let due = self.panics_in.lock().unwrap().take_if(|it| *it == method);
        if due.is_some() {
            std::panic::resume_unwind(Box::new("thrown"));
        }
    }
}

/// Waits until it is so.
#[track_caller]
pub fn until(mut is: impl FnMut() -> bool) {
    let late = soon(10);
    while !is() {
        assert!(Instant::now() < late, "it never was");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub struct Recorder {
    record: Arc<Record>,
    next: u64,
}

impl Recorder {
    pub fn new() -> (Recorder, Arc<Record>) {
        let record = Arc::<Record>::default();
        let next = 1;
        (
            Recorder {
                record: Arc::clone(&record),
                next,
            },
            record,
        )
    }
}

impl Sessions for Recorder {
    /// The hello is the reason of the refusal, behind `no: `, or the number of the session, behind `is: `.
    fn open(&mut self, peer: &Peer, hello: &[u8]) -> Result<(SessionId, Parcel), String> {
        self.record.panic_if_due("open");
        assert!(peer.is_same_user());
        *self.record.hello.lock().unwrap() = hello.len();
        let hello = String::from_utf8_lossy(hello);
        if let Some(reason) = hello.strip_prefix("no: ") {
            return Err(reason.to_owned());
        }
        let number = match hello.strip_prefix("is: ") {
            Some(number) => number.parse().unwrap(),
            None => self.next,
        };
        self.next += 1;
        self.record.note(format!("opened {number}"));
        Ok((SessionId(number), parcel(5000, number as u32, 3)))
    }

    fn established(&mut self, session: SessionId) {
        self.record.note(format!("established {session}"));
        self.record.panic_if_due("established");
    }

    fn closed(&mut self, session: SessionId, why: &WireError) {
        self.record.note(format!("closed {session}: {why}"));
        self.record.panic_if_due("closed");
    }

    fn tick(&mut self, now: Instant, end: &mut Vec<(SessionId, String)>) -> Option<Instant> {
        self.record.ticks.lock().unwrap().push(now);
        end.append(&mut self.record.end.lock().unwrap());
        self.record.panic_if_due("tick");
        self.record.due.lock().unwrap().filter(|due| *due > now)
    }
}

/// A server whose clients have 5 seconds.
pub fn serve(name: &Name) -> (Server, Arc<Record>) {
    serve_within(name, Duration::from_secs(5))
}

pub fn serve_within(name: &Name, timeout: Duration) -> (Server, Arc<Record>) {
    let (recorder, record) = Recorder::new();
    let server = Server::sessions(recorder).client_timeout(timeout);
    (server.serve(name).unwrap(), record)
}

pub fn say(name: &Name, hello: &str) -> Result<Received<std::os::fd::OwnedFd>, WireError> {
    Fetch::new(name).by(soon(10)).hello(hello).receive()
}

/// An established session, which is this one.
#[track_caller]
pub fn session(name: &Name, number: u32) -> Session {
    let (parcel, session) = say(name, "").unwrap().into_session().unwrap();
    is_parcel(&parcel, 5000, number, 3);
    session
}

pub const OPENED: &str = "opened 1";
pub const ESTABLISHED: &str = "established 1";
pub const GONE: &str = "closed 1: the other end vanished during the session";
