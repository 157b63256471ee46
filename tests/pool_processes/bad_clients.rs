//! Clients that say garbage, nothing, half a hello, or a hello with a wrong version or rank: many at once, and no
//! consumer notices.

use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::PoolError;
use cuda_vmm::wire::{Fetch, Name};

use crate::scene::*;
use crate::side::Side;
use crate::surroundings::{open_fds, soon};
use crate::{raw, Case};

pub const CASES: &[Case] = &[
    ("bad_clients::many_at_once", many_at_once),
    (
        "bad_clients::a_hello_that_is_not_followed_up",
        half_attached,
    ),
    ("bad_clients::wrong_versions_and_ranks", wrong_hellos),
];

/// The hello of the transport.
const HELLO: u8 = 9;

/// What a consumer says: the protocol's version, and its rank.
fn hello(version: u8, rank: u32) -> Vec<u8> {
    let mut bytes = b"CVPH".to_vec();
    bytes.push(version);
    bytes.extend(rank.to_le_bytes());
    bytes
}

/// A connection to the service, and nothing said.
fn connect(name: &str) -> OwnedFd {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, kind, 0)) };
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    for (place, byte) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *place = byte as _;
    }
    let length = (3 + name.len()) as u32;
    let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    socket
}

/// Open descriptors, once the service has closed its copies of what it passed on.
fn fds_at_rest() -> usize {
    loop {
        let fds = open_fds();
        thread::sleep(Duration::from_millis(50));
        if open_fds() == fds {
            return fds;
        }
    }
}

fn many_at_once(side: &Side) {
    let name = name("bad clients");
    let pool = serve(side, &name, 1, 3);
    let before = open_fds();
    let first = attach(side, &name, 0);
    let each = fds_at_rest() - before;
    let mut sockets = Vec::new();
    for _ in 0..8 {
        let said = [
            Vec::new(),
            b"no message, and long enough to be one".to_vec(),
            raw::message(HELLO, 0, &hello(1, 1))[..15].to_vec(),
            raw::message(HELLO, 0, b"CVPHello"),
            raw::message(HELLO, 0, b""),
            raw::message(HELLO, 0, &[0xff; 4000]),
            raw::message(HELLO, 0, &hello(9, 1)),
            raw::message(HELLO, 0, &hello(1, 3)),
            raw::message(HELLO, 0, &hello(1, u32::MAX)),
            raw::message(HELLO, 0, &hello(1, 0)),
            raw::message(raw::ACCEPTED, 0, b""),
        ];
        for message in said {
            let socket = connect(&name);
            if !message.is_empty() {
                raw::send(&socket, &message, &[]);
            }
            sockets.push(socket);
        }
        drop(connect(&name));
    }
    let started = Instant::now();
    let second = attach(side, &name, 2);
    for sequence in 0..30 {
        let published = publish(&pool.publisher(), sequence, 4000);
        for consumer in [&first, &second] {
            checked(consumer.open(published.ticket()).unwrap(), sequence)
                .finish()
                .unwrap();
        }
        // Rank 1 is waited for.
        assert_eq!(pool.publisher().cancel(published.id()).unwrap(), 0);
        assert_eq!(pool.counters().busy, 0);
    }
    // The service waits 5 seconds for a client that says nothing.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(4), "it took {took:?}");
    let counters = pool.counters();
    let attached = counters.consumers.iter().map(|it| it.is_attached);
    assert_eq!(attached.collect::<Vec<_>>(), [true, false, true]);
    assert_eq!((counters.reclaimed, counters.absent), (0, 0));
    drop(sockets);
    let third = attach(side, &name, 1);
    // Of the others nothing is left.
    side.fds_are_back(before + 3 * each);
    for consumer in [first, second, third] {
        assert!(consumer.is_connected());
        consumer.close().unwrap();
    }
    is_idle(&pool.close(soon(5)).unwrap());
}

/// A client says hello with a free rank, gets the pool, and goes or stays without accepting it. What is published for
/// that rank stays there for a consumer.
fn half_attached(side: &Side) {
    let name = name("half attached");
    let pool = serve(side, &name, 1, 2);
    let one = attach(side, &name, 0);
    let early = publish(&pool.publisher(), 1, 3000);
    let half = connect(&name);
    raw::send(&half, &raw::message(HELLO, 0, &hello(1, 1)), &[]);
    assert_eq!(raw::receive(&half)[5], raw::ANNOUNCEMENT);
    let meanwhile = publish(&pool.publisher(), 2, 3000);
    checked(one.open(early.ticket()).unwrap(), 1)
        .finish()
        .unwrap();
    drop(half);
    counters_once(&pool, Duration::from_secs(2), |it| {
        !it.consumers[1].is_attached
    });
    let counters = pool.counters();
    assert_eq!(counters.consumers[1].held, 2, "{counters:?}");
    assert_eq!(counters.reclaimed, 0, "{counters:?}");
    let two = attach(side, &name, 1);
    for (ticket, sequence) in [(&early, 1), (&meanwhile, 2)] {
        checked(two.open(ticket.ticket()).unwrap(), sequence)
            .finish()
            .unwrap();
    }
    checked(one.open(meanwhile.ticket()).unwrap(), 2)
        .finish()
        .unwrap();
    // Once it was attached, it is gone when it ends, half attached or not.
    two.close().unwrap();
    counters_once(&pool, Duration::from_secs(2), |it| {
        !it.consumers[1].is_attached
    });
    let half = connect(&name);
    raw::send(&half, &raw::message(HELLO, 0, &hello(1, 1)), &[]);
    assert_eq!(raw::receive(&half)[5], raw::ANNOUNCEMENT);
    let third = publish(&pool.publisher(), 3, 3000);
    drop(half);
    checked(one.open(third.ticket()).unwrap(), 3)
        .finish()
        .unwrap();
    let counters = counters_once(&pool, Duration::from_secs(2), |it| it.busy == 0);
    assert_eq!((counters.reclaimed, counters.absent), (1, 0));
    one.close().unwrap();
    is_idle(&pool.close(soon(5)).unwrap());
}

fn wrong_hellos(side: &Side) {
    let name = name("wrong hellos");
    let pool = serve(side, &name, 1, 2);
    let one = attach(side, &name, 0);
    let answer = |hello: Vec<u8>| {
        let name = Name::new(&name);
        let received = Fetch::new(&name).by(soon(5)).hello(hello).receive();
        received.map(|mut received| mem::take(received.parcel_mut()).bytes)
    };
    // The version that the producer knows; the rank and the number of consumers; the rank that is taken.
    assert_eq!(answer(hello(2, 1)).unwrap(), b"CVPW\x01\x04\x01");
    assert_eq!(
        answer(hello(1, 2)).unwrap(),
        b"CVPW\x01\x01\x02\0\0\0\x02\0\0\0"
    );
    assert_eq!(answer(hello(1, 0)).unwrap(), b"CVPW\x01\x02\0\0\0\0");
    let refused = answer(b"something else".to_vec()).unwrap_err().to_string();
    assert!(
        refused.ends_with("the hello is not that of a pool's consumer"),
        "{refused}"
    );
    match cuda_vmm::pool::Consumer::attach(&side.device, &Name::new(&name), 0) {
        Err(PoolError::RankTaken { rank: 0 }) => {}
        other => panic!("{other:?}"),
    }
    match cuda_vmm::pool::Consumer::attach(&side.device, &Name::new(&name), 2) {
        Err(PoolError::RankOutOfRange {
            rank: 2,
            consumers: 2,
        }) => {}
        other => panic!("{other:?}"),
    }
    assert!(one.is_connected());
    one.close().unwrap();
    is_idle(&pool.close(soon(5)).unwrap());
}
