//! Peers that send what no honest one does. Each receiver says what is wrong, tells the peer, and keeps no descriptor.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{
    pair, receive_parcel, send_parcel, FrameError, HostId, Limits, SocketKind, Step, WireError,
};

use crate::exchange::{same, KINDS};
use crate::raw;
use crate::surroundings::*;
use crate::Case;

pub const CASES: &[Case] = &[
    ("hostile::no_message_at_all", no_message_at_all),
    ("hostile::announcements", announcements),
    ("hostile::pieces_out_of_order", pieces_out_of_order),
    ("hostile::descriptors_that_were_not_announced", descriptors),
    (
        "hostile::descriptors_with_every_byte",
        descriptors_with_every_byte,
    ),
    ("hostile::too_many_bytes", too_many_bytes),
    ("hostile::another_host", another_host),
    ("hostile::packets_of_any_size", packets_of_any_size),
    ("hostile::a_byte_at_a_time", a_byte_at_a_time),
    ("hostile::answers_to_a_sender", answers_to_a_sender),
];

/// What a receiver says to these messages, each with as many descriptors as stand beside it. The peer is told the same
/// and sees the end.
#[track_caller]
fn refuses(kind: SocketKind, messages: &[(Vec<u8>, u32)], expected: WireError) {
    let before = open_fds();
    let (here, there) = pair(kind).unwrap();
    for (bytes, fds) in messages {
        let fds: Vec<OwnedFd> = (0..*fds).map(numbered).collect();
        raw::send(&here, bytes, &fds);
    }
    let error = receive_parcel(&there, Limits::default(), Some(soon(5))).unwrap_err();
    same(&error, &expected);
    assert_eq!(open_fds(), before + 2, "only the sockets are open");
    // A consent may have gone before it.
    let mut said = Vec::new();
    loop {
        match raw::receive(&here) {
            end if end.is_empty() => break,
            bytes => said.extend(bytes),
        }
    }
    let reason = error.to_string();
    assert!(said.ends_with(&raw::message(raw::REFUSED, 0, reason.as_bytes())));
}

fn bad(at: Step, error: FrameError) -> WireError {
    WireError::BadMessage { at, error }
}

const AT: Step = Step::Announcement;

fn no_message_at_all() {
    for kind in KINDS {
        let garbage = b"GET / HTTP/1.1\r\n\r\n".to_vec();
        let found = *b"GET ";
        refuses(kind, &[(garbage, 0)], bad(AT, FrameError::Magic { found }));
        let mut newer = raw::announcement(0, 0, 0);
        newer[4] = 2;
        refuses(
            kind,
            &[(newer, 0)],
            bad(AT, FrameError::Version { found: 2 }),
        );
        let unknown = raw::message(77, 0, b"");
        refuses(
            kind,
            &[(unknown, 0)],
            bad(AT, FrameError::Kind { found: 77 }),
        );
        let mut long = raw::announcement(0, 0, 0);
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let length = u32::MAX;
        refuses(kind, &[(long, 0)], bad(AT, FrameError::TooLong { length }));
        let short = raw::message(raw::ANNOUNCEMENT, 0, &[0; 35]);
        let expected = 36;
        let wrong = FrameError::Length {
            expected,
            found: 35,
        };
        refuses(kind, &[(short, 0)], bad(AT, wrong));
        let early = raw::piece(0, 0, b"x");
        let found = "piece";
        refuses(kind, &[(early, 0)], WireError::OutOfTurn { at: AT, found });
        let again = vec![
            (raw::announcement(1, 1, 0), 0),
            (raw::announcement(1, 1, 0), 0),
        ];
        let (at, found) = (Step::Pieces, "announcement");
        refuses(kind, &again, WireError::OutOfTurn { at, found });
    }
}

fn announcements() {
    for kind in KINDS {
        let impossible = |pieces, bytes, fds| {
            let error = WireError::ImpossiblePieces { pieces, bytes, fds };
            refuses(kind, &[(raw::announcement(pieces, bytes, fds), 0)], error);
        };
        impossible(4, 1, 2);
        impossible(0, 1, 0);
        impossible(1, 0, 0);
        let most = WireError::TooManyBytes {
            announced: u64::MAX,
            limit: 16 << 20,
        };
        refuses(kind, &[(raw::announcement(1, u64::MAX, 0), 0)], most);
        let most = WireError::TooManyFds {
            announced: u32::MAX,
            limit: 4096,
        };
        refuses(kind, &[(raw::announcement(1, 0, u32::MAX), 0)], most);
        let other = raw::announcement_of(6, 0, 0, 0, raw::host());
        refuses(
            kind,
            &[(other, 0)],
            WireError::OtherTopic { ours: 0, theirs: 6 },
        );
    }
}

fn pieces_out_of_order() {
    for kind in KINDS {
        let pieces = 3;
        let three = || (raw::announcement(pieces, 6, 3), 0);
        let piece = |index| (raw::piece(index, 1, b"ab"), 1);
        let duplicate = [three(), piece(0), piece(0)];
        let error = WireError::DuplicatePiece {
            expected: 1,
            found: 0,
            pieces,
        };
        refuses(kind, &duplicate, error);
        let missing = [three(), piece(0), piece(2)];
        let error = WireError::MissingPiece {
            expected: 1,
            found: 2,
            pieces,
        };
        refuses(kind, &missing, error);
        let extra = [three(), piece(0), piece(3)];
        refuses(kind, &extra, WireError::ExtraPiece { found: 3, pieces });
    }
}

fn descriptors() {
    for kind in KINDS {
        let count = |at, announced, received| WireError::FdCount {
            at,
            announced,
            received,
        };
        // None with a piece that says two; two with a piece that says none, or one.
        let two = || (raw::announcement(1, 1, 2), 0);
        refuses(
            kind,
            &[two(), (raw::piece(0, 2, b"x"), 0)],
            count(Step::Pieces, 2, 0),
        );
        refuses(
            kind,
            &[two(), (raw::piece(0, 0, b"x"), 2)],
            count(Step::Pieces, 0, 2),
        );
        refuses(
            kind,
            &[two(), (raw::piece(0, 1, b"x"), 2)],
            count(Step::Pieces, 1, 2),
        );
        // Every piece keeps its word, and all together are fewer or more than announced.
        refuses(
            kind,
            &[two(), (raw::piece(0, 1, b"x"), 1)],
            count(Step::Pieces, 2, 1),
        );
        refuses(
            kind,
            &[two(), (raw::piece(0, 253, b"x"), 253)],
            count(Step::Pieces, 2, 253),
        );
        // Where there are none to come: with the announcement.
        refuses(kind, &[(raw::announcement(0, 0, 0), 5)], count(AT, 0, 5));
        let mut many = raw::piece(0, 0, b"x");
        many[6..8].copy_from_slice(&254_u16.to_le_bytes());
        let announced = 254;
        refuses(
            kind,
            &[two(), (many, 0)],
            bad(Step::Pieces, FrameError::Fds { announced }),
        );
        // In front of garbage.
        let found = *b"xxxx";
        refuses(
            kind,
            &[(vec![b'x'; 40], 9)],
            bad(AT, FrameError::Magic { found }),
        );
    }
}

/// On a stream each byte can bring descriptors: they are refused before the message is whole, and before they are more
/// than the process may have.
fn descriptors_with_every_byte() {
    let announcement = raw::announcement(1, 1, 2);
    let (start, rest) = announcement.split_at(6);
    refuses(
        SocketKind::Stream,
        &[
            (start.to_vec(), 200),
            (rest[..3].to_vec(), 200),
            (rest[3..6].to_vec(), 200),
        ],
        bad(AT, FrameError::Fds { announced: 400 }),
    );
    let piece = raw::piece(0, 2, b"x");
    let (header, payload) = piece.split_at(12);
    refuses(
        SocketKind::Stream,
        &[
            (announcement.clone(), 0),
            (header.to_vec(), 2),
            (payload[..1].to_vec(), 5),
        ],
        WireError::FdCount {
            at: Step::Pieces,
            announced: 2,
            received: 7,
        },
    );
}

fn too_many_bytes() {
    for kind in KINDS {
        let count = |announced, received| WireError::ByteCount {
            announced,
            received,
        };
        let three = || (raw::announcement(2, 3, 0), 0);
        refuses(
            kind,
            &[three(), (raw::piece(0, 0, b"abcd"), 0)],
            count(3, 4),
        );
        let fewer = [
            three(),
            (raw::piece(0, 0, b"a"), 0),
            (raw::piece(1, 0, b"b"), 0),
        ];
        refuses(kind, &fewer, count(3, 2));
    }
}

/// Both ends find out before a descriptor moves.
fn another_host() {
    let other = raw::host().map(|byte| byte ^ 0xff);
    let hosts = |error: WireError| match error {
        WireError::DifferentHost { ours, theirs } => {
            assert_eq!(ours, HostId::here().unwrap());
            let digits: Vec<String> = other.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(theirs.to_string(), digits.concat());
        }
        error => panic!("{error:?}"),
    };
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        raw::send(&here, &raw::announcement_of(0, 1, 1, 1, other), &[]);
        hosts(receive_parcel(there, Limits::default(), Some(soon(5))).unwrap_err());
        assert!(raw::refusal(&here).starts_with("the other end runs on host "));

        let (here, there) = pair(kind).unwrap();
        raw::send(&there, &raw::message(raw::CONSENT, 0, &other), &[]);
        hosts(send_parcel(here, &parcel(1, 0, 1), Some(soon(5))).unwrap_err());
        assert_eq!(raw::receive(&there)[..6], *b"CVMW\x01\x01");
    }
}

fn packets_of_any_size() {
    let kind = SocketKind::Packets;
    refuses(kind, &[(vec![0; 5000], 3)], bad(AT, FrameError::Oversized));
    let short = |found| FrameError::Length {
        expected: 12,
        found,
    };
    refuses(kind, &[(b"CVMW".to_vec(), 2)], bad(AT, short(4)));
    let mut cut = raw::announcement(0, 0, 0);
    cut.truncate(40);
    let (expected, found) = (36, 28);
    refuses(kind, &[(cut, 1)], {
        // One descriptor came with it, and none was announced: that is noticed first.
        let _ = (expected, found);
        WireError::FdCount {
            at: AT,
            announced: 0,
            received: 1,
        }
    });
    let mut cut = raw::announcement(0, 0, 0);
    cut.truncate(40);
    refuses(
        kind,
        &[(cut, 0)],
        bad(AT, FrameError::Length { expected, found }),
    );
}

/// Progress without end is no progress: the deadline holds all the same.
fn a_byte_at_a_time() {
    let (here, there) = pair(SocketKind::Stream).unwrap();
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Until the receiver has had enough, and shuts the connection down.
            let bytes = raw::announcement(0, 0, 0);
            let sent = bytes.iter().take_while(|&&byte| {
                thread::sleep(Duration::from_millis(10));
                raw::try_send(&here, &[byte])
            });
            assert!(sent.count() < bytes.len(), "it took all of them");
        });
        let late = receive_parcel(there, Limits::default(), Some(millis(100))).unwrap_err();
        same(&late, &WireError::TimedOut { at: AT });
    });
    assert!(started.elapsed() < Duration::from_secs(2));
}

/// What a sender makes of a receiver that answers otherwise.
fn answers_to_a_sender() {
    for kind in KINDS {
        let answers = |messages: &[Vec<u8>]| {
            let (here, there) = pair(kind).unwrap();
            for message in messages {
                raw::send(&there, message, &[]);
            }
            send_parcel(here, &parcel(1, 0, 1), Some(soon(5))).unwrap_err()
        };
        let found = "accepted";
        let at = Step::Consent;
        let early = answers(&[raw::message(raw::ACCEPTED, 0, b"")]);
        same(&early, &WireError::OutOfTurn { at, found });
        let found = *b"none";
        let garbage = answers(&[b"none of it is a message".to_vec()]);
        same(&garbage, &bad(at, FrameError::Magic { found }));
        let (at, found) = (Step::Answer, "consent");
        let twice = answers(&[raw::consent(), raw::consent()]);
        same(&twice, &WireError::OutOfTurn { at, found });
        let reason = "b?d".to_owned();
        let refused = answers(&[raw::message(raw::REFUSED, 0, b"b\x07d")]);
        let at = Step::Consent;
        same(&refused, &WireError::Refused { at, reason });
    }
}
