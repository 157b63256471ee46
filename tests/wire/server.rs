//! A server, and whom it lets in.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use cuda_vmm::share::wire::{fetch, Fetch, Name, Parcel, Server, ServerReport, Step, WireError};

use crate::exchange::same;
use crate::surroundings::*;
use crate::Case;

pub const CASES: &[Case] = &[
    ("server::serves_and_counts", serves_and_counts),
    ("server::lets_in_whom_the_closure_allows", allows),
    ("server::client_asks_whose_server_it_is", whose_server),
    (
        "server::refusals_are_kept_up_to_a_number",
        refusals_are_bounded,
    ),
    ("server::stopping_tells_clients", stopping_tells),
    (
        "server::stopping_tells_those_who_wait",
        stopping_tells_waiting,
    ),
    ("server::dropping_ends_it_in_a_forked_child_too", forked),
    ("server::few_at_once", few_at_once),
];

/// A name that no other process has.
pub fn name(of: &str) -> Name {
    Name::new(format!("cuda-vmm {of} {}", std::process::id()))
}

/// Waits until the server has had so many clients.
pub fn until_it_had(server: &Server, clients: u64) -> ServerReport {
    let until = soon(10);
    loop {
        let report = server.report();
        if report.served + report.refused >= clients {
            return report;
        }
        assert!(std::time::Instant::now() < until, "{report:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The reason of the only refusal.
#[track_caller]
pub fn only_refusal(report: &ServerReport) -> &WireError {
    assert_eq!((report.refused, report.recent.len()), (1, 1), "{report:?}");
    &report.recent[0].error
}

fn serves_and_counts() {
    let name = name("counts");
    let server = Server::builder(parcel(20_000, 9, 300))
        .serve(&name)
        .unwrap();
    assert_eq!(server.name(), &name);
    for _ in 0..5 {
        let received = fetch(&name, soon(5)).unwrap();
        is_parcel(&received.accept().unwrap(), 20_000, 9, 300);
    }
    fetch(&name, soon(5)).unwrap().refuse("no device");
    let report = until_it_had(&server, 6);
    assert_eq!((report.served, report.accept_failures), (5, 0));
    let (at, reason) = (Step::Answer, "no device".to_owned());
    same(only_refusal(&report), &WireError::Refused { at, reason });
    let peer = report.recent[0].peer.unwrap();
    assert_eq!(peer.pid(), std::process::id() as i32);
    assert!(peer.is_same_user());
    assert_eq!(server.stop().served, 5);
}

fn allows() {
    let name = name("allows");
    let asked = Arc::new(AtomicU32::new(0));
    let counting = Arc::clone(&asked);
    let server = Server::builder(parcel(1, 0, 1))
        .allow(move |peer| {
            assert_eq!(peer.pid(), std::process::id() as i32);
            match counting.fetch_add(1, Ordering::Relaxed) {
                0 => false,
                1 => std::panic::resume_unwind(Box::new("thrown")),
                _ => true,
            }
        })
        .serve(&name)
        .unwrap();
    let refused = |count| {
        let error = fetch(&name, soon(5)).unwrap_err();
        let report = until_it_had(&server, count);
        let refusal = &report.recent[count as usize - 1];
        let peer = refusal.peer.unwrap();
        same(&refusal.error, &WireError::NotAllowed { peer });
        let reason = refusal.error.to_string();
        let at = Step::Announcement;
        same(&error, &WireError::Refused { at, reason });
    };
    refused(1);
    refused(2);
    fetch(&name, soon(5)).unwrap().accept().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert_eq!(until_it_had(&server, 3).served, 1);
}

fn whose_server() {
    let name = name("whose");
    let server = Server::builder(parcel(1, 0, 1)).serve(&name).unwrap();
    let nobody = Fetch::new(&name).by(soon(5)).allow(|_| false);
    match nobody.receive().unwrap_err() {
        WireError::NotAllowed { peer } => assert_eq!(peer.pid(), std::process::id() as i32),
        other => panic!("{other:?}"),
    }
    match only_refusal(&until_it_had(&server, 1)) {
        WireError::Vanished { .. } => {}
        other => panic!("{other:?}"),
    }
}

fn refusals_are_bounded() {
    let name = name("bounded");
    let server = Server::builder(Parcel::default()).serve(&name).unwrap();
    for number in 0..70 {
        let received = fetch(&name, soon(5)).unwrap();
        received.refuse(&number.to_string());
        until_it_had(&server, number + 1);
    }
    let report = server.stop();
    assert_eq!((report.refused, report.recent.len()), (70, 64));
    let (at, reason) = (Step::Answer, "6".to_owned());
    same(&report.recent[0].error, &WireError::Refused { at, reason });
}

fn stopping_tells() {
    let name = name("stops");
    let server = Server::builder(parcel(1, 0, 1)).serve(&name).unwrap();
    let received = fetch(&name, soon(5)).unwrap();
    let report = server.stop();
    same(only_refusal(&report), &WireError::Stopped);
    let error = received.accept().unwrap_err();
    let (at, reason) = (Step::Answer, "the server has stopped".to_owned());
    same(&error, &WireError::Refused { at, reason });
    let nobody = WireError::NoServer { name: name.clone() };
    same(&fetch(&name, soon(5)).unwrap_err(), &nobody);
}

/// One that was never accepted hears it too.
fn stopping_tells_waiting() {
    let name = name("waiting");
    let server = Server::builder(parcel(1, 0, 1))
        .most_clients(1)
        .serve(&name)
        .unwrap();
    let first = fetch(&name, soon(5)).unwrap();
    let second = crate::server_clients::connect(&name);
    let report = server.stop();
    assert_eq!((report.served, report.refused), (0, 1));
    assert_eq!(crate::raw::refusal(&second), "the server has stopped");
    assert_eq!(crate::raw::receive(&second), []);
    drop(first);
}

/// The child has the server's value, not its thread: dropping it there neither waits nor takes the parent's file.
fn forked() {
    let folder = Folder::new();
    let name = Name::file(folder.0.join("name"));
    let server = Server::builder(parcel(1, 0, 1)).serve(&name).unwrap();
    match unsafe { libc::fork() } {
        0 => {
            drop(server);
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = -1;
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    assert_eq!(folder.names(), ["name"]);
    fetch(&name, soon(5)).unwrap().accept().unwrap();
    assert_eq!(server.stop().served, 1);
    assert_eq!(folder.names(), [""; 0]);
}

/// One at a time: the next waits until the first has answered, or its time is up.
fn few_at_once() {
    let name = name("few");
    let server = Server::builder(parcel(1, 0, 1))
        .most_clients(1)
        .client_timeout(Duration::from_millis(100))
        .serve(&name)
        .unwrap();
    let first = fetch(&name, soon(5)).unwrap();
    let second = fetch(&name, soon(5)).unwrap();
    second.accept().unwrap();
    let report = until_it_had(&server, 2);
    same(
        only_refusal(&report),
        &WireError::TimedOut { at: Step::Answer },
    );
    assert_eq!(report.served, 1);
    assert_eq!(first.parcel().fds.len(), 1);
    assert!(first.parcel().fds[0].as_fd().try_clone_to_owned().is_ok());
    let error = first.accept().unwrap_err();
    let (at, reason) = (
        Step::Answer,
        "no progress with the answer before the deadline".to_owned(),
    );
    same(&error, &WireError::Refused { at, reason });
}
