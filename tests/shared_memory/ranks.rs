//! Eight ranks, each with memory that all others attach; and one of them failing at each step.

use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{Parcel, Ranks, RanksError};
use cuda_vmm::share::{ReadOnlySpan, SpanImport};
use cuda_vmm::{Access, HandleType, Reservation};

use crate::side::Side;
use crate::span::{checked, parcel, write_all};
use crate::surroundings::{open_fds, soon, Folder, Other};
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("ranks::eight_share_all_with_all", |side| {
        played(side, "nobody", "never")
    }),
    ("ranks::one_fails_before_joining", |side| {
        played(side, "error", "join")
    }),
    ("ranks::one_fails_after_joining", |side| {
        played(side, "error", "vote")
    }),
    ("ranks::one_fails_before_the_exchange", |side| {
        played(side, "error", "exchange")
    }),
    ("ranks::one_fails_to_attach", |side| {
        played(side, "error", "attach")
    }),
    ("ranks::one_fails_afterwards", |side| {
        played(side, "error", "end")
    }),
    ("ranks::one_is_killed_before_joining", |side| {
        played(side, "kill", "join")
    }),
    ("ranks::one_is_killed_after_joining", |side| {
        played(side, "kill", "vote")
    }),
    ("ranks::one_is_killed_during_the_exchange", |side| {
        played(side, "kill", "exchange")
    }),
    ("ranks::one_is_killed_with_all_attached", |side| {
        played(side, "kill", "end")
    }),
    ("ranks::one_hangs_during_the_exchange", |side| {
        played(side, "hang", "exchange")
    }),
];

pub const PARTS: &[Part] = &[("rank", rank)];

const COUNT: usize = 8;
/// The rank that fails.
const CULPRIT: usize = 5;

fn played(side: &Side, how: &str, step: &str) {
    let folder = Folder::new();
    let start = |rank| {
        let role = format!("rank|{}|{rank}|{how}|{step}", folder.0.display());
        Other::with_stdin(&side.role(&role), Stdio::piped())
    };
    let mut ranks: Vec<Other> = (0..COUNT).map(start).collect();
    // All have their memory before the first joins, so that none waits for another's driver to start.
    ranks
        .iter_mut()
        .for_each(|rank| assert_eq!(rank.line(), "here"));
    ranks
        .iter_mut()
        .for_each(|rank| drop(rank.child.stdin.take()));
    let started = Instant::now();
    let mut sums = Vec::new();
    for (rank, mut other) in ranks.into_iter().enumerate() {
        match (rank == CULPRIT, how) {
            (true, "kill") => drop(other.child.wait().unwrap()),
            (true, "error") => assert_eq!(other.ends(), "failed"),
            (true, "hang") => other.kill(),
            (_, "nobody") => sums.push(other.ends()),
            (..) => {
                let said = other.ends();
                assert!(said.starts_with("[5]: "), "rank {rank}: {said}");
                let reason = match (how, step) {
                    (_, "join") | ("hang", _) => "nothing more came from rank 5 by the deadline",
                    ("error", _) => "no memory for it",
                    _ => "the other end vanished during",
                };
                assert!(said.contains(reason), "rank {rank}: {said}");
            }
        }
    }
    // Everybody has read the same of everybody.
    assert!(sums.windows(2).all(|two| two[0] == two[1]), "{sums:?}");
    // Where nobody is to be waited for, nobody has waited for the time to be up.
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
}

/// What a rank has, beside its memory.
struct Rank<'a> {
    side: &'a Side,
    number: usize,
    folder: &'a Path,
    mine: &'a Reservation,
    deadline: Instant,
    ranks: Option<Ranks>,
    came: Vec<Parcel>,
    attached: Vec<ReadOnlySpan>,
}

const STEPS: [&str; 5] = ["join", "vote", "exchange", "attach", "end"];

fn rank(side: &Side, words: &[&str]) {
    let [folder, number, how, fails_at] = words else {
        panic!("{words:?}");
    };
    let fds = open_fds();
    let mut mine = side.reserve(3);
    for at in [0, 2] {
        mine.map(at * side.g, side.g, &side.props()).unwrap();
    }
    let number: usize = number.parse().unwrap();
    write_all(&mut mine, number as u64);
    println!("here");
    std::io::read_to_string(std::io::stdin()).unwrap();
    let mut rank = Rank {
        side,
        number,
        folder: Path::new(folder),
        mine: &mine,
        deadline: Instant::now(),
        ranks: None,
        came: Vec::new(),
        attached: Vec::new(),
    };
    let mut sum = Some(0_u64);
    for step in STEPS {
        // Where somebody is waited for in vain, nobody waits for long.
        let in_vain = step == *fails_at && (*how == "hang" || step == "join");
        rank.deadline = soon(if in_vain { 2 } else { 60 });
        if number == CULPRIT && step == *fails_at {
            rank.fail(how);
            sum = None;
            println!("failed");
            break;
        }
        if let Err(error) = rank.step(step) {
            let late = rank.deadline + Duration::from_millis(200);
            assert!(Instant::now() < late, "it was late");
            println!("{:?}: {error}", error.culprits());
            sum = None;
            break;
        }
    }
    for (at, span) in rank.attached.drain(..).enumerate() {
        let other = (if at < number { at } else { at + 1 }) as u64;
        let read = checked(&span, other);
        sum = sum.map(|sum| sum.wrapping_add(read));
        span.close().unwrap();
    }
    drop(rank);
    if let Some(sum) = sum {
        println!("{:x}", sum.wrapping_add(checked(&mine, number as u64)));
    }
    mine.close().unwrap();
    side.fds_are_back(fds);
}

impl Rank<'_> {
    fn step(&mut self, step: &str) -> Result<(), RanksError> {
        let deadline = self.deadline;
        match (step, &mut self.ranks) {
            ("join", _) => {
                self.ranks = Some(Ranks::join(self.folder, self.number, COUNT, deadline)?)
            }
            ("vote", Some(ranks)) => {
                let choice = self.side.device.choose_handle_type(&[HandleType::PosixFd]);
                let ballot = [u8::from(choice.unwrap().handle_type().is_some())];
                let all = ranks.vote(&ballot, deadline, |all| all.iter().all(|one| one == &[1]))?;
                assert!(all, "not all can share by descriptors");
            }
            ("exchange", Some(ranks)) => {
                self.came = ranks.exchange(parcel(self.mine, Access::Read), deadline)?;
            }
            ("attach", _) => {
                let came = self.came.drain(..).enumerate();
                let others = came.filter(|(rank, _)| *rank != self.number);
                for (_, Parcel { bytes, fds, .. }) in others {
                    let import = SpanImport::new(&bytes, fds).unwrap();
                    let span = import.attach_read_only(&self.side.driver, [&self.side.device]);
                    self.attached.push(span.unwrap());
                }
            }
            (_, Some(ranks)) => ranks.vote(b"", deadline, |_| ())?,
            (_, None) => unreachable!("they join first"),
        }
        Ok(())
    }

    fn fail(&mut self, how: &str) {
        match (how, &mut self.ranks) {
            ("error", Some(ranks)) => ranks.fail("no memory for it"),
            ("error", None) => {}
            // In the midst of what the others are at.
            ("kill", _) => unsafe {
                thread::sleep(Duration::from_millis(200));
                libc::kill(libc::getpid(), libc::SIGKILL);
            },
            (..) => thread::sleep(Duration::from_secs(60)),
        }
    }
}
