//! Groups that come together and exchange what they have.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use cuda_vmm::share::wire::{pair, Parcel, Ranks, RanksError, SocketKind, WireError};

use crate::exchange::KINDS;
use crate::surroundings::*;
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("ranks::eight_processes_vote_and_exchange", eight),
    ("ranks::a_group_of_one", alone),
    ("ranks::over_given_sockets", over_sockets),
    ("ranks::sockets_that_do_not_fit", bad_sockets),
    ("ranks::many_rounds_leave_nothing", many_rounds),
    ("ranks::folders_of_others", folders),
    ("ranks::stale_sockets_are_replaced", stale),
];

pub const PARTS: &[Part] = &[("rank", rank)];

/// Ranks of a group in threads of this process; what each of them returns.
pub fn group<T: Send>(
    folder: &Path,
    count: usize,
    play: impl Fn(&mut Ranks) -> Result<T, RanksError> + Sync,
) -> Vec<Result<T, RanksError>> {
    let play = &|rank| play(&mut Ranks::join(folder, rank, count, soon(20))?);
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..count)
            .map(|rank| scope.spawn(move || play(rank)))
            .collect();
        ranks.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

/// What rank `rank` gives to the others: of other sizes than every other's.
pub fn offered(rank: usize) -> Parcel {
    parcel(1000 * rank, rank as u32 * 1000, rank as u32 * 40)
}

#[track_caller]
pub fn is_offered(rank: usize, it: &Parcel) {
    is_parcel(it, 1000 * rank, rank as u32 * 1000, rank as u32 * 40);
}

fn common(ballots: &[Vec<u8>]) -> u8 {
    ballots.iter().fold(!0, |common, ballot| common & ballot[0])
}

/// One of the eight: what they can all do is only seen in all ballots together.
fn rank(words: &[&str]) {
    let (folder, rank) = (words[0], words[1].parse().unwrap());
    let before = open_fds();
    let mut ranks = Ranks::join(folder, rank, 8, soon(30)).unwrap();
    assert_eq!((ranks.rank(), ranks.count()), (rank, 8));
    let ballot = [0b1_0001_u8 | !(1 << (rank % 4 + 1))];
    let decision = ranks.vote(&ballot, soon(30), common).unwrap();
    let all = ranks.exchange(offered(rank), soon(30)).unwrap();
    assert_eq!(all.len(), 8);
    for (rank, parcel) in all.iter().enumerate() {
        is_offered(rank, parcel);
    }
    // Nobody leaves before all are here.
    ranks
        .vote(b"", soon(30), |ballots| assert_eq!(ballots, [b""; 8]))
        .unwrap();
    drop((ranks, all));
    assert_eq!(open_fds(), before);
    println!("{decision:#b}");
}

fn eight() {
    let folder = Folder::new();
    let meet = folder.0.join("meet");
    let ranks: Vec<Other> = (0..8)
        .map(|rank| Other::start(&format!("rank|{}|{rank}", meet.display())))
        .collect();
    for rank in ranks {
        assert_eq!(rank.ends(), "0b11110001");
    }
    // The folder was made private, and is empty.
    assert_eq!(
        fs::metadata(&meet).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(fs::read_dir(&meet).unwrap().count(), 0);
}

fn alone() {
    let folder = Folder::new();
    let mut ranks = Ranks::join(&folder.0, 0, 1, soon(5)).unwrap();
    assert_eq!(
        ranks.vote(b"x", soon(5), |all| all.to_vec()).unwrap(),
        [b"x"]
    );
    let all = ranks.exchange(offered(3), soon(5)).unwrap();
    assert_eq!(all.len(), 1);
    is_offered(3, &all[0]);
    let extra = Ranks::join(&folder.0, 1, 1, soon(5)).unwrap_err();
    assert_eq!(
        extra.to_string(),
        "rank 1 is one too many: there are 1, from 0"
    );
    assert!(matches!(extra, RanksError::Extra { rank: 1, count: 1 }));
}

/// A connected socket for every pair of ranks.
fn sockets(count: usize, kind: SocketKind) -> Vec<Vec<Option<OwnedFd>>> {
    let mut all: Vec<Vec<Option<OwnedFd>>> = Vec::new();
    for rank in 0..count {
        // One to each lower rank, whose row gets the other end; the own place; those to higher ranks come with theirs.
        let mut row = Vec::new();
        for lower in &mut all {
            let (here, there) = pair(kind).unwrap();
            row.push(Some(here));
            lower.push(Some(there));
        }
        row.push(None);
        assert_eq!(row.len(), rank + 1);
        all.push(row);
    }
    all
}

fn over_sockets() {
    for kind in KINDS {
        thread::scope(|scope| {
            for (rank, sockets) in sockets(4, kind).into_iter().enumerate() {
                scope.spawn(move || {
                    let mut ranks = Ranks::over(rank, sockets, soon(20)).unwrap();
                    let sum = |all: &[Vec<u8>]| all.iter().map(|it| it[0]).sum::<u8>();
                    assert_eq!(ranks.vote(&[1 << rank], soon(20), sum).unwrap(), 15);
                    let all = ranks.exchange(offered(rank), soon(20)).unwrap();
                    (0..4).zip(&all).for_each(|(rank, it)| is_offered(rank, it));
                });
            }
        });
    }
}

fn bad_sockets() {
    for (rank, change) in [(1, 0), (0, 0), (5, 0)] {
        let mut given = sockets(3, SocketKind::Packets).swap_remove(1);
        if rank == 1 {
            given[change] = None;
        }
        match Ranks::over(rank, given, soon(5)).unwrap_err() {
            RanksError::Sockets { rank: named, count } => assert_eq!((named, count), (rank, 3)),
            other => panic!("{other:?}"),
        }
    }
    // Two ranks' sockets exchanged: whoever is on the wrong one is named on all.
    let mut all = sockets(3, SocketKind::Packets);
    all[0].swap(1, 2);
    let errors: Vec<RanksError> = thread::scope(|scope| {
        let ranks: Vec<_> = all
            .into_iter()
            .enumerate()
            .map(|(rank, given)| {
                {
                    // The others learn of it at the first round, if not before.
                    let play =
                        move || Ranks::over(rank, given, soon(20))?.vote(b"", soon(20), |_| ());
                    scope.spawn(move || play().unwrap_err())
                }
            })
            .collect();
        ranks.into_iter().map(|it| it.join().unwrap()).collect()
    });
    match &errors[0] {
        RanksError::Duplicate { rank: 1 | 2 } => {}
        other => panic!("{other:?}"),
    }
    for error in &errors[1..] {
        assert_eq!(error.culprits(), errors[0].culprits(), "{errors:?}");
    }
}

fn many_rounds() {
    let folder = Folder::new();
    let before = open_fds();
    let flat = group(&folder.0, 3, |ranks| {
        for round in 0..200_u32 {
            let all = ranks.exchange(parcel(10, round, 2), soon(20))?;
            all.iter().for_each(|it| is_parcel(it, 10, round, 2));
        }
        Ok(ranks.rank())
    });
    let flat: Vec<usize> = flat.into_iter().map(Result::unwrap).collect();
    assert_eq!(flat, [0, 1, 2]);
    assert_eq!(open_fds(), before);
}

fn folders() {
    let folder = Folder::new();
    let join = |path: &Path| Ranks::join(path, 0, 1, soon(5));
    let open = folder.0.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
    match join(&open).unwrap_err() {
        RanksError::NotPrivate { path, owner, mode } => {
            assert_eq!((path, mode), (open.clone(), 0o750));
            assert_eq!(owner, unsafe { libc::geteuid() });
        }
        other => panic!("{other:?}"),
    }
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(&folder.0, &link).unwrap();
    let error = join(&link).unwrap_err();
    assert!(matches!(error, RanksError::NotPrivate { .. }), "{error:?}");
    let long = folder.0.join("d".repeat(120));
    match join(&long).unwrap_err() {
        RanksError::Local { rank: 0, error } => match &*error {
            WireError::NameTooLong { length, limit, .. } => {
                assert_eq!((*length, *limit), (long.as_os_str().len() + 7, 107));
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn stale() {
    let folder = Folder::new();
    for rank in 0..3 {
        drop(UnixListener::bind(folder.0.join(format!("rank-{rank}"))).unwrap());
    }
    for count in group(&folder.0, 3, |ranks| {
        ranks.vote(b"v", soon(20), |all| all.len())
    }) {
        assert_eq!(count.unwrap(), 3);
    }
    assert_eq!(folder.names(), [""; 0]);
}
