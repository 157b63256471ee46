//! Groups of which one rank fails, at each step and in each way: all others name it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{Limits, Parcel, Ranks, RanksError, RoundKind};

use crate::ranks::{group, offered};
use crate::raw;
use crate::surroundings::*;
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("ranks_failing::by_error_before_joining", || {
        one_of_eight("error", "join")
    }),
    ("ranks_failing::by_error_before_voting", || {
        one_of_eight("error", "vote")
    }),
    ("ranks_failing::by_error_before_exchanging", || {
        one_of_eight("error", "exchange")
    }),
    ("ranks_failing::by_error_afterwards", || {
        one_of_eight("error", "end")
    }),
    ("ranks_failing::killed_before_joining", || {
        one_of_eight("kill", "join")
    }),
    ("ranks_failing::killed_before_voting", || {
        one_of_eight("kill", "vote")
    }),
    ("ranks_failing::killed_before_exchanging", || {
        one_of_eight("kill", "exchange")
    }),
    ("ranks_failing::killed_afterwards", || {
        one_of_eight("kill", "end")
    }),
    ("ranks_failing::hangs_before_joining", || {
        one_of_eight("hang", "join")
    }),
    ("ranks_failing::hangs_before_voting", || {
        one_of_eight("hang", "vote")
    }),
    ("ranks_failing::hangs_before_exchanging", || {
        one_of_eight("hang", "exchange")
    }),
    ("ranks_failing::hangs_afterwards", || {
        one_of_eight("hang", "end")
    }),
    ("ranks_failing::out_of_step", out_of_step),
    ("ranks_failing::more_than_the_others_take", limits),
    ("ranks_failing::twice_the_same_rank", twice),
    ("ranks_failing::one_too_many_or_another_count", miscounted),
    ("ranks_failing::strangers_are_sent_away", strangers),
    ("ranks_failing::an_error_is_kept", kept),
];

pub const PARTS: &[Part] = &[("failing_rank", failing_rank)];

/// The rank that fails.
const CULPRIT: usize = 3;
const STEPS: [&str; 4] = ["join", "vote", "exchange", "end"];

/// One of eight: rank 3 fails at its step in its way; all others write which rank they blame, and end well.
fn failing_rank(words: &[&str]) {
    let [folder, rank, how, step] = words else {
        panic!("{words:?}");
    };
    let rank: usize = rank.parse().unwrap();
    // Where nobody is to be waited for, nobody waits for the time to be up.
    let time = if *how == "hang" || *step == "join" {
        2
    } else {
        60
    };
    let mut ranks = None;
    for now in STEPS {
        if rank == CULPRIT && *step == now {
            return fail(how, ranks);
        }
        let deadline = soon(time);
        let went = play(&mut ranks, now, Path::new(folder), rank, deadline);
        if let Err(error) = went {
            assert!(
                Instant::now() < deadline + Duration::from_millis(100),
                "it was late"
            );
            println!("{:?}: {error}", error.culprits());
            return;
        }
    }
    println!("nothing failed");
}

fn fail(how: &str, ranks: Option<Ranks>) {
    match (how, ranks) {
        ("error", Some(mut ranks)) => ranks.fail("no memory for it"),
        ("error", None) => {}
        ("kill", _ranks) => unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
        },
        (_, _ranks) => thread::sleep(Duration::from_secs(4)),
    }
}

fn play(
    ranks: &mut Option<Ranks>,
    step: &str,
    folder: &Path,
    rank: usize,
    deadline: Instant,
) -> Result<(), RanksError> {
    match (step, ranks) {
        (_, ranks @ None) => *ranks = Some(Ranks::join(folder, rank, 8, deadline)?),
        ("vote", Some(ranks)) => ranks.vote(b"ballot", deadline, |_| ())?,
        ("exchange", Some(ranks)) => drop(ranks.exchange(offered(rank), deadline)?),
        (_, Some(ranks)) => ranks.vote(b"", deadline, |_| ())?,
    }
    Ok(())
}

fn one_of_eight(how: &str, step: &str) {
    let folder = Folder::new();
    let started = Instant::now();
    let role = |rank| format!("failing_rank|{}|{rank}|{how}|{step}", folder.0.display());
    let others: Vec<Other> = (0..8).map(|rank| Other::start(&role(rank))).collect();
    for (rank, mut other) in others.into_iter().enumerate() {
        if rank == CULPRIT {
            // Its end is waited for last of all, if it hangs: what the others do must not depend on it.
            if how == "hang" {
                other.kill();
            } else {
                other.child.wait().unwrap();
            }
            continue;
        }
        let said = other.ends();
        assert!(said.starts_with("[3]: "), "rank {rank}: {said}");
        let reason = match (how, step) {
            (_, "join") | ("hang", _) => "nothing more came from rank 3 by the deadline",
            ("error", _) => "no memory for it",
            _ => "the other end vanished during",
        };
        assert!(said.contains(reason), "rank {rank}: {said}");
    }
    if how != "hang" && step != "join" {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "they waited for the deadline"
        );
    }
}

/// Every rank's error names this one.
#[track_caller]
fn all_name(errors: &[RanksError], culprit: usize) {
    for error in errors {
        assert_eq!(error.culprits(), [culprit], "{errors:?}");
    }
}

/// One votes while the others exchange: whoever is with it in a pair says so, and all stop.
fn out_of_step() {
    let folder = Folder::new();
    let went = group(&folder.0, 2, |ranks| match ranks.rank() {
        1 => ranks.vote(b"", soon(20), |_| ()),
        _ => ranks.exchange(Parcel::default(), soon(20)).map(drop),
    });
    let errors: Vec<RanksError> = went.into_iter().map(Result::unwrap_err).collect();
    // The lower rank speaks first, so the higher one sees it.
    match &errors[1] {
        RanksError::OutOfStep { rank, theirs, ours } => {
            assert_eq!((*rank, theirs.number, ours.number), (0, 1, 1));
            assert_eq!(
                (theirs.kind, ours.kind),
                (RoundKind::Exchange, RoundKind::Vote)
            );
        }
        other => panic!("{other:?}"),
    }
    let said = "rank 0 failed, as rank 1 says: rank 0 is at round 1, exchange, and this one at round 1, vote";
    assert_eq!(errors[0].to_string(), said);
}

fn limits() {
    let folder = Folder::new();
    let before = open_fds();
    let went = group(&folder.0, 4, |ranks| {
        ranks.set_limits(Limits {
            bytes: 1 << 20,
            fds: 100,
        });
        ranks.exchange(offered(ranks.rank()), soon(20)).map(drop)
    });
    let errors: Vec<RanksError> = went.into_iter().map(Result::unwrap_err).collect();
    all_name(&errors, 3);
    let reason = "120 descriptors are announced, and the limit is 100";
    assert!(
        errors.iter().all(|it| it.to_string().contains(reason)),
        "{errors:?}"
    );
    assert_eq!(open_fds(), before);
}

/// The second process of a rank is told at once, and the group comes together without it.
fn twice() {
    let folder = Folder::new();
    thread::scope(|scope| {
        let first = scope.spawn(|| Ranks::join(&folder.0, 1, 2, soon(20)));
        while folder.names() != ["rank-1"] {
            thread::yield_now();
        }
        // Bound is not yet listening; the lock of the folder makes it the same to others.
        let error = Ranks::join(&folder.0, 1, 2, soon(20)).unwrap_err();
        assert!(
            matches!(error, RanksError::Duplicate { rank: 1 }),
            "{error:?}"
        );
        let second = Ranks::join(&folder.0, 0, 2, soon(20));
        assert!(first.join().unwrap().is_ok() && second.is_ok());
    });
}

fn miscounted() {
    for (rank, count, extra) in [(2, 3, false), (1, 3, false), (5, 2, true)] {
        let folder = Folder::new();
        let error = thread::scope(|scope| {
            let honest = scope.spawn(|| Ranks::join(&folder.0, 0, 2, soon(20)).unwrap_err());
            let socket = connect_to_rank(&folder, 0);
            raw::send(&socket, &raw::join(rank, count), &[]);
            let error = honest.join().unwrap();
            // And is told.
            assert_eq!(raw::receive(&socket)[5], 8);
            error
        });
        let rank = rank as usize;
        match error {
            RanksError::OtherCount {
                rank: named,
                theirs: 3,
                ours: 2,
            } if !extra => assert_eq!(named, rank),
            RanksError::Extra {
                rank: named,
                count: 2,
            } if extra => assert_eq!(named, rank),
            other => panic!("{other:?}"),
        }
    }
}

/// A connection to the socket of a rank in a folder, once it is there.
fn connect_to_rank(folder: &Folder, rank: usize) -> OwnedFd {
    let path = folder
        .0
        .join(format!("rank-{rank}"))
        .into_os_string()
        .into_encoded_bytes();
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    for (place, byte) in address.sun_path.iter_mut().zip(&path) {
        *place = *byte as _;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, kind, 0)) };
    let length = size_of_val(&address) as u32;
    let until = soon(10);
    let connect =
        || unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    while connect() != 0 {
        assert!(Instant::now() < until, "nobody is there");
        thread::sleep(Duration::from_millis(2));
    }
    socket
}

/// What is no rank at all harms nobody.
fn strangers() {
    let folder = Folder::new();
    thread::scope(|scope| {
        let first = scope.spawn(|| Ranks::join(&folder.0, 0, 2, soon(20)));
        let garbage = connect_to_rank(&folder, 0);
        raw::send(&garbage, b"garbage, and enough of it", &[numbered(1)]);
        let silent = connect_to_rank(&folder, 0);
        drop(connect_to_rank(&folder, 0));
        // Descriptors came with garbage; both are refused, the first thing first.
        let said = raw::refusal(&garbage);
        assert!(said.starts_with("joining: it begins with "), "{said}");
        let second = Ranks::join(&folder.0, 1, 2, soon(20));
        let (mut first, mut second) = (first.join().unwrap().unwrap(), second.unwrap());
        let other = scope.spawn(move || second.vote(b"b", soon(20), |all| all.len()));
        assert_eq!(first.vote(b"a", soon(20), |all| all.len()).unwrap(), 2);
        assert_eq!(other.join().unwrap().unwrap(), 2);
        drop((garbage, silent));
    });
}

/// Every later operation gives the same error, at once; a group that has failed says nothing more.
fn kept() {
    let folder = Folder::new();
    let went = group(&folder.0, 2, |ranks| {
        let own = ranks.rank() == 1;
        if own {
            ranks.fail("first\nreason");
            ranks.fail("second reason");
        }
        let said = match own {
            true => "rank 1, this one, gave up: first\nreason",
            false => "rank 1 failed, as rank 1 says: first?reason",
        };
        for _ in 0..2 {
            let error = ranks.vote(b"", soon(20), |_| ()).unwrap_err();
            assert_eq!(
                (error.to_string().as_str(), error.culprits()),
                (said, vec![1])
            );
            let error = ranks.exchange(offered(1), soon(20)).unwrap_err();
            assert_eq!(error.to_string(), said);
        }
        Ok(())
    });
    assert!(went.iter().all(Result::is_ok), "{went:?}");
}
