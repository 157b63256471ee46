//! Processes that may have few descriptors open: what does not fit is an error that says so, nothing of it is kept, and
//! what fits goes on to work.

use std::mem;

use cuda_vmm::share::wire::{
    fetch, pair, send_parcel, Name, Parcel, Server, SocketKind, WireError,
};
use cuda_vmm::share::SpanImport;
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, BadFd, Error, HandleType};

use crate::side::Side;
use crate::span::{attached_read_only, checked, checked_in, made, parcel, receive, stdin};
use crate::surroundings::{open_fds, soon, Other};
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("limits::importer_with_64_files", importer_limited),
    ("limits::exporter_with_64_files", exporter_limited),
];

pub const PARTS: &[Part] = &[
    ("imports_with_64_files", imports_with_64),
    ("exports_with_64_files", |side, _| exports_with_64(side)),
];

/// What fits into a limit of 64; what fits, but not twice; and what does not.
const FEW: usize = 8;
const MORE: usize = 30;
const MANY: usize = 100;

/// This process may have 64 descriptors open; or, where a driver has more than a few open for itself, 40 more than it
/// has now.
fn limit_to_64() -> i32 {
    let limit = 64.max(open_fds() as i32 + 40);
    let limits = libc::rlimit {
        rlim_cur: limit as u64,
        rlim_max: limit as u64,
    };
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limits) }, 0);
    limit
}

fn is_open(fd: i32) -> bool {
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

fn importer_limited(side: &Side) {
    let spans = [FEW, MORE, MANY].map(|pieces| made(side, pieces, side.g));
    let names = [FEW, MORE, MANY].map(|pieces| format!("limits {pieces} {}", std::process::id()));
    let serve = |at: usize| {
        let served = parcel(&spans[at], Access::Read);
        Server::builder(served)
            .serve(&Name::new(&names[at]))
            .unwrap()
    };
    let servers = [0, 1, 2].map(serve);
    let role = format!("imports_with_64_files|{}", names.join("|"));
    let told = side.other(&role).ends();
    let few = format!("{:x}", checked(&spans[0], 0));
    let told: Vec<&str> = told.lines().collect();
    assert_eq!((told[0], told[3]), (few.as_str(), few.as_str()), "{told:?}");
    let [few, more, many] = servers.map(Server::stop);
    assert_eq!((few.served, few.refused), (2, 0));
    match more.served {
        1 => assert_eq!(told[1], format!("{:x}", checked(&spans[1], 0))),
        _ => refused_because(&more.recent[0].error, told[1]),
    }
    assert_eq!((many.served, many.refused), (0, 1));
    refused_because(&many.recent[0].error, told[2]);
    spans.into_iter().for_each(|span| span.close().unwrap());
}

#[track_caller]
fn refused_because(error: &WireError, why: &str) {
    match error {
        WireError::Refused { reason, .. } => assert_eq!(reason, why),
        other => panic!("{other:?}"),
    }
}

/// Gets three spans, and the first once more; says of each what is in it, or why it could not be had.
fn imports_with_64(side: &Side, names: &[&str]) {
    let limit = limit_to_64();
    let (fds, free) = (open_fds(), side.free());
    for (name, pieces) in
        [(0, FEW), (1, MORE), (2, MANY), (0, FEW)].map(|(at, pieces)| (names[at], pieces))
    {
        let mut received = match fetch(&Name::new(name), soon(30)) {
            Ok(received) => received,
            Err(error @ WireError::ControlTruncated { received }) if pieces == MANY => {
                // As many as there were numbers left below the limit, but for the socket's.
                let left = (0..limit).filter(|fd| !is_open(*fd)).count();
                assert_eq!(received, left - 1);
                println!("{error}");
                continue;
            }
            Err(other) => panic!("{pieces} pieces: {other:?}"),
        };
        let Parcel { bytes, fds, .. } = mem::take(received.parcel_mut());
        let import = SpanImport::new(&bytes, fds).unwrap();
        match import.attach_read_only(&side.driver, [&side.device]) {
            Ok(span) => {
                received.accept().unwrap();
                println!("{:x}", checked(&span, 0));
                span.close().unwrap();
            }
            // An import of the simulated driver takes a descriptor too.
            Err(
                error @ Error::NotAnExport {
                    why: BadFd::Unknown { .. },
                    ..
                },
            ) if pieces == MORE && !side.sees_the_others() => {
                received.refuse(&error.to_string());
                println!("{error}");
            }
            Err(other) => panic!("{pieces} pieces: {other:?}"),
        }
    }
    assert_eq!(open_fds(), fds);
    side.is_back(free);
}

fn exporter_limited(side: &Side) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let mut exporter = Other::with_stdin(&side.role("exports_with_64_files"), there);
    let told = exporter.line();
    assert!(told.starts_with("cuMemExportToShareableHandle ("), "{told}");
    let span = attached_read_only(side, receive(here));
    assert_eq!(span.mappings().count(), FEW);
    let sum = checked(&span, 0);
    span.close().unwrap();
    assert_eq!(exporter.ends(), format!("{sum:x}"));
}

/// Exports more than it may have open, and then what it may.
fn exports_with_64(side: &Side) {
    limit_to_64();
    // A piece that can be shared takes a descriptor of the simulated driver.
    let pieces = if side.sees_the_others() { MANY } else { 40 };
    let kv = made(side, pieces, side.g);
    let before = (open_fds(), side.sim.as_ref().map(|sim| sim.snapshot()));
    let export = |size| kv.export_span(0, size, HandleType::PosixFd, Access::ReadWrite);
    match export(kv.size()).unwrap_err() {
        Error::Driver(failure) if failure.call == Call::cuMemExportToShareableHandle => {
            println!("{failure}");
        }
        other => panic!("{other:?}"),
    }
    let after = (open_fds(), side.sim.as_ref().map(|sim| sim.snapshot()));
    assert_eq!(after, before);
    let (bytes, fds, _) = export(FEW * side.g).unwrap().into_parts();
    send_parcel(stdin(), &Parcel::new(bytes, fds), Some(soon(30))).unwrap();
    println!("{:x}", checked_in(&kv, 0..FEW * side.g, 0));
    kv.close().unwrap();
}
