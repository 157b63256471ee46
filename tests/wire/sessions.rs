//! Sessions: how they begin, what they cost while they are idle, and when their server's handler is called.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{fetch, Fetch, Name, Server, SessionId, Step, WireError};

use crate::exchange::same;
use crate::raw;
use crate::recorder::*;
use crate::server::{name, only_refusal, until_it_had};
use crate::server_clients::{connect, text};
use crate::surroundings::*;
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("sessions::hello_and_parcel", hello_and_parcel),
    ("sessions::refused_by_the_handler", refused_by_the_handler),
    ("sessions::no_hello", no_hello),
    (
        "sessions::hello_to_a_server_of_one_parcel",
        hello_to_one_shot,
    ),
    ("sessions::longest_hello", longest_hello),
    ("sessions::accepted_without_a_session", accepted_alone),
    ("sessions::of_a_server_without_sessions", of_one_shot),
    ("sessions::two_of_one_number", two_of_one_number),
    ("sessions::they_count_as_clients", they_count),
    ("sessions::tick_keeps_its_time", tick_keeps_its_time),
    ("sessions::a_waker_wakes", a_waker_wakes),
    ("sessions::two_hundred_and_one_is_killed", two_hundred),
    ("sessions::bad_clients_harm_no_session", bad_clients),
    ("sessions::a_session_costs_three_descriptors", descriptors),
];

pub const PARTS: &[Part] = &[
    ("holds_a_session", |words| holds_a_session(words[0])),
    ("shares_a_session", |words| shares_a_session(words[0])),
];

/// Establishes a session, says so, and keeps it until it is killed.
fn holds_a_session(name: &str) {
    let held = say(&Name::new(name), "").unwrap().into_session().unwrap();
    println!("here");
    std::thread::sleep(Duration::from_secs(60));
    drop(held);
}

/// The same, with a forked child that lives on for a while and has a copy of the connection.
fn shares_a_session(name: &str) {
    let held = say(&Name::new(name), "").unwrap().into_session().unwrap();
    if unsafe { libc::fork() } == 0 {
        unsafe { libc::alarm(10) };
        loop {
            unsafe { libc::pause() };
        }
    }
    println!("here");
    std::thread::sleep(Duration::from_secs(60));
    drop(held);
}

fn refused(at: Step, reason: &str) -> WireError {
    let reason = reason.to_owned();
    WireError::Refused { at, reason }
}

fn hello_and_parcel() {
    let name = name("hello");
    let (server, record) = serve(&name);
    let received = say(&name, "hello").unwrap();
    assert_eq!(*record.hello.lock().unwrap(), 5);
    is_parcel(received.parcel(), 5000, 1, 3);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(record.events(), [OPENED], "not before it is accepted");
    assert_eq!(server.report().served, 0);
    let (parcel, session) = received.into_session().unwrap();
    is_parcel(&parcel, 5000, 1, 3);
    assert_eq!(record.until(2), [OPENED, ESTABLISHED]);
    assert_eq!(session.peer().pid(), std::process::id() as i32);
    assert!(session.is_open());
    assert!(session.ended().is_none());
    let flags = unsafe { libc::fcntl(session.as_fd().as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags, libc::FD_CLOEXEC);
    session.close();
    assert_eq!(record.until(3), [OPENED, ESTABLISHED, GONE]);
    let report = server.stop();
    assert_eq!((report.served, report.refused), (1, 0));
    assert_eq!(record.events().len(), 3);
}

fn refused_by_the_handler() {
    let name = name("refused");
    let (server, record) = serve(&name);
    let error = say(&name, "no: the pool is full").unwrap_err();
    same(&error, &refused(Step::Announcement, "the pool is full"));
    match only_refusal(&until_it_had(&server, 1)) {
        WireError::EndedByHandler { reason } => assert_eq!(reason, "the pool is full"),
        other => panic!("{other:?}"),
    }
    let open = session(&name, 1);
    assert_eq!(record.until(2), [OPENED, ESTABLISHED]);
    drop(open);
    server.stop();
}

fn no_hello() {
    let name = name("no-hello");
    let (server, record) = serve_within(&name, Duration::from_millis(200));
    let other = connect(&name);
    raw::send(&other, &raw::consent(), &[]);
    let at = Step::Hello;
    let found = "consent";
    let error = WireError::OutOfTurn { at, found };
    assert_eq!(raw::refusal(&other), error.to_string());
    same(&until_it_had(&server, 1).recent[0].error, &error);
    let silent = fetch(&name, soon(5)).unwrap_err();
    let error = WireError::TimedOut { at };
    let text = "no progress with the hello before the deadline";
    same(&silent, &refused(Step::Announcement, text));
    same(&until_it_had(&server, 2).recent[1].error, &error);
    server.stop();
    assert_eq!(record.events(), [""; 0]);
}

fn hello_to_one_shot() {
    let name = name("one-shot");
    let server = Server::builder(parcel(1, 0, 1)).serve(&name).unwrap();
    let at = Step::Consent;
    let found = "hello";
    let expected = WireError::OutOfTurn { at, found };
    match say(&name, "hello").unwrap_err() {
        // It may have seen the announcement before, and consented.
        WireError::Refused { reason, .. } => assert_eq!(reason, expected.to_string()),
        other => panic!("{other:?}"),
    }
    same(only_refusal(&until_it_had(&server, 1)), &expected);
    fetch(&name, soon(5)).unwrap().accept().unwrap();
    assert_eq!(until_it_had(&server, 2).served, 1);
}

fn longest_hello() {
    let name = name("longest");
    let (server, record) = serve(&name);
    let hello = |length| {
        let fetch = Fetch::new(&name).by(soon(5));
        fetch.hello(vec![b'x'; length]).receive()
    };
    assert_eq!(Fetch::LONGEST_HELLO, 4084);
    let (length, limit) = (4085, 4084);
    let too_long = WireError::HelloTooLong { length, limit };
    same(&hello(4085).unwrap_err(), &too_long);
    assert_eq!(record.events(), [""; 0]);
    hello(4084).unwrap().accept().unwrap();
    assert_eq!(*record.hello.lock().unwrap(), 4084);
    hello(0).unwrap().accept().unwrap();
    assert_eq!(*record.hello.lock().unwrap(), 0);
    let report = server.stop();
    assert_eq!((report.served, report.refused), (2, 0));
}

/// The connection goes with the acceptance, and so the session is over at once.
fn accepted_alone() {
    let name = name("alone");
    let (server, record) = serve(&name);
    say(&name, "").unwrap().accept().unwrap();
    assert_eq!(record.until(3), [OPENED, ESTABLISHED, GONE]);
    server.stop();
    assert_eq!(record.events().len(), 3);
}

fn of_one_shot() {
    let name = name("without");
    let server = Server::builder(parcel(10, 0, 1)).serve(&name).unwrap();
    let received = fetch(&name, soon(5)).unwrap();
    let (parcel, session) = received.into_session().unwrap();
    is_parcel(&parcel, 10, 0, 1);
    until(|| !session.is_open());
    let at = Step::Session;
    same(&session.ended().unwrap(), &WireError::Vanished { at });
    same(&session.ended().unwrap(), &WireError::Vanished { at });
    assert_eq!(server.stop().served, 1);
}

/// The second is refused, and its end is not taken for the end of the first.
fn two_of_one_number() {
    let name = name("twice");
    let (server, record) = serve(&name);
    let (_, first) = say(&name, "is: 7").unwrap().into_session().unwrap();
    let error = say(&name, "is: 7").unwrap_err();
    let text = "the server's handler opened session 7 twice";
    same(&error, &refused(Step::Announcement, text));
    match only_refusal(&until_it_had(&server, 2)) {
        WireError::SessionOpenTwice { session } => assert_eq!(*session, SessionId(7)),
        other => panic!("{other:?}"),
    }
    assert!(first.is_open());
    assert_eq!(record.events(), ["opened 7", "established 7", "opened 7"]);
    drop(first);
    record.until(4);
    // The number is free again.
    say(&name, "is: 7").unwrap().refuse("enough");
    server.stop();
    let text = "closed 7: the other end refused during the answer: enough";
    assert_eq!(record.events()[4..], ["opened 7", text]);
}

/// As many sessions as clients: the next waits until one has ended.
fn they_count() {
    let name = name("count");
    let (recorder, record) = Recorder::new();
    let builder = Server::sessions(recorder).most_clients(2);
    let server = builder.serve(&name).unwrap();
    let first = session(&name, 1);
    let second = session(&name, 2);
    let late = Fetch::new(&name).by(millis(100)).hello("").receive();
    let at = Step::Announcement;
    same(&late.unwrap_err(), &WireError::TimedOut { at });
    assert_eq!(record.events().len(), 4);
    drop(first);
    // The one that gave up says hello all the same, and has said why it is gone.
    let third = say(&name, "").unwrap().into_session().unwrap();
    assert!(second.is_open() && third.1.is_open());
    server.stop();
    assert_eq!((record.count("opened"), record.count("closed")), (4, 4));
}

fn tick_keeps_its_time() {
    let name = name("tick");
    let (server, record) = serve_within(&name, Duration::from_millis(100));
    let open = session(&name, 1);
    record.until(2);
    std::thread::sleep(Duration::from_millis(20));
    // An idle session wakes nobody, not even when the time of its client would be up.
    let idle = record.ticks();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(record.ticks(), idle, "it woke for nothing");
    assert!(open.is_open());

    let due = millis(150);
    *record.due.lock().unwrap() = Some(due);
    server.waker().wake();
    std::thread::sleep(Duration::from_millis(500));
    let ticks = record.ticks.lock().unwrap().clone();
    assert_eq!(ticks.len(), idle + 2, "once to be told, and once when due");
    assert!(ticks[idle] < due);
    let late = ticks[idle + 1]
        .checked_duration_since(due)
        .expect("too early");
    assert!(late < Duration::from_millis(200), "{late:?}");
    server.stop();
    assert_eq!(record.ticks(), idle + 2);
}

fn a_waker_wakes() {
    let name = name("waker");
    let before = open_fds();
    let (server, record) = serve(&name);
    until(|| record.ticks() > 0);
    std::thread::sleep(Duration::from_millis(20));
    let waker = server.waker();
    for _ in 0..3 {
        let ticks = record.ticks();
        waker.clone().wake();
        until(|| record.ticks() > ticks);
    }
    // More than any buffer holds, from several threads: none blocks.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20_000).for_each(|_| waker.wake()));
        }
    });
    server.stop();
    assert_eq!(open_fds(), before, "a waker keeps nothing open");
    let ticks = record.ticks();
    waker.wake();
    assert_eq!(record.ticks(), ticks);
    // One of a server without sessions has nothing to call.
    let server = Server::builder(parcel(1, 0, 1)).serve(&name).unwrap();
    server.waker().wake();
    fetch(&name, soon(5)).unwrap().accept().unwrap();
    assert_eq!(until_it_had(&server, 1).served, 1);
}

fn two_hundred() {
    let name = name("two-hundred");
    let (server, record) = serve(&name);
    let before: Vec<_> = (1..=100).map(|number| session(&name, number)).collect();
    let mut other = Other::start(&format!("holds_a_session|{}", text(&name)));
    assert_eq!(other.line(), "here");
    let after: Vec<_> = (102..=200).map(|number| session(&name, number)).collect();
    record.until(400);
    let killed = Instant::now();
    other.kill();
    let events = record.until(401);
    assert!(killed.elapsed() < Duration::from_secs(2));
    assert_eq!(events[400], GONE.replace(" 1:", " 101:"));
    let mut all = before.iter().chain(&after);
    assert!(all.all(|session| session.is_open()));
    let report = server.stop();
    assert_eq!((report.served, report.refused), (200, 0));
    assert_eq!(record.events().len(), 600);
    let stopped = refused(Step::Session, "the server has stopped");
    for session in before.iter().chain(&after) {
        same(&session.ended().unwrap(), &stopped);
    }
}

fn bad_clients() {
    let name = name("bad-clients");
    let (server, record) = serve_within(&name, Duration::from_millis(300));
    let open = session(&name, 1);
    let silent = connect(&name);
    let garbage = connect(&name);
    raw::send(&garbage, b"not a message, though long enough", &[]);
    let half = connect(&name);
    raw::send(&half, &raw::hello(b"hello")[..14], &[]);
    let generous = connect(&name);
    let fds: Vec<_> = (0..200).map(numbered).collect();
    raw::send(&generous, &raw::hello(b""), &fds);
    let long = connect(&name);
    raw::send(&long, &[0; 5000], &[]);
    drop(connect(&name));
    let flood = connect(&name);
    while raw::try_send_now(&flood, &raw::hello(b"")) {}
    let sleepy = connect(&name);
    raw::send(&sleepy, &raw::hello(b""), &[]);
    let quick = connect(&name);
    raw::send(&quick, &raw::hello(b""), &[]);
    drop(quick);
    let started = Instant::now();
    for _ in 0..20 {
        say(&name, "").unwrap().into_session().unwrap().1.close();
    }
    assert!(started.elapsed() < Duration::from_millis(300));
    let report = until_it_had(&server, 30);
    assert_eq!((report.served, report.refused), (21, 9));
    let mut seen: Vec<String> = report
        .recent
        .iter()
        .map(|it| it.error.to_string())
        .collect();
    for error in &mut seen {
        // The quick one is gone before it is answered, or a moment after.
        if error.ends_with("vanished during the consent") {
            *error = error.replace("consent", "announcement");
        }
    }
    seen.sort();
    assert_eq!(
        seen,
        [
            "0 descriptors were announced with the hello, and 200 came",
            "no progress with the consent before the deadline",
            "no progress with the hello before the deadline",
            "the consent: a message of kind hello came out of turn",
            "the hello: 2 bytes, and 5 are due",
            "the hello: a packet of more than 4096 bytes",
            "the hello: it begins with [6e, 6f, 74, 20], which is no message of this protocol",
            "the other end vanished during the announcement",
            "the other end vanished during the hello",
        ]
    );
    assert!(open.is_open());
    drop((silent, sleepy));
    server.stop();
    assert_eq!(record.count("opened"), 24);
    assert_eq!(record.count("closed"), 24);
}

/// Two at the server, of the connection and of the client's process, and one at the client; the parcel's own are closed
/// at the server once the client has them.
fn descriptors() {
    let name = name("cost");
    let (server, record) = serve(&name);
    let before = open_fds();
    let sessions: Vec<_> = (1..=10).map(|number| session(&name, number)).collect();
    record.until(20);
    until(|| open_fds() == before + 30);
    drop(sessions);
    record.until(30);
    until(|| open_fds() == before);
    server.stop();
}
