//! A server of device memory and its clients, each a process: 32 at once, and bad ones among good ones.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{Fetch, Name, Server, ServerReport};
use cuda_vmm::{Access, Reservation};

use crate::side::Side;
use crate::span::{attached_read_only, checked, made, parcel};
use crate::surroundings::{open_fds, soon, Other};
use crate::{raw, Case, Part};

pub const CASES: &[Case] = &[
    ("clients::thirty_two_at_once", thirty_two),
    ("clients::bad_ones_among_good_ones", bad_ones),
];

pub const PARTS: &[Part] = &[("client", client), ("bad_client", bad_client)];

fn name(of: &str) -> String {
    format!("shared memory, {of} {}", std::process::id())
}

/// Attaches what is served, and says what is in it.
fn client(side: &Side, words: &[&str]) {
    let name = Name::new(words[0]);
    let fetch = Fetch::new(&name).by(soon(60)).waiting_for_server();
    let span = attached_read_only(side, fetch.receive().unwrap());
    println!("{:x}", checked(&span, 0));
    span.close().unwrap();
}

fn thirty_two(side: &Side) {
    let name = name("thirty-two");
    let role = format!("client|{name}");
    // Most of them are there before the server is.
    let clients: Vec<Other> = (0..32).map(|_| side.other(&role)).collect();
    let (kv, server) = served(side, &name, Duration::from_secs(30));
    let sum = format!("{:x}", checked(&kv, 0));
    for client in clients {
        assert_eq!(client.ends(), sum);
    }
    let report = server.stop();
    assert_eq!((report.served, report.refused), (32, 0));
    kv.close().unwrap();
}

fn served(side: &Side, name: &str, timeout: Duration) -> (Reservation, Server) {
    let kv = made(side, 6, 2 * side.g);
    let server = Server::builder(parcel(&kv, Access::Read)).client_timeout(timeout);
    let server = server.serve(&Name::new(name)).unwrap();
    (kv, server)
}

/// What a bad client does, and what the server says of it.
const BAD: [(&str, &str); 7] = [
    (
        "garbage",
        "the consent: it begins with [6e, 6f, 74, 20], which is no message of this protocol",
    ),
    ("half", "the consent: 8 bytes, and 16 are due"),
    (
        "nothing",
        "no progress with the consent before the deadline",
    ),
    (
        "no_answer",
        "no progress with the answer before the deadline",
    ),
    (
        "too_many_fds",
        "0 descriptors were announced with the consent, and 200 came",
    ),
    (
        "an_answer_early",
        "the consent: a message of kind accepted came out of turn",
    ),
    ("gone", "the other end vanished during the consent"),
];

/// Each kind of bad client, several times, while good ones come and go. The bad ones have memory of their own, which
/// they send where nobody asked for it.
fn bad_ones(side: &Side) {
    let name = name("bad");
    let (kv, server) = served(side, &name, Duration::from_secs(3));
    let sum = format!("{:x}", checked(&kv, 0));
    let before = open_fds();
    let bad: Vec<Other> = BAD
        .iter()
        .map(|(how, _)| side.other(&format!("bad_client|{name}|{how}")))
        .collect();
    for _ in 0..3 {
        assert_eq!(side.other(&format!("client|{name}")).ends(), sum);
    }
    bad.into_iter().for_each(|bad| drop(bad.ends()));
    assert_eq!(side.other(&format!("client|{name}")).ends(), sum);
    let report = heard_of(&server, 4 + BAD.len() as u64);
    assert_eq!((report.served, report.refused), (4, BAD.len() as u64));
    let mut seen: Vec<String> = report
        .recent
        .iter()
        .map(|it| it.error.to_string())
        .collect();
    let mut expected = BAD.map(|(_, why)| why.to_owned());
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
    assert_eq!(open_fds(), before);
    drop(server);
    checked(&kv, 0);
    kv.close().unwrap();
}

/// The server has done with so many.
fn heard_of(server: &Server, clients: u64) -> ServerReport {
    let until = soon(20);
    loop {
        let report = server.report();
        if report.served + report.refused >= clients || Instant::now() > until {
            return report;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn bad_client(side: &Side, words: &[&str]) {
    let socket = connect(words[0]);
    let mine = made(side, 1, side.g);
    let fds = |count: usize| -> Vec<OwnedFd> {
        let fds = || parcel(&mine, Access::ReadWrite).fds;
        std::iter::repeat_with(fds).take(count).flatten().collect()
    };
    assert_eq!(raw::receive(&socket)[5], raw::ANNOUNCEMENT);
    match words[1] {
        "garbage" => raw::send(&socket, b"not a message, though long enough", &fds(2)),
        "half" => raw::send(&socket, &raw::consent()[..20], &[]),
        "nothing" => {}
        "no_answer" => raw::send(&socket, &raw::consent(), &[]),
        "too_many_fds" => raw::send(&socket, &raw::consent(), &fds(200)),
        "an_answer_early" => raw::send(&socket, &raw::message(raw::ACCEPTED, 0, b""), &[]),
        "gone" => {}
        other => panic!("{other}"),
    }
    if words[1] != "gone" {
        // Until the server has done with it; what it hands out meanwhile is not taken.
        while !raw::receive(&socket).is_empty() {}
    }
    mine.close().unwrap();
}

/// An unbroken connection to the server, and nothing said.
fn connect(name: &str) -> OwnedFd {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, kind, 0)) };
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    for (place, byte) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *place = byte as _;
    }
    let length = (3 + name.len()) as u32;
    let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    socket
}
