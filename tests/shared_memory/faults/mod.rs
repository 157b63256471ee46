//! Every call of the whole way made to fail, the driver's and the socket's, on either side: export, serve or send,
//! fetch or receive, attach, read, close.
//!
//! One process plays the side that fails, another the one that does not. After each failure the error is that call's,
//! nothing is left on either side, the other side has been told without waiting for its deadline, and the same thing
//! done again works.

mod exporter;
mod honest;
mod importer;
mod span;

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::faults::{self, Syscall};
use cuda_vmm::share::wire::WireError;
use cuda_vmm::sim::{Fault, Snapshot};
use cuda_vmm::sys::CUresult;
use cuda_vmm::{CloseError, Error};

use crate::side::Side;
use crate::surroundings::open_fds;
use crate::{Case, Part};

/// The driver's calls can be made to fail on the simulated driver alone.
pub const SIMULATED: &[Case] = &[
    ("faults::driver_calls_of_an_exporter_that_sends", |side| {
        driver_calls(side, exporter::Stage::new(side, Way::Socket))
    }),
    ("faults::driver_calls_of_an_exporter_that_serves", |side| {
        driver_calls(side, exporter::Stage::new(side, Way::Server))
    }),
    (
        "faults::driver_calls_of_an_importer_that_receives",
        |side| driver_calls(side, importer::Stage::new(side, Way::Socket)),
    ),
    ("faults::driver_calls_of_an_importer_that_fetches", |side| {
        driver_calls(side, importer::Stage::new(side, Way::Server))
    }),
];

pub const CASES: &[Case] = &[
    ("faults::socket_calls_of_an_exporter_that_sends", |side| {
        socket_calls(side, exporter::Stage::new(side, Way::Socket))
    }),
    ("faults::socket_calls_of_an_exporter_that_serves", |side| {
        socket_calls(side, exporter::Stage::new(side, Way::Server))
    }),
    (
        "faults::socket_calls_of_an_importer_that_receives",
        |side| socket_calls(side, importer::Stage::new(side, Way::Socket)),
    ),
    ("faults::socket_calls_of_an_importer_that_fetches", |side| {
        socket_calls(side, importer::Stage::new(side, Way::Server))
    }),
];

pub const PARTS: &[Part] = &[("takes", honest::takes), ("gives", honest::gives)];

const CODES: [CUresult; 4] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

const ERRNOS: [i32; 3] = [libc::EIO, libc::EMFILE, libc::EPIPE];

/// How the span gets to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One parcel over a stream socket.
    Socket,
    /// From a server, over packets.
    Server,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Socket => "socket",
            Way::Server => "server",
        }
    }

    fn of(word: &str) -> Way {
        match word {
            "socket" => Way::Socket,
            "server" => Way::Server,
            other => panic!("{other}"),
        }
    }
}

/// Where the way ended.
#[derive(Debug)]
enum Trouble {
    Driver(Error),
    Wire(WireError),
    /// What is still held is in it.
    Close(Box<CloseError>),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Driver(error)
    }
}

impl From<WireError> for Trouble {
    fn from(error: WireError) -> Trouble {
        Trouble::Wire(error)
    }
}

/// How one time went: on this side, what the other side says, and the system calls that were counted.
struct Went {
    here: Result<(), Trouble>,
    there: String,
    calls: Vec<Syscall>,
}

/// The side that fails.
trait Faulty {
    /// Goes the whole way once. `fault` is called when all is prepared.
    fn go(&mut self, fault: &dyn Fn()) -> Went;

    /// What the other side may say when a driver call has failed here.
    fn told(&self, trouble: &Trouble, there: &str) -> bool;

    /// The same of a system call.
    fn heard(&self, failed: Syscall, here: &Result<(), WireError>, there: &str) -> bool;

    /// Nothing is left at the other side.
    fn end(self);
}

/// All that this side has; what is on the thread's stack of contexts belongs to no span.
fn state(side: &Side) -> (usize, Option<Snapshot>) {
    let snapshot = side.sim.as_ref().map(|sim| sim.snapshot());
    (open_fds(), snapshot)
}

/// Nothing is left that was not there before, once what a failed close has kept is closed and what the driver would not
/// take is reclaimed. The other side may still be about to let go.
#[track_caller]
fn leaves(side: &Side, before: &(usize, Option<Snapshot>), what: &str) {
    side.driver.reclaim().unwrap();
    side.holds_nothing();
    side.fds_are_back(before.0);
    assert_eq!(&state(side), before, "{what}");
}

fn in_time(since: Instant, what: &str) {
    let took = since.elapsed();
    assert!(took < Duration::from_secs(10), "{what} took {took:?}");
}

fn driver_calls(side: &Side, mut faulty: impl Faulty) {
    let sim = side.sim.as_ref().unwrap();
    let (mut tried, mut closes) = (0, 0);
    for code in CODES {
        for nth in 1.. {
            let before = state(side);
            let fault = Fault::any_nth(nth).code(code);
            let started = Instant::now();
            let Went { here, there, .. } = faulty.go(&|| sim.inject(fault).unwrap());
            if !sim.pending_faults().is_empty() {
                sim.clear_faults();
                here.unwrap();
                assert_eq!(there, honest::WELL);
                break;
            }
            let what = format!("{fault}: {here:?}; the other side: {there}");
            in_time(started, &what);
            let trouble = here.expect_err(&what);
            assert!(faulty.told(&trouble, &there), "{what}");
            match trouble {
                Trouble::Driver(error) => assert_eq!(error.code(), Some(code.into()), "{what}"),
                Trouble::Close(failed) => {
                    closes += 1;
                    assert_eq!(failed.error.code(), Some(code.into()), "{what}");
                    failed.reservation.into_inner().close().unwrap();
                }
                Trouble::Wire(error) => panic!("{what}: {error}"),
            }
            leaves(side, &before, &what);
            again(side, &mut faulty, &before, &what);
            tried += 1;
        }
    }
    assert!(
        0 < closes && closes < tried,
        "{closes} of {tried} in the close"
    );
    faulty.end();
    println!("{tried} failing driver calls");
}

/// What failed works the next time.
fn again(side: &Side, faulty: &mut impl Faulty, before: &(usize, Option<Snapshot>), what: &str) {
    let Went { here, there, .. } = faulty.go(&|| {});
    here.unwrap_or_else(|trouble| panic!("once more after {what}: {trouble:?}"));
    assert_eq!(there, honest::WELL, "once more after {what}");
    leaves(side, before, what);
}

fn socket_calls(side: &Side, mut faulty: impl Faulty) {
    let mut tried = 0;
    for errno in ERRNOS {
        for index in 0.. {
            let before = state(side);
            let started = Instant::now();
            let Went { here, there, calls } = faulty.go(&|| faults::start(Some((index, errno))));
            let Some(&failed) = calls.get(index) else {
                here.unwrap();
                assert_eq!(there, honest::WELL);
                break;
            };
            let what = format!("call {index}, {failed:?}, with {errno}: {here:?}; there: {there}");
            in_time(started, &what);
            let here = here.map_err(|trouble| match trouble {
                Trouble::Wire(error) => error,
                other => panic!("{what}: {other:?}"),
            });
            if let Err(error) = &here {
                assert!(is_of(error, failed, errno), "{what}");
            }
            assert!(faulty.heard(failed, &here, &there), "{what}");
            leaves(side, &before, &what);
            again(side, &mut faulty, &before, &what);
            tried += 1;
        }
    }
    assert!(tried >= 3 * 6, "{tried}");
    faulty.end();
    println!("{tried} failing system calls");
}

/// The error is that very call's; a broken pipe means that the other side is gone.
fn is_of(error: &WireError, call: Syscall, errno: i32) -> bool {
    match error {
        WireError::Io { error, .. } => error.raw_os_error() == Some(errno),
        WireError::Vanished { .. } => (call, errno) == (Syscall::Sendmsg, libc::EPIPE),
        _ => false,
    }
}

/// The other side has heard the reason, or seen the end.
fn was_told(there: &str, why: &str) -> bool {
    // As much of the reason as travels.
    let why: String = why.chars().take(400).collect();
    let heard = there.starts_with("the other end refused during ") && there.contains(&why);
    heard || there.starts_with("the other end vanished during ")
}

fn connect(path: &std::path::Path) -> UnixStream {
    UnixStream::connect(path).unwrap()
}
