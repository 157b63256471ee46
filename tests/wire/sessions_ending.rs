//! How sessions end: the handler hears of each end exactly once, with the cause, and the client hears the reason.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{pair, Name, Server, Session, SessionId, SocketKind, Step, WireError};

use crate::exchange::same;
use crate::raw;
use crate::recorder::*;
use crate::server::{name, only_refusal, until_it_had};
use crate::server_clients::{connect, text};
use crate::surroundings::*;
use crate::Case;

pub const CASES: &[Case] = &[
    ("sessions_ending::by_the_client", by_the_client),
    ("sessions_ending::by_a_killed_client", by_a_killed_client),
    (
        "sessions_ending::by_a_killed_client_with_a_child",
        by_a_killed_client_with_a_child,
    ),
    ("sessions_ending::by_a_word_of_the_client", by_a_word),
    ("sessions_ending::before_the_acceptance", before_acceptance),
    ("sessions_ending::by_tick", by_tick),
    (
        "sessions_ending::by_tick_before_the_acceptance",
        by_tick_early,
    ),
    ("sessions_ending::by_the_server", by_the_server),
    (
        "sessions_ending::by_a_word_of_the_server",
        by_a_servers_word,
    ),
    ("sessions_ending::forked_clients", forked_clients),
    ("sessions_ending::forked_servers", forked_servers),
];

/// Stops the server, and sees that nothing happens any more but what happened.
#[track_caller]
fn only(server: Server, record: &Record, events: &[&str]) {
    server.stop();
    assert_eq!(record.events(), events);
}

fn by_the_client() {
    let ends: [fn(Session); 2] = [Session::close, drop];
    for end in ends {
        let name = name("client-ends");
        let (server, record) = serve(&name);
        let session = session(&name, 1);
        record.until(2);
        end(session);
        record.until(3);
        only(server, &record, &[OPENED, ESTABLISHED, GONE]);
    }
}

fn by_a_killed_client() {
    killed("holds_a_session");
}

/// The child has a copy of the connection, and lives.
fn by_a_killed_client_with_a_child() {
    killed("shares_a_session");
}

fn killed(part: &str) {
    let name = name("killed");
    let (server, record) = serve(&name);
    let mut other = Other::start(&format!("{part}|{}", text(&name)));
    assert_eq!(other.line(), "here");
    assert_eq!(record.until(2), [OPENED, ESTABLISHED]);
    other.kill();
    record.until(3);
    only(server, &record, &[OPENED, ESTABLISHED, GONE]);
}

/// A session over a socket that a test writes to.
fn by_hand(name: &Name) -> OwnedFd {
    let socket = connect(name);
    raw::send(&socket, &raw::hello(b""), &[]);
    assert_eq!(raw::receive(&socket)[5], raw::ANNOUNCEMENT);
    raw::send(&socket, &raw::consent(), &[]);
    for _ in 0..2 {
        assert_eq!(raw::receive(&socket)[5], raw::PIECE);
    }
    raw::send(&socket, &raw::message(raw::ACCEPTED, 0, b""), &[]);
    socket
}

/// Anything that a client says ends its session, and no other.
fn by_a_word() {
    let garbage = b"GET / HTTP/1.1\r\n\r\n".to_vec();
    let words: [(Vec<u8>, u32, &str); 6] = [
        (
            raw::hello(b""),
            0,
            "the session: a message of kind hello came out of turn",
        ),
        (
            raw::message(raw::ACCEPTED, 0, b""),
            0,
            "the session: a message of kind accepted came out of turn",
        ),
        (
            raw::message(raw::REFUSED, 0, b"why"),
            0,
            "the other end refused during the session: why",
        ),
        (
            raw::consent(),
            3,
            "0 descriptors were announced with the session, and 3 came",
        ),
        (
            raw::hello(b"hello")[..14].to_vec(),
            0,
            "the session: 2 bytes, and 5 are due",
        ),
        (
            garbage,
            0,
            "the session: it begins with [47, 45, 54, 20], which is no message of this protocol",
        ),
    ];
    let name = name("word");
    let (server, record) = serve(&name);
    let other = session(&name, 1);
    for (number, (bytes, fds, why)) in words.iter().enumerate() {
        let socket = by_hand(&name);
        let (number, seen) = (number + 2, record.until(number * 3 + 4).len());
        let fds: Vec<OwnedFd> = (0..*fds).map(numbered).collect();
        raw::send(&socket, bytes, &fds);
        let events = record.until(seen + 1);
        assert_eq!(events[seen], format!("closed {number}: {why}"));
        assert_eq!(raw::refusal(&socket), *why);
        assert_eq!(raw::receive(&socket), []);
    }
    assert!(other.is_open());
    assert_eq!(server.report().served, 7);
    server.stop();
    assert_eq!((record.count("opened"), record.count("closed")), (7, 7));
}

/// Opened and never established, at every point until then.
fn before_acceptance() {
    let play = |end: &dyn Fn(&Name), why: WireError| {
        let name = name("early");
        let (server, record) = serve_within(&name, Duration::from_millis(150));
        end(&name);
        let report = until_it_had(&server, 1);
        assert_eq!(report.served, 0);
        same(only_refusal(&report), &why);
        record.until(2);
        only(server, &record, &[OPENED, &format!("closed 1: {why}")]);
    };
    let greeted = |name: &Name| {
        let socket = connect(name);
        raw::send(&socket, &raw::hello(b""), &[]);
        assert_eq!(raw::receive(&socket)[5], raw::ANNOUNCEMENT);
        socket
    };
    let late = |at| WireError::TimedOut { at };
    let gone = |at| WireError::Vanished { at };
    play(
        &|name| {
            let socket = greeted(name);
            let text = late(Step::Consent).to_string();
            assert_eq!(raw::refusal(&socket), text);
        },
        late(Step::Consent),
    );
    play(
        &|name| {
            let received = say(name, "").unwrap();
            std::thread::sleep(Duration::from_millis(400));
            let error = received.into_session().unwrap_err();
            let reason = late(Step::Answer).to_string();
            let at = Step::Answer;
            same(&error, &WireError::Refused { at, reason });
        },
        late(Step::Answer),
    );
    play(&|name| drop(greeted(name)), gone(Step::Consent));
    play(
        &|name| {
            let socket = greeted(name);
            raw::send(&socket, &raw::consent(), &[]);
            for _ in 0..2 {
                assert_eq!(raw::receive(&socket)[5], raw::PIECE);
            }
        },
        gone(Step::Answer),
    );
    let refused = |reason: &str| WireError::Refused {
        at: Step::Answer,
        reason: reason.to_owned(),
    };
    play(
        &|name| say(name, "").unwrap().refuse("no device"),
        refused("no device"),
    );
    play(&|name| drop(say(name, "").unwrap()), refused("dropped"));
}

/// Whether the descriptor is readable, now.
fn readable(session: &Session) -> bool {
    let mut poll = libc::pollfd {
        fd: session.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLIN != 0
}

fn by_tick() {
    let name = name("by-tick");
    let (server, record) = serve(&name);
    let (first, second) = (session(&name, 1), session(&name, 2));
    record.until(4);
    assert!(!readable(&first) && first.is_open());
    let end = |number| (SessionId(number), "lease expired".to_owned());
    // One that there is not, and one twice.
    *record.end.lock().unwrap() = vec![end(9), end(1), end(1)];
    server.waker().wake();
    until(|| readable(&first));
    let (at, reason) = (Step::Session, "lease expired".to_owned());
    let expected = WireError::Refused { at, reason };
    for _ in 0..3 {
        same(&first.ended().unwrap(), &expected);
    }
    assert!(!first.is_open() && readable(&first));
    assert!(second.is_open());
    assert_eq!(record.until(5)[4], "closed 1: lease expired");
    drop(first);
    server.stop();
    let stopped = "closed 2: the server has stopped";
    assert_eq!(record.events()[5..], [stopped]);
}

fn by_tick_early() {
    let name = name("tick-early");
    let (server, record) = serve(&name);
    let received = say(&name, "").unwrap();
    *record.end.lock().unwrap() = vec![(SessionId(1), "not today".to_owned())];
    server.waker().wake();
    record.until(2);
    let error = received.into_session().unwrap_err();
    let (at, reason) = (Step::Answer, "not today".to_owned());
    same(&error, &WireError::Refused { at, reason });
    assert_eq!(server.report().refused, 1);
    only(server, &record, &[OPENED, "closed 1: not today"]);
}

fn by_the_server() {
    let ends: [fn(Server); 2] = [|server| drop(server.stop()), drop];
    for end in ends {
        let name = name("server-ends");
        let (server, record) = serve(&name);
        let session = session(&name, 1);
        let received = say(&name, "").unwrap();
        let silent = connect(&name);
        record.until(3);
        end(server);
        // All of it before `stop` returned.
        let mut events = record.events();
        events[3..].sort();
        let stopped = |number| format!("closed {number}: the server has stopped");
        let first = [OPENED, ESTABLISHED, "opened 2"].map(str::to_owned);
        assert_eq!(events[..3], first);
        assert_eq!(events[3..], [stopped(1), stopped(2)]);
        let reason = || "the server has stopped".to_owned();
        let refused = |at| WireError::Refused {
            at,
            reason: reason(),
        };
        same(&session.ended().unwrap(), &refused(Step::Session));
        let error = received.into_session().unwrap_err();
        same(&error, &refused(Step::Answer));
        assert_eq!(raw::refusal(&silent), reason());
    }
}

/// What no server of this crate says: the client ends the session too.
fn by_a_servers_word() {
    let name = name("impostor");
    let Name::Abstract(bytes) = &name else {
        panic!("{name}");
    };
    let listener = raw::listen(bytes);
    let its = name.clone();
    let client = std::thread::spawn(move || say(&its, "hi").unwrap().into_session().unwrap().1);
    let socket = raw::accept(&listener);
    assert_eq!(raw::receive(&socket), raw::hello(b"hi"));
    raw::send(&socket, &raw::announcement(0, 0, 0), &[]);
    assert_eq!(raw::receive(&socket)[5], raw::CONSENT);
    assert_eq!(raw::receive(&socket)[5], raw::ACCEPTED);
    let session = client.join().unwrap();
    assert!(session.is_open());
    raw::send(&socket, &raw::consent(), &[]);
    let (at, found) = (Step::Session, "consent");
    let error = WireError::OutOfTurn { at, found };
    same(&session.ended().unwrap(), &error);
    same(&session.ended().unwrap(), &error);
    assert_eq!(raw::refusal(&socket), error.to_string());
    assert_eq!(raw::receive(&socket), []);
}

/// Runs it in a forked child, which then lives on for as long as `whole` takes.
fn beside_a_child(in_child: impl FnOnce(), whole: impl FnOnce()) {
    let (ready, told) = pair(SocketKind::Packets).unwrap();
    match unsafe { libc::fork() } {
        0 => {
            // It ends by itself where the parent fails.
            unsafe { libc::alarm(20) };
            in_child();
            raw::send(&told, b"x", &[]);
            loop {
                unsafe { libc::pause() };
            }
        }
        child => {
            assert_eq!(raw::receive(&ready), b"x");
            whole();
            let mut status = -1;
            assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        }
    }
}

/// The child's copy of a session neither ends it when it goes nor keeps it when the parent ends it.
fn forked_clients() {
    let name = name("forked-client");
    let (server, record) = serve(&name);
    let first = session(&name, 1);
    let second = session(&name, 2);
    record.until(4);
    let number = first.as_fd().as_raw_fd();
    let in_child = || {
        // The child's own value, dropped as it would be.
        drop(unsafe { std::ptr::read(&first) });
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } < 0);
    };
    beside_a_child(in_child, || {
        std::thread::sleep(Duration::from_millis(50));
        assert!(first.is_open());
        assert_eq!(record.events().len(), 4);
        second.close();
        let gone = GONE.replace(" 1:", " 2:");
        assert_eq!(record.until(5)[4], gone);
    });
    assert!(first.is_open());
    server.stop();
    assert_eq!(record.events().len(), 6);
}

/// The child's copy of a server neither ends its sessions when it goes nor keeps the parent from stopping it.
fn forked_servers() {
    let name = name("forked-server");
    let (server, record) = serve(&name);
    let session = session(&name, 1);
    record.until(2);
    let in_child = || drop(unsafe { std::ptr::read(&server) });
    beside_a_child(in_child, || {
        std::thread::sleep(Duration::from_millis(50));
        assert!(session.is_open());
        assert_eq!(record.events().len(), 2);
    });
    beside_a_child(
        || {},
        || {
            let started = Instant::now();
            only(
                server,
                &record,
                &[OPENED, ESTABLISHED, "closed 1: the server has stopped"],
            );
            // Not only when the child had ended.
            assert!(started.elapsed() < Duration::from_secs(10));
            let (at, reason) = (Step::Session, "the server has stopped".to_owned());
            same(
                &session.ended().unwrap(),
                &WireError::Refused { at, reason },
            );
        },
    );
}
