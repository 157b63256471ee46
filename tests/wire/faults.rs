//! Every system call of the transport made to fail once, on each side: nothing is left open, and the other side is
//! told.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use cuda_vmm::share::wire::faults::{self, Syscall};
use cuda_vmm::share::wire::{
    fetch, pair, receive_parcel, send_parcel, Fetch, Limits, Name, Ranks, RanksError, Server,
    ServerReport, Step, WireError,
};

use crate::exchange::KINDS;
use crate::surroundings::*;
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("faults::of_a_sender", of_a_sender),
    ("faults::of_a_receiver", of_a_receiver),
    ("faults::of_a_server", of_a_server),
    ("faults::of_a_client", of_a_client),
    ("faults::of_a_rank", of_a_rank),
];

pub const PARTS: &[Part] = &[
    ("receives_once", |_| receives_once()),
    ("sends_once", |_| sends_once()),
    ("fetches_once", |words| fetches_once(words[0])),
    ("serves_once", |words| serves_once(words[0])),
    ("rank_of_three", |words| {
        rank_of_three(words[0], words[1].parse().unwrap())
    }),
];

pub const ERRORS: [i32; 3] = [libc::EIO, libc::EMFILE, libc::EPIPE];

/// Runs it with the first call failing, then with the second, and so on until one run has no such call. `judge` gets
/// what came of a run with its failed call, or of the last one with none.
pub fn each_call<T>(errno: i32, run: impl Fn() -> T, judge: impl Fn(Option<Syscall>, T)) -> usize {
    for index in 0.. {
        let before = open_fds();
        faults::start(Some((index, errno)));
        let went = run();
        let failed = faults::stop().get(index).copied();
        judge(failed, went);
        assert_eq!(
            open_fds(),
            before,
            "call {index}, {failed:?}, failed with {errno}"
        );
        if failed.is_none() {
            return index;
        }
    }
    unreachable!()
}

/// The error is that very call's; a broken pipe means that the other side is gone.
#[track_caller]
pub fn is_of(error: &WireError, call: Syscall, errno: i32) {
    match error {
        WireError::Io { error, .. } => assert_eq!(error.raw_os_error(), Some(errno)),
        WireError::Vanished { .. } => assert_eq!((call, errno), (Syscall::Sendmsg, libc::EPIPE)),
        other => panic!("{call:?}: {other:?}"),
    }
}

fn stdin() -> OwnedFd {
    unsafe { OwnedFd::from_raw_fd(0) }
}

/// One line: that all went well, or the error.
pub fn tell<E: std::fmt::Display>(went: Result<(), E>) {
    match went {
        Ok(()) => println!("ok"),
        Err(error) => println!("{error}"),
    }
}

fn receives_once() {
    let before = open_fds();
    let socket = stdin();
    let went = receive_parcel(&socket, Limits::default(), Some(soon(20)));
    tell(went.and_then(|received| received.accept()).map(drop));
    assert_eq!(open_fds(), before);
}

fn sends_once() {
    let before = open_fds();
    let socket = stdin();
    tell(send_parcel(&socket, &parcel(5000, 1, 300), Some(soon(20))));
    assert_eq!(open_fds(), before);
}

/// The last word can be sent, and not be heard any more: its sender has a parcel, and the other side an error at this
/// step.
pub fn is_at_the_last_word(error: &WireError) -> bool {
    matches!(
        error,
        WireError::Io {
            step: Step::Answer,
            ..
        }
    )
}

/// The other process fails as well, and in time: it heard the reason, or saw the end.
#[track_caller]
pub fn was_told(said: &str, error: &str) {
    let heard = said.starts_with("the other end refused during ") && said.ends_with(error);
    let saw = said.starts_with("the other end vanished during ");
    assert!(heard || saw, "{error}: {said}");
}

fn of_a_sender() {
    for (kind, errno) in KINDS
        .into_iter()
        .flat_map(|kind| ERRORS.map(|errno| (kind, errno)))
    {
        let run = || {
            let (here, there) = pair(kind)?;
            let other = Other::with_stdin("receives_once", there);
            let went = send_parcel(here, &parcel(5000, 1, 300), Some(soon(20)));
            Ok((went, other.ends()))
        };
        let calls = each_call(errno, run, |failed, went| match (failed, went) {
            (None, Ok((Ok(()), said))) => assert_eq!(said, "ok"),
            (Some(call @ Syscall::Socketpair), Err(error)) => is_of(&error, call, errno),
            (Some(call), Ok((Err(error), said))) => {
                is_of(&error, call, errno);
                if said != "ok" || !is_at_the_last_word(&error) {
                    was_told(&said, &error.to_string());
                }
            }
            other => panic!("{other:?}"),
        });
        // A pair, two options, the announcement, two pieces, and the two answers, at the least.
        assert!(calls >= 8, "{calls} calls");
    }
}

fn of_a_receiver() {
    for (kind, errno) in KINDS
        .into_iter()
        .flat_map(|kind| ERRORS.map(|errno| (kind, errno)))
    {
        let run = || {
            let (here, there) = pair(kind)?;
            let other = Other::with_stdin("sends_once", there);
            let went = receive_parcel(here, Limits::default(), Some(soon(20)));
            let went = went.and_then(|received| received.accept());
            Ok((went.map(|it| is_parcel(&it, 5000, 1, 300)), other.ends()))
        };
        let calls = each_call(errno, run, |failed, went| match (failed, went) {
            (None, Ok((Ok(()), said))) => assert_eq!(said, "ok"),
            (Some(call @ Syscall::Socketpair), Err(error)) => is_of(&error, call, errno),
            (Some(call), Ok((Err(error), said))) => {
                is_of(&error, call, errno);
                was_told(&said, &error.to_string());
            }
            other => panic!("{other:?}"),
        });
        assert!(calls >= 8, "{calls} calls");
    }
}

fn fetches_once(path: &str) {
    let before = open_fds();
    let went = fetch(&Name::file(path), soon(20));
    tell(went.and_then(|received| received.accept()).map(drop));
    assert_eq!(open_fds(), before);
}

/// A server that could not be made leaves no file. One that could fails one of two clients at the most, and takes its
/// file along.
fn of_a_server() {
    for errno in ERRORS {
        let folder = Folder::new();
        let path = folder.0.join("name");
        let role = format!("fetches_once|{}", path.display());
        let run = || {
            // A dead server's socket is there, so that the replacing of it fails too.
            drop(std::os::unix::net::UnixListener::bind(&path));
            let server = Server::builder(parcel(5000, 1, 300)).serve(&Name::file(&path))?;
            let said = [Other::start(&role).ends(), Other::start(&role).ends()];
            Ok((said, server.stop()))
        };
        let judge = |failed: Option<Syscall>,
                     went: Result<([String; 2], ServerReport), WireError>| {
            match (failed, went) {
                (failed, Ok(([first, second], report))) => {
                    // One of them at the most is hit by it.
                    let (hit, spared) = match second == "ok" {
                        true => (first, second),
                        false => (second, first),
                    };
                    assert_eq!(spared, "ok", "{failed:?}");
                    let counted = (report.served, report.refused);
                    if let Some(refusal) = report.recent.front() {
                        assert_eq!(counted, (1, 1));
                        is_of(&refusal.error, failed.unwrap(), errno);
                        if hit != "ok" || !is_at_the_last_word(&refusal.error) {
                            was_told(&hit, &refusal.error.to_string());
                        }
                    } else {
                        assert_eq!((counted, hit.as_str()), ((2, 0), "ok"));
                    }
                    assert_eq!(folder.names(), [""; 0]);
                }
                (Some(call), Err(error)) => {
                    is_of(&error, call, errno);
                    let _ = std::fs::remove_file(&path); // The dead server's, if it was not replaced yet.
                }
                other => panic!("{other:?}"),
            }
        };
        let calls = each_call(errno, run, judge);
        // Nine to take the name (lock, socket, two for a dead one, three binds and a listen), and those of two clients.
        assert!(calls >= 25, "{calls} calls");
    }
}

fn serves_once(path: &str) {
    let before = open_fds();
    let server = Server::builder(parcel(5000, 1, 300))
        .serve(&Name::file(path))
        .unwrap();
    println!("serving");
    // Until the other end says that it is done: it may never have come as far as to connect.
    let mut done = String::new();
    std::io::Read::read_to_string(&mut std::io::stdin(), &mut done).unwrap();
    let report = server.stop();
    assert_eq!(open_fds(), before);
    println!("{}", report.served);
}

fn of_a_client() {
    for errno in ERRORS {
        let folder = Folder::new();
        let path = folder.0.join("name");
        let role = format!("serves_once|{}", path.display());
        let run = || {
            let mut server = Other::with_stdin(&role, std::process::Stdio::piped());
            assert_eq!(server.line(), "serving");
            let received = Fetch::new(&Name::file(&path)).by(soon(20)).receive();
            let went = received.and_then(|received| received.accept());
            let went = went.map(|it| is_parcel(&it, 5000, 1, 300));
            drop(server.child.stdin.take());
            (went, server.ends())
        };
        each_call(errno, run, |failed, went| match (failed, went) {
            (None, (Ok(()), said)) => assert_eq!(said, "1"),
            (Some(call), (Err(error), said)) => {
                is_of(&error, call, errno);
                assert_eq!(said, "0");
            }
            other => panic!("{other:?}"),
        });
    }
}

fn in_three(folder: &Path, rank: usize) -> Result<Ranks, RanksError> {
    let mut ranks = Ranks::join(folder, rank, 3, millis(1500))?;
    ranks.vote(b"v", soon(20), |_| ())?;
    let all = ranks.exchange(parcel(5000, rank as u32, 2), soon(20))?;
    (0..3)
        .zip(&all)
        .for_each(|(rank, it)| is_parcel(it, 5000, rank, 2));
    Ok(ranks)
}

fn rank_of_three(folder: &str, rank: usize) {
    let before = open_fds();
    let ranks = in_three(Path::new(folder), rank);
    // Whether all have everything is only certain one round later.
    match ranks.and_then(|mut ranks| ranks.vote(b"", soon(20), |_| ())) {
        Ok(()) => println!("ok"),
        Err(error) => println!("{:?}", error.culprits()),
    }
    assert_eq!(open_fds(), before);
}

/// Rank 1 fails at each of its calls, and the two others name it.
fn of_a_rank() {
    let errno = libc::EIO;
    let folder = Folder::new();
    let meet = folder.0.join("meet");
    let role = |rank| format!("rank_of_three|{}|{rank}", meet.display());
    let run = || {
        let others = [Other::start(&role(0)), Other::start(&role(2))];
        let went = in_three(&meet, 1);
        let calls = faults::stop();
        let went = went.and_then(|mut ranks| ranks.vote(b"", soon(20), |_| ()));
        let said = others.map(Other::ends);
        (went, said, calls)
    };
    let before = open_fds();
    for index in 0.. {
        faults::start(Some((index, errno)));
        let (went, said, calls) = run();
        assert_eq!(open_fds(), before, "call {index}");
        match (calls.get(index), went) {
            (None, Ok(())) => {
                assert_eq!(said, ["ok", "ok"]);
                break;
            }
            (Some(call), Err(RanksError::Local { rank: 1, error })) => {
                is_of(&error, *call, errno);
                // A rank that comes late to a group that has failed finds the third one gone as well.
                for (said, third) in said.iter().zip(["[1, 2]", "[0, 1]"]) {
                    assert!(
                        ["[1]", third].contains(&&**said),
                        "call {index}, {call:?}: {said}"
                    );
                }
            }
            // The lock for the removal of its own file, which it does without.
            (Some(Syscall::Flock), Ok(())) => assert_eq!(said, ["ok", "ok"]),
            other => panic!("{other:?}"),
        }
        assert_eq!(std::fs::read_dir(&meet).map_or(0, Iterator::count), 0);
    }
}
