//! Two processes: killed, at their limits, a thousand times, and with children of their own.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{
    pair, receive_parcel, send_parcel, Limits, SocketKind, Step, WireError,
};

use crate::exchange::{same, KINDS};
use crate::surroundings::*;
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("processes::a_killed_sender_is_noticed", killed_sender),
    ("processes::a_killed_receiver_is_noticed", killed_receiver),
    ("processes::a_receiver_at_its_limit_of_files", limited),
    ("processes::a_thousand_rounds_leave_nothing", thousand),
    (
        "processes::a_child_inherits_nothing",
        child_inherits_nothing,
    ),
];

pub const PARTS: &[Part] = &[
    ("sits_before_sending", |_| sits()),
    ("sits_with_what_it_received", |_| sits_with_it()),
    ("receives_with_64_files", |_| receives_with_64_files()),
    ("receives_a_thousand", |_| receives_a_thousand()),
];

/// The socket that is this process's standard input.
fn stdin() -> OwnedFd {
    unsafe { OwnedFd::from_raw_fd(0) }
}

fn sits() {
    println!("here");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn sits_with_it() {
    let received = receive_parcel(stdin(), Limits::default(), Some(soon(20))).unwrap();
    is_parcel(received.parcel(), 10, 1, 3);
    sits();
}

fn killed_sender() {
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        let mut other = Other::with_stdin("sits_before_sending", there);
        assert_eq!(other.line(), "here");
        let receiver = std::thread::spawn(move || {
            let error = receive_parcel(here, Limits::default(), Some(soon(60))).unwrap_err();
            (error, Instant::now())
        });
        let killed = Instant::now();
        other.kill();
        let (error, noticed) = receiver.join().unwrap();
        let at = Step::Announcement;
        same(&error, &WireError::Vanished { at });
        assert!(noticed.saturating_duration_since(killed) < Duration::from_secs(5));
    }
}

fn killed_receiver() {
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        let mut other = Other::with_stdin("sits_with_what_it_received", there);
        let sender = std::thread::spawn(move || {
            send_parcel(here, &parcel(10, 1, 3), Some(soon(60))).unwrap_err()
        });
        assert_eq!(other.line(), "here");
        other.kill();
        let at = Step::Answer;
        same(&sender.join().unwrap(), &WireError::Vanished { at });
    }
}

/// As many descriptors as fit arrive; of more, none is kept, and the sender is told. The limit is then as free as
/// before.
fn limited() {
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        let other = Other::with_stdin("receives_with_64_files", there);
        send_parcel(&here, &parcel(10, 1, 40), Some(soon(20))).unwrap();
        let error = send_parcel(&here, &parcel(10, 1, 100), Some(soon(20))).unwrap_err();
        let reason = other.ends();
        same(
            &error,
            &WireError::Refused {
                at: Step::Answer,
                reason,
            },
        );
    }
}

fn receives_with_64_files() {
    let limit = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let socket = stdin();
    let received = receive_parcel(&socket, Limits::default(), Some(soon(20))).unwrap();
    is_parcel(&received.accept().unwrap(), 10, 1, 40);
    let before = open_fds();
    let error = receive_parcel(&socket, Limits::default(), Some(soon(20))).unwrap_err();
    assert_eq!(open_fds(), before);
    // As many as there are numbers left below the limit.
    let taken = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    let received = (0..64).filter(|fd| !taken(fd)).count();
    same(&error, &WireError::ControlTruncated { received });
    println!("{error}");
}

const ROUNDS: u32 = 1000;

fn thousand() {
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        let role = "receives_a_thousand";
        let other = Other::with_stdin(role, there);
        let before = open_fds();
        for round in 0..ROUNDS {
            send_parcel(&here, &parcel(100, round, 3), Some(soon(20))).unwrap();
            assert_eq!(open_fds(), before, "round {round}");
        }
        drop(here);
        assert_eq!(other.ends(), "flat");
    }
}

fn receives_a_thousand() {
    let socket = stdin();
    let before = open_fds();
    for round in 0..ROUNDS {
        let received = receive_parcel(&socket, Limits::default(), Some(soon(20))).unwrap();
        is_parcel(&received.accept().unwrap(), 100, round, 3);
        assert_eq!(open_fds(), before, "round {round}");
    }
    println!("flat");
}

/// A program that is started while descriptors are there has none of them: neither sockets nor what was received.
fn child_inherits_nothing() {
    // What this process inherited itself, a child of it inherits too.
    let inherited = || {
        let child = Command::new("ls").arg("/proc/self/fd").output().unwrap();
        String::from_utf8(child.stdout).unwrap()
    };
    let before = inherited();
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let name = crate::server::name("inherits");
    let served = cuda_vmm::share::wire::Server::builder(parcel(1, 0, 2))
        .serve(&name)
        .unwrap();
    let fetched = cuda_vmm::share::wire::fetch(&name, soon(5)).unwrap();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send_parcel(&here, &parcel(10, 1, 20), Some(soon(20))));
        let received = receive_parcel(&there, Limits::default(), Some(soon(20))).unwrap();
        let fd = received.parcel().fds[0].as_fd().as_raw_fd();
        assert!(std::path::Path::new(&format!("/proc/self/fd/{fd}")).exists());
        assert_eq!(inherited(), before);
        received.accept().unwrap();
        sender.join().unwrap().unwrap();
    });
    fetched.accept().unwrap();
    served.stop();
}
