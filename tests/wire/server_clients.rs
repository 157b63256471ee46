//! Many clients, and bad ones among them, each in a process or on a socket of its own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{fetch, Fetch, Name, Server, Step, WireError};

use crate::exchange::same;
use crate::raw;
use crate::server::{name, until_it_had};
use crate::surroundings::*;
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("server_clients::thirty_two_processes_at_once", thirty_two),
    ("server_clients::a_hundred_cost_the_same_each", a_hundred),
    ("server_clients::bad_ones_harm_no_other", bad_ones),
    ("server_clients::server_at_its_limit_of_files", at_the_limit),
];

pub const PARTS: &[Part] = &[("client", client), ("server_at_its_limit", limited_server)];

/// Fetches what `thirty_two` serves, from the server of that name.
fn client(words: &[&str]) {
    let name = Name::new(words[0]);
    let wait = Fetch::new(&name).by(soon(30)).waiting_for_server();
    let received = wait.receive().unwrap();
    is_parcel(received.parcel(), 5000, 1, 40);
    received.accept().unwrap();
}

pub fn text(name: &Name) -> String {
    match name {
        Name::Abstract(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        Name::File(path) => path.to_str().unwrap().to_owned(),
    }
}

fn thirty_two() {
    let name = name("thirty-two");
    let role = format!("client|{}", text(&name));
    // They are there before the server is.
    let clients: Vec<Other> = (0..32).map(|_| Other::start(&role)).collect();
    let server = Server::builder(parcel(5000, 1, 40)).serve(&name).unwrap();
    for client in clients {
        client.ends();
    }
    let report = server.stop();
    assert_eq!((report.served, report.refused), (32, 0));
}

/// An unbroken connection to the server, and nothing said.
pub fn connect(name: &Name) -> OwnedFd {
    let socket = raw::socket();
    let Name::Abstract(bytes) = name else {
        panic!("{name}");
    };
    let (address, length) = raw::address(bytes);
    let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    // The standard library has the same idea of the name.
    assert!(SocketAddr::from_abstract_name(bytes).is_ok());
    socket
}

/// So many clients at once on the server: those that wait do not make it dearer for each.
fn a_hundred() {
    let name = name("hundred");
    let server = Server::builder(parcel(2000, 1, 64)).serve(&name).unwrap();
    let per_client = |count: usize| {
        let started = Instant::now();
        let received: Vec<_> = (0..count)
            .map(|_| fetch(&name, soon(30)).unwrap())
            .collect();
        for received in received {
            received.accept().unwrap();
        }
        started.elapsed() / count as u32
    };
    // Whatever else the machine does makes it slower, never faster; so the best of each counts. A cost that grows with
    // the clients is there every time.
    let mut best = [Duration::MAX; 3];
    let mut clients = 0;
    for turn in 0..40 {
        for (best, count) in best.iter_mut().zip([1, 10, 100]) {
            *best = per_client(count).min(*best);
            clients += count as u64;
        }
        if turn >= 4 && best[2] < best[1] * 2 {
            break;
        }
    }
    let [one, ten, hundred] = best;
    println!("a client: {one:?} of 1, {ten:?} of 10, {hundred:?} of 100");
    assert!(hundred < ten * 2, "{ten:?} of 10, {hundred:?} of 100");
    until_it_had(&server, clients);
    let report = server.stop();
    assert_eq!((report.served, report.refused), (clients, 0));
}

fn bad_ones() {
    let name = name("bad");
    let server = Server::builder(parcel(5000, 1, 40))
        .client_timeout(Duration::from_millis(400))
        .serve(&name)
        .unwrap();
    // Nothing; garbage; half a consent; descriptors that nobody asked for; gone at once; consent and then silence.
    let silent = connect(&name);
    let garbage = connect(&name);
    raw::send(&garbage, b"not a message, though long enough", &[]);
    let half = connect(&name);
    raw::send(&half, &raw::consent()[..20], &[]);
    let generous = connect(&name);
    raw::send(
        &generous,
        &raw::consent(),
        &(0..200).map(numbered).collect::<Vec<_>>(),
    );
    drop(connect(&name));
    let sleepy = connect(&name);
    raw::send(&sleepy, &raw::consent(), &[]);

    let started = Instant::now();
    for _ in 0..20 {
        let received = fetch(&name, soon(5)).unwrap();
        is_parcel(&received.accept().unwrap(), 5000, 1, 40);
    }
    assert!(
        started.elapsed() < Duration::from_millis(400),
        "they waited for the bad ones"
    );
    let report = until_it_had(&server, 26);
    assert_eq!((report.served, report.refused), (20, 6));
    let mut seen: Vec<String> = report
        .recent
        .iter()
        .map(|it| it.error.to_string())
        .collect();
    seen.sort();
    let expected = [
        "0 descriptors were announced with the consent, and 200 came",
        "no progress with the answer before the deadline",
        "no progress with the consent before the deadline",
        "the consent: 8 bytes, and 16 are due",
        "the consent: it begins with [6e, 6f, 74, 20], which is no message of this protocol",
        "the other end vanished during the announcement",
    ];
    // The one that went at once may have been seen a step later.
    let seen: Vec<_> = seen
        .iter()
        .map(|it| it.replace("during the consent", "during the announcement"))
        .collect();
    assert_eq!(seen, expected);
    drop((silent, garbage, half, generous, sleepy));
    drop(server);
}

/// The server can accept no more than it may have open files; those it cannot accept are served when others have gone.
fn at_the_limit() {
    let name = name("limit");
    let mut server = Other::start(&format!("server_at_its_limit|{}", text(&name)));
    assert_eq!(server.line(), "serving");
    let idle: Vec<OwnedFd> = (0..60).map(|_| connect(&name)).collect();
    // Until some of those have run out of time, nobody else is accepted.
    let received = fetch(&name, soon(20)).unwrap();
    is_parcel(&received.accept().unwrap(), 100, 1, 20);
    drop(idle);
    let said = server.ends();
    let failures: u64 = said.parse().unwrap();
    assert!(failures > 0, "the limit was never reached");
}

fn limited_server(words: &[&str]) {
    let limit = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let server = Server::builder(parcel(100, 1, 20))
        .client_timeout(Duration::from_millis(300))
        .serve(&Name::new(words[0]))
        .unwrap();
    println!("serving");
    let report = until_it_had(&server, 61);
    assert_eq!((report.served, report.refused), (1, 60));
    for refusal in &report.recent {
        // In time, or gone when the client that waited for them was served.
        match &*refusal.error {
            WireError::TimedOut { at } => assert_eq!(*at, Step::Consent),
            other => same(other, &WireError::Vanished { at: Step::Consent }),
        }
    }
    println!("{}", server.stop().accept_failures);
}
