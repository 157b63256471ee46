//! One parcel over one socket, between two that both speak the protocol.

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

use cuda_vmm::share::wire::{
    pair, receive_parcel, send_parcel, Limits, Parcel, SocketKind, Step, WireError,
};

use crate::surroundings::*;
use crate::Case;

pub const CASES: &[Case] = &[
    ("exchange::arrives_by_packets", || {
        arrives(SocketKind::Packets)
    }),
    ("exchange::arrives_by_stream", || {
        arrives(SocketKind::Stream)
    }),
    ("exchange::smallest_buffers", smallest_buffers),
    ("exchange::socket_can_be_used_on", socket_can_be_used_on),
    ("exchange::refused_with_a_reason", refused_with_a_reason),
    ("exchange::limits_hold_before_anything_comes", limits_hold),
    ("exchange::deadlines_of_the_sender", deadlines_of_the_sender),
    (
        "exchange::deadlines_of_the_receiver",
        deadlines_of_the_receiver,
    ),
    (
        "exchange::sockets_that_cannot_do_it",
        sockets_that_cannot_do_it,
    ),
];

pub const KINDS: [SocketKind; 2] = [SocketKind::Packets, SocketKind::Stream];

/// Sends one to the other, in two threads; what each of them got.
pub fn both(
    (here, there): (OwnedFd, OwnedFd),
    parcel: &Parcel,
    limits: Limits,
) -> (Result<(), WireError>, Result<Parcel, WireError>) {
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            receive_parcel(there, limits, Some(soon(10))).and_then(|received| received.accept())
        });
        let sent = send_parcel(here, parcel, Some(soon(10)));
        (sent, receiver.join().unwrap())
    })
}

/// Nothing, one byte, one descriptor, and more than one message holds of either.
fn arrives(kind: SocketKind) {
    for (bytes, fds) in [
        (0, 0),
        (1, 0),
        (0, 1),
        (4080, 253),
        (4081, 254),
        (100_000, 700),
        (5, 600),
    ] {
        let sent = parcel(bytes, 7, fds);
        let (told, received) = both(pair(kind).unwrap(), &sent, Limits::default());
        told.unwrap();
        is_parcel(&received.unwrap(), bytes, 7, fds);
        is_parcel(&sent, bytes, 7, fds);
    }
}

fn set(socket: &OwnedFd, option: i32, value: i32) {
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            4,
        )
    };
    assert_eq!(done, 0);
}

/// The kernel's smallest buffers hold a message, and a whole parcel goes through them with short writes and waits.
fn smallest_buffers() {
    for kind in KINDS {
        let sockets = pair(kind).unwrap();
        set(&sockets.0, libc::SO_SNDBUF, 1);
        set(&sockets.1, libc::SO_SNDBUF, 1);
        let sent = parcel(1 << 20, 3, 10);
        let (told, received) = both(sockets, &sent, Limits::default());
        told.unwrap();
        is_parcel(&received.unwrap(), 1 << 20, 3, 10);
    }
}

/// Nothing is read beyond the parcel, and the flags of the socket are left as they are.
fn socket_can_be_used_on() {
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        let flags = |socket: &OwnedFd| unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags(&here) & libc::O_NONBLOCK, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..3 {
                    send_parcel(&here, &parcel(9000, round, 2), Some(soon(10))).unwrap();
                    crate::raw::send(&here, b"between", &[]);
                }
            });
            for round in 0..3 {
                let received = receive_parcel(&there, Limits::default(), Some(soon(10))).unwrap();
                is_parcel(received.parcel(), 9000, round, 2);
                received.accept().unwrap();
                assert_eq!(crate::raw::receive_some(&there, 7), b"between");
            }
        });
        assert_eq!(flags(&there) & libc::O_NONBLOCK, 0);
    }
}

fn refused_with_a_reason() {
    for kind in KINDS {
        let no = |refuse: fn(cuda_vmm::share::wire::Received<OwnedFd>), reason: &str| {
            let (here, there) = pair(kind).unwrap();
            let told = thread::scope(|scope| {
                scope.spawn(move || {
                    refuse(receive_parcel(there, Limits::default(), Some(soon(10))).unwrap());
                });
                send_parcel(here, &parcel(10, 0, 3), Some(soon(10)))
            });
            match told.unwrap_err() {
                WireError::Refused { at, reason: told } => {
                    assert_eq!((at, told.as_str()), (Step::Answer, reason));
                }
                other => panic!("{other:?}"),
            }
        };
        no(|received| received.refuse("no memory"), "no memory");
        no(|received| received.refuse("a\nb\u{7}"), "a?b?");
        no(drop, "dropped");
        let long = "x".repeat(512);
        no(|received| received.refuse(&"x".repeat(5000)), &long);
    }
}

fn limits_hold() {
    for kind in KINDS {
        let limits = Limits { bytes: 99, fds: 4 };
        let (told, received) = both(pair(kind).unwrap(), &parcel(100, 0, 4), limits);
        let expected = WireError::TooManyBytes {
            announced: 100,
            limit: 99,
        };
        same(&received.unwrap_err(), &expected);
        let reason = "100 bytes are announced, and the limit is 99".to_owned();
        let at = Step::Consent;
        same(&told.unwrap_err(), &WireError::Refused { at, reason });

        let (told, received) = both(pair(kind).unwrap(), &parcel(99, 0, 5), limits);
        let expected = WireError::TooManyFds {
            announced: 5,
            limit: 4,
        };
        same(&received.unwrap_err(), &expected);
        let reason = "5 descriptors are announced, and the limit is 4".to_owned();
        same(&told.unwrap_err(), &WireError::Refused { at, reason });
    }
}

/// Errors hold system errors, which do not compare; their debug form has every field.
#[track_caller]
pub fn same(error: &WireError, expected: &WireError) {
    assert_eq!(format!("{error:?}"), format!("{expected:?}"));
}

/// Nobody answers the announcement; then nobody answers the parcel.
fn deadlines_of_the_sender() {
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        let late = send_parcel(here, &parcel(1, 0, 1), Some(millis(50))).unwrap_err();
        same(&late, &WireError::TimedOut { at: Step::Consent });
        // The announcement, then the refusal, then the end: the other side need not wait for its own deadline.
        assert_eq!(crate::raw::receive(&there)[5], crate::raw::ANNOUNCEMENT);

        let (here, there) = pair(kind).unwrap();
        crate::raw::send(&there, &crate::raw::consent(), &[]);
        let late = send_parcel(here, &parcel(1, 0, 1), Some(millis(50))).unwrap_err();
        same(&late, &WireError::TimedOut { at: Step::Answer });
    }
}

fn deadlines_of_the_receiver() {
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        let late = receive_parcel(&there, Limits::default(), Some(millis(50))).unwrap_err();
        let at = Step::Announcement;
        same(&late, &WireError::TimedOut { at });
        let said = crate::raw::refusal(&here);
        assert_eq!(
            said,
            "no progress with the announcement before the deadline"
        );
        assert_eq!(crate::raw::receive(&here), []);

        let (here, there) = pair(kind).unwrap();
        crate::raw::send(&here, &crate::raw::announcement(2, 10, 1), &[]);
        let late = receive_parcel(&there, Limits::default(), Some(millis(50))).unwrap_err();
        same(&late, &WireError::TimedOut { at: Step::Pieces });
    }
}

fn sockets_that_cannot_do_it() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let unusable = send_parcel(&udp, &Parcel::default(), Some(soon(1))).unwrap_err();
    let expected = WireError::UnusableSocket {
        family: libc::AF_INET,
        kind: libc::SOCK_DGRAM,
    };
    same(&unusable, &expected);
    let file = numbered(0);
    match receive_parcel(&file, Limits::default(), Some(soon(1))).unwrap_err() {
        WireError::Io { step, error } => {
            assert_eq!(
                (step, error.raw_os_error()),
                (Step::Opening, Some(libc::ENOTSOCK))
            );
        }
        other => panic!("{other:?}"),
    }
}
