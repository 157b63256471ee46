//! Peers that are there no longer.

use std::os::fd::OwnedFd;

use cuda_vmm::share::wire::{pair, receive_parcel, send_parcel, Limits, Step, WireError};

use crate::exchange::{same, KINDS};
use crate::raw;
use crate::surroundings::*;
use crate::Case;

pub const CASES: &[Case] = &[
    ("broken::sender_vanishes_at_each_step", sender_vanishes),
    ("broken::receiver_vanishes_at_each_step", receiver_vanishes),
    ("broken::half_a_message", half_a_message),
    ("broken::last_words_are_heard", last_words),
];

fn vanished(at: Step) -> WireError {
    WireError::Vanished { at }
}

/// The receiver keeps none of the descriptors that had come.
fn sender_vanishes() {
    for kind in KINDS {
        let after = |messages: &[(Vec<u8>, u32)], at| {
            let before = open_fds();
            let (here, there) = pair(kind).unwrap();
            for (bytes, fds) in messages {
                let fds: Vec<OwnedFd> = (0..*fds).map(numbered).collect();
                raw::send(&here, bytes, &fds);
            }
            drop(here);
            let error = receive_parcel(there, Limits::default(), Some(soon(5))).unwrap_err();
            same(&error, &vanished(at));
            assert_eq!(open_fds(), before);
        };
        let announced = || (raw::announcement(3, 3, 9), 0);
        after(&[], Step::Announcement);
        // The consent cannot be sent any more.
        after(&[announced()], Step::Consent);
    }
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        raw::send(&here, &raw::announcement(3, 3, 9), &[]);
        let before = open_fds();
        let receiver = std::thread::spawn(move || {
            receive_parcel(there, Limits::default(), Some(soon(5))).unwrap_err()
        });
        assert_eq!(raw::receive(&here)[5], raw::CONSENT);
        let fds: Vec<OwnedFd> = (0..5).map(numbered).collect();
        raw::send(&here, &raw::piece(0, 5, b"x"), &fds);
        drop((here, fds));
        same(&receiver.join().unwrap(), &vanished(Step::Pieces));
        assert_eq!(open_fds(), before - 2);
    }
}

fn receiver_vanishes() {
    for kind in KINDS {
        let parcel = parcel(100_000, 0, 300);
        let (here, there) = pair(kind).unwrap();
        drop(there);
        let error = send_parcel(here, &parcel, Some(soon(5))).unwrap_err();
        same(&error, &vanished(Step::Announcement));

        let (here, there) = pair(kind).unwrap();
        let sender = std::thread::spawn(move || {
            let error = send_parcel(here, &parcel, Some(soon(5))).unwrap_err();
            (error, parcel)
        });
        assert_eq!(raw::receive(&there)[5], raw::ANNOUNCEMENT);
        drop(there);
        let (error, parcel) = sender.join().unwrap();
        same(&error, &vanished(Step::Consent));
        is_parcel(&parcel, 100_000, 0, 300);

        // While it sends: the parcel is more than the buffers hold.
        let big = crate::surroundings::parcel(4 << 20, 0, 3);
        let (here, there) = pair(kind).unwrap();
        raw::send(&there, &raw::consent(), &[]);
        let sender =
            std::thread::spawn(move || send_parcel(here, &big, Some(soon(5))).unwrap_err());
        assert_eq!(raw::receive(&there)[5], raw::ANNOUNCEMENT);
        raw::receive(&there);
        drop(there);
        same(&sender.join().unwrap(), &vanished(Step::Pieces));

        // After it has everything, without a word.
        let (here, there) = pair(kind).unwrap();
        raw::send(&there, &raw::consent(), &[]);
        let small = crate::surroundings::parcel(1, 0, 0);
        let sender =
            std::thread::spawn(move || send_parcel(here, &small, Some(soon(5))).unwrap_err());
        let mut seen = raw::receive(&there).len();
        while seen < 48 + 17 {
            seen += raw::receive(&there).len();
        }
        drop(there);
        same(&sender.join().unwrap(), &vanished(Step::Answer));
    }
}

/// A stream that ends, or stays silent, within a message.
fn half_a_message() {
    let kind = cuda_vmm::share::wire::SocketKind::Stream;
    let whole = raw::announcement(1, 1, 1);
    for part in [1, 11, 12, 13, whole.len() - 1] {
        let before = open_fds();
        let (here, there) = pair(kind).unwrap();
        raw::send(&here, &whole[..part], &[numbered(1)]);
        let silent = receive_parcel(&there, Limits::default(), Some(millis(20))).unwrap_err();
        let at = Step::Announcement;
        same(&silent, &WireError::TimedOut { at });
        drop((here, there));
        assert_eq!(open_fds(), before);

        let (here, there) = pair(kind).unwrap();
        raw::send(&here, &whole[..part], &[numbered(1)]);
        drop(here);
        let gone = receive_parcel(there, Limits::default(), Some(soon(5))).unwrap_err();
        same(&gone, &vanished(at));
        assert_eq!(open_fds(), before);
    }
}

/// A receiver that refuses and closes with things unread, which the kernel calls a reset, is heard all the same.
fn last_words() {
    for kind in KINDS {
        let (here, there) = pair(kind).unwrap();
        raw::send(&here, b"left unread", &[]);
        raw::send(&there, &raw::message(raw::REFUSED, 0, b"no room"), &[]);
        drop(there);
        let error = send_parcel(here, &parcel(1, 0, 1), Some(soon(5))).unwrap_err();
        let expected = WireError::Refused {
            at: Step::Announcement,
            reason: "no room".to_owned(),
        };
        same(&error, &expected);
    }
}
