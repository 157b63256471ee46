//! Sessions whose handler panics, or whose system calls fail: one session at the most is hit, and none is left open.

use std::process::Stdio;

use cuda_vmm::share::wire::faults::{self, Syscall};
use cuda_vmm::share::wire::{Name, Server, ServerReport, SessionId, Step, WireError};

use crate::exchange::same;
use crate::faults::{each_call, is_at_the_last_word, is_of, tell, was_told, ERRORS};
use crate::recorder::*;
use crate::server::{name, only_refusal, until_it_had};
use crate::surroundings::*;
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("sessions_failing::open_panics", open_panics),
    ("sessions_failing::established_panics", established_panics),
    ("sessions_failing::closed_panics", closed_panics),
    ("sessions_failing::tick_panics", tick_panics),
    ("sessions_failing::calls_of_a_server", of_a_server),
    ("sessions_failing::calls_of_a_client", of_a_client),
];

pub const PARTS: &[Part] = &[
    ("has_a_session", |words| has_a_session(words[0])),
    ("serves_sessions", |words| serves_sessions(words[0])),
];

/// A server on which the method panics once, and a session that is none of its business.
fn panicking(method: &'static str) -> (Name, Server, std::sync::Arc<Record>, impl Sized) {
    let name = name(method);
    let (server, record) = serve(&name);
    let other = session(&name, 1);
    record.until(2);
    *record.panics_in.lock().unwrap() = Some(method);
    let stays = Stays(other);
    (name, server, record, stays)
}

/// A session that has to be open when it goes.
struct Stays(cuda_vmm::share::wire::Session);

impl Drop for Stays {
    fn drop(&mut self) {
        assert!(self.0.is_open() || std::thread::panicking());
    }
}

const OPEN_TEXT: &str = "the server's handler panicked in open";
const ESTABLISHED_TEXT: &str = "the server's handler panicked in established";

fn open_panics() {
    let (name, server, record, stays) = panicking("open");
    let error = say(&name, "").unwrap_err();
    let (at, reason) = (Step::Announcement, OPEN_TEXT.to_owned());
    same(&error, &WireError::Refused { at, reason });
    let method = "open";
    let refusal = until_it_had(&server, 2);
    same(
        only_refusal(&refusal),
        &WireError::HandlerPanicked { method },
    );
    assert_eq!(record.events().len(), 2, "what did not open is not closed");
    drop((session(&name, 2), stays));
    server.stop();
    assert_eq!((record.count("opened"), record.count("closed")), (2, 2));
}

fn established_panics() {
    let (name, server, record, stays) = panicking("established");
    let (_, hit) = say(&name, "").unwrap().into_session().unwrap();
    until(|| !hit.is_open());
    let (at, reason) = (Step::Session, ESTABLISHED_TEXT.to_owned());
    same(&hit.ended().unwrap(), &WireError::Refused { at, reason });
    let closed = format!("closed 2: {ESTABLISHED_TEXT}");
    assert_eq!(record.until(5)[2..], ["opened 2", "established 2", &closed]);
    drop((session(&name, 3), stays));
    let report = server.stop();
    assert_eq!((report.served, report.refused), (3, 0));
    assert_eq!((record.count("opened"), record.count("closed")), (3, 3));
}

fn closed_panics() {
    let (name, server, record, stays) = panicking("closed");
    session(&name, 2).close();
    record.until(5);
    assert_eq!(*record.panics_in.lock().unwrap(), None);
    drop((session(&name, 3), stays));
    server.stop();
    assert_eq!((record.count("opened"), record.count("closed")), (3, 3));
}

/// What it had to end is ended, and it is called again though nothing happens.
fn tick_panics() {
    let (name, server, record, stays) = panicking("tick");
    let hit = session(&name, 2);
    record.until(4);
    until(|| record.panics_in.lock().unwrap().is_none());
    *record.panics_in.lock().unwrap() = Some("tick");
    *record.end.lock().unwrap() = vec![(SessionId(2), "over".to_owned())];
    server.waker().wake();
    until(|| !hit.is_open());
    assert_eq!(record.until(5)[4], "closed 2: over");
    *record.panics_in.lock().unwrap() = Some("tick");
    server.waker().wake();
    until(|| record.panics_in.lock().unwrap().is_none());
    let ticks = record.ticks();
    until(|| record.ticks() > ticks);
    drop(stays);
    server.stop();
    assert_eq!((record.count("opened"), record.count("closed")), (2, 2));
}

/// One session, until it was looked at; or why there was none.
fn has_a_session(path: &str) {
    let before = open_fds();
    let went = say(&Name::file(path), "").and_then(|it| it.into_session());
    tell(went.and_then(|(parcel, session)| {
        assert_eq!((parcel.bytes.len(), parcel.fds.len()), (5000, 3));
        session.ended().map_or(Ok(()), Err)
    }));
    assert_eq!(open_fds(), before);
}

/// Each session that was opened was closed once, after its other events.
#[track_caller]
fn is_balanced(events: &[String]) {
    for number in 1..=events.len() {
        let of = |word: &str| {
            let begins = format!("{word} {number}");
            let mut at = (0..events.len()).filter(|&at| {
                let rest = events[at].strip_prefix(&begins);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            });
            let first = at.next();
            assert_eq!(at.next(), None, "{word} twice: {events:?}");
            first
        };
        let (opened, established, closed) = (of("opened"), of("established"), of("closed"));
        assert_eq!(opened.is_some(), closed.is_some(), "{events:?}");
        assert!(opened <= closed && established <= closed, "{events:?}");
        assert!(established.is_none() || opened < established, "{events:?}");
    }
}

/// Two sessions one after the other, each of another process: one at the most is hit.
fn of_a_server() {
    for errno in ERRORS {
        let folder = Folder::new();
        let path = folder.0.join("name");
        let role = format!("has_a_session|{}", path.display());
        let run = || {
            let (recorder, record) = Recorder::new();
            let server = Server::sessions(recorder).serve(&Name::file(&path))?;
            let said = [Other::start(&role).ends(), Other::start(&role).ends()];
            // The ends of both, which the server hears of by itself.
            until(|| record.count("opened") == record.count("closed"));
            let report = server.stop();
            Ok((said, report, record.events()))
        };
        type Ran = Result<([String; 2], ServerReport, Vec<String>), WireError>;
        let judge = |failed: Option<Syscall>, went: Ran| match (failed, went) {
            (failed, Ok((said, report, events))) => {
                is_balanced(&events);
                let hit = said.iter().filter(|it| *it != "ok").count();
                assert!(hit <= usize::from(failed.is_some()), "{failed:?}: {said:?}");
                if let Some(refusal) = report.recent.front() {
                    assert_eq!((report.served, report.refused), (1, 1));
                    is_of(&refusal.error, failed.unwrap(), errno);
                    let hit = said.iter().find(|it| *it != "ok");
                    // It had accepted, and looked at its session before that ended.
                    if hit.is_some() || !is_at_the_last_word(&refusal.error) {
                        was_told(hit.unwrap(), &refusal.error.to_string());
                    }
                } else {
                    assert_eq!((report.served, report.refused), (2, 0));
                }
                assert_eq!(folder.names(), [""; 0]);
            }
            (Some(call), Err(error)) => is_of(&error, call, errno),
            other => panic!("{other:?}"),
        };
        let calls = each_call(errno, run, judge);
        assert!(calls >= 30, "{calls} calls");
    }
}

fn serves_sessions(path: &str) {
    let before = open_fds();
    let (recorder, record) = Recorder::new();
    let server = Server::sessions(recorder).serve(&Name::file(path)).unwrap();
    println!("serving");
    let mut done = String::new();
    std::io::Read::read_to_string(&mut std::io::stdin(), &mut done).unwrap();
    server.stop();
    is_balanced(&record.events());
    assert_eq!(open_fds(), before);
    println!("{}", record.count("established"));
}

/// Whatever fails, a second attempt is served, and the server closes what it opened.
fn of_a_client() {
    for errno in ERRORS {
        let folder = Folder::new();
        let path = folder.0.join("name");
        let role = format!("serves_sessions|{}", path.display());
        let run = || {
            let mut server = Other::with_stdin(&role, Stdio::piped());
            assert_eq!(server.line(), "serving");
            let once = || {
                let received = say(&Name::file(&path), "")?;
                let (parcel, session) = received.into_session()?;
                assert_eq!((parcel.bytes.len(), parcel.fds.len()), (5000, 3));
                let ended = session.ended();
                // A look that failed is no end, and the next one says so.
                assert!(ended.is_none() || session.is_open(), "{ended:?}");
                ended.map_or(Ok(()), Err)
            };
            let went = once();
            // The call that was to fail has failed, unless it is one of these.
            let calls = faults::stop().len();
            let again = once();
            drop(server.child.stdin.take());
            (went, again, server.ends(), calls)
        };
        for index in 0.. {
            let before = open_fds();
            faults::start(Some((index, errno)));
            let (went, again, said, calls) = run();
            assert_eq!(open_fds(), before, "call {index}");
            again.unwrap();
            match went {
                Ok(()) if index >= calls => {
                    assert_eq!(said, "2");
                    assert!(calls >= 14, "{calls} calls");
                    break;
                }
                // The closing of the session.
                Ok(()) => assert!(index + 1 == calls, "call {index} of {calls}"),
                Err(WireError::Io { error, .. }) => {
                    assert_eq!(error.raw_os_error(), Some(errno));
                    assert!(["1", "2"].contains(&&*said), "{said}");
                }
                Err(WireError::Vanished { .. }) => assert_eq!(errno, libc::EPIPE),
                Err(other) => panic!("call {index}: {other:?}"),
            }
        }
    }
}
