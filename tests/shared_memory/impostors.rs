//! Exporters that do not keep to the protocol, or lie about their memory: the importer says what is wrong, tells them,
//! keeps nothing, and the next exporter is served as if nothing had been.

use std::mem;
use std::os::fd::OwnedFd;

use cuda_vmm::share::wire::{
    pair, receive_parcel, send_parcel, Limits, Parcel, SocketKind, Step, WireError,
};
use cuda_vmm::share::{DecodeError, SpanImport};
use cuda_vmm::{Access, BadFd, Error};

use crate::side::Side;
use crate::span::{attached, checked, made, parcel, receive, send, stdin};
use crate::surroundings::{numbered, open_fds, soon, Other};
use crate::{raw, Case, Part};

pub const CASES: &[Case] = &[
    ("impostors::who_do_not_keep_to_the_protocol", speakers),
    ("impostors::who_lie_about_their_memory", liars),
];

pub const PARTS: &[Part] = &[
    ("speaks", |side, words| speaks(side, words[0])),
    ("lies", |side, words| lies(side, words[0])),
    ("honest_exporter", |side, _| honest_exporter(side)),
];

/// What is sent, and what the importer says to it.
const SPOKEN: [(&str, &str); 7] = [
    (
        "garbage",
        "the announcement: it begins with [6e, 6f, 74, 20], which is no message of this protocol",
    ),
    ("half", "the announcement: 20 bytes, and 36 are due"),
    (
        "nothing",
        "no progress with the announcement before the deadline",
    ),
    (
        "no_fds",
        "4 descriptors were announced with the pieces, and 0 came",
    ),
    (
        "too_many_fds",
        "4 descriptors were announced with the pieces, and 6 came",
    ),
    (
        "half_the_pieces",
        "the other end vanished during the pieces",
    ),
    ("gone", "the other end vanished during the announcement"),
];

fn speakers(side: &Side) {
    for (how, why) in SPOKEN {
        let (here, there) = pair(SocketKind::Packets).unwrap();
        let before = (open_fds(), side.free());
        let impostor = Other::with_stdin(&side.role(&format!("speaks|{how}")), there);
        let deadline = if how == "nothing" { soon(2) } else { soon(30) };
        let error = receive_parcel(&here, Limits::default(), Some(deadline)).unwrap_err();
        assert_eq!(error.to_string(), why, "{how}");
        let told = impostor.ends();
        assert!(
            told == why || told.is_empty() && why.contains("vanished"),
            "{how}: {told}"
        );
        assert_eq!(
            open_fds(),
            before.0 - 1,
            "{how}: only the impostor's end is closed"
        );
        side.is_back(before.1);
    }
    honest(side);
}

/// Sends what it should not, with real memory, and says what it is told.
fn speaks(side: &Side, how: &str) {
    let kv = made(side, 6, side.g);
    let Parcel { bytes, fds, .. } = parcel(&kv, Access::ReadWrite);
    let announced = |pieces| raw::announcement(pieces, bytes.len() as u64, 4);
    let socket = stdin();
    let consented = |pieces| {
        raw::send(&socket, &announced(pieces), &[]);
        assert_eq!(raw::receive(&socket)[5], raw::CONSENT);
    };
    match how {
        "garbage" => raw::send(&socket, b"not a message, though long enough", &[]),
        "half" => raw::send(&socket, &raw::message(raw::ANNOUNCEMENT, 0, &[0; 20]), &[]),
        "nothing" => {}
        "no_fds" => {
            consented(1);
            raw::send(&socket, &raw::piece(0, 4, &bytes), &[]);
        }
        "too_many_fds" => {
            consented(1);
            raw::send(&socket, &raw::piece(0, 4, &bytes), &fds);
        }
        "half_the_pieces" => {
            raw::send(&socket, &raw::announcement(2, 5000, 4), &[]);
            assert_eq!(raw::receive(&socket)[5], raw::CONSENT);
            raw::send(&socket, &raw::piece(0, 4, &[0; 4080]), &fds[..4]);
        }
        "gone" => {}
        other => panic!("{other}"),
    }
    if !["half_the_pieces", "gone"].contains(&how) {
        println!("{}", raw::refusal(&socket));
    }
    kv.close().unwrap();
}

/// What is wrong with a span that comes in good order.
const LIES: [&str; 6] = [
    "other_bytes",
    "few_fds",
    "files",
    "a_size",
    "a_place",
    "twice",
];

fn liars(side: &Side) {
    for how in LIES {
        let (here, there) = pair(SocketKind::Packets).unwrap();
        let before = (open_fds(), side.sim.as_ref().map(|sim| sim.snapshot()));
        // Its end of the sockets goes, and its output comes.
        let liar = Other::with_stdin(&side.role(&format!("lies|{how}")), there);
        let mut received = receive(&here);
        let Parcel { bytes, fds, .. } = mem::take(received.parcel_mut());
        let attached = SpanImport::new(&bytes, fds)
            .and_then(|import| import.attach(&side.driver, [(&side.device, Access::ReadWrite)]));
        let error = attached.unwrap_err();
        is_the_answer(side, how, &error);
        received.refuse(&error.to_string());
        let after = (open_fds(), side.sim.as_ref().map(|sim| sim.snapshot()));
        assert_eq!(after, before, "{how}");
        let told = WireError::Refused {
            at: Step::Answer,
            reason: error.to_string(),
        };
        assert_eq!(liar.ends(), told.to_string());
    }
    honest(side);
}

#[track_caller]
fn is_the_answer(side: &Side, how: &str, error: &Error) {
    let is = match (how, error) {
        ("other_bytes", Error::Descriptor(DecodeError::BadMagic { .. })) => true,
        ("few_fds", Error::WrongFdCount { needed: 4, got: 3 }) => true,
        (
            "files",
            Error::NotAnExport {
                why: BadFd::Other { leads_to },
                ..
            },
        ) => leads_to.to_string_lossy().contains("memfd:wire"),
        ("a_size", Error::WrongSize { claimed }) => *claimed == 2 * side.g,
        ("a_place", Error::NoSuchUuid { uuid: [7, ..] }) => true,
        ("twice", Error::Descriptor(DecodeError::Duplicate { allocation: 1, .. })) => true,
        _ => false,
    };
    assert!(is, "{how}: {error:?}");
}

/// Bytes of a description: what stands before the allocations, and one allocation.
const HEADER: usize = 28;
const ALLOCATION: usize = 41;

fn lies(side: &Side, how: &str) {
    let kv = made(side, 4, side.g);
    let Parcel {
        mut bytes, mut fds, ..
    } = parcel(&kv, Access::ReadWrite);
    match how {
        "other_bytes" => bytes[0] ^= 1,
        "few_fds" => drop(fds.pop()),
        "files" => fds = (0..4).map(numbered).collect::<Vec<OwnedFd>>(),
        // The last one would end behind the span, so the span is larger too.
        "a_size" => {
            let at = HEADER + 3 * ALLOCATION + 16;
            bytes[at..at + 8].copy_from_slice(&(2 * side.g as u64).to_le_bytes());
            bytes[16..24].copy_from_slice(&(5 * side.g as u64).to_le_bytes());
        }
        "a_place" => bytes[HEADER + 25..HEADER + 41].fill(7),
        "twice" => {
            let first = HEADER..HEADER + 16;
            bytes.copy_within(first, HEADER + ALLOCATION);
        }
        other => panic!("{other}"),
    }
    let sent = send_parcel(stdin(), &Parcel::new(bytes, fds), Some(soon(30)));
    println!("{}", sent.unwrap_err());
    checked(&kv, 0);
    kv.close().unwrap();
}

/// One who does as he should is served.
fn honest(side: &Side) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let exporter = Other::with_stdin(&side.role("honest_exporter"), there);
    let mut received = receive(here);
    let span = attached(side, &mut received);
    received.accept().unwrap();
    let sum = checked(&span, 0);
    span.close().unwrap();
    assert_eq!(exporter.ends(), format!("{sum:x}"));
}

fn honest_exporter(side: &Side) {
    let kv = made(side, 4, side.g);
    send(stdin(), &kv).unwrap();
    println!("{:x}", checked(&kv, 0));
    kv.close().unwrap();
}
