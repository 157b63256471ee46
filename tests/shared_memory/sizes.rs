//! Spans of all sizes, whose contents are compared on both sides.

use cuda_vmm::share::wire::{pair, SocketKind};
use cuda_vmm::{Access, Reservation};

use crate::side::Side;
use crate::span::{attached_read_only, checked, made, receive, send, stdin, write_all};
use crate::support::which::Which;
use crate::surroundings::{open_fds, Other};
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("sizes::a_span_of_64_pieces_of_2_mib", |side| {
        compared(made(side, 64, 2 << 20), side)
    }),
    ("sizes::a_span_of_one_large_piece", |side| {
        let size = match side.which {
            Which::Sim => 64 << 20,
            Which::Gpu => 4 << 30,
        };
        compared(made(side, 1, size), side);
    }),
    ("sizes::a_span_of_512_pieces", |side| {
        compared(made(side, 512, side.g), side)
    }),
    ("sizes::a_span_with_holes_and_pieces_of_all_sizes", |side| {
        compared(mixed(side), side)
    }),
];

pub const PARTS: &[Part] = &[("says_what_it_reads", |side, _| says_what_it_reads(side))];

/// Both processes read the same, byte for byte, and sum it up to the same number.
fn compared(kv: Reservation, side: &Side) {
    let sum = checked(&kv, 0);
    let drawn: Vec<_> = kv.mappings().map(|mapping| mapping.range()).collect();
    for kind in [SocketKind::Packets, SocketKind::Stream] {
        let (here, there) = pair(kind).unwrap();
        let importer = Other::with_stdin(&side.role("says_what_it_reads"), there);
        let before = open_fds();
        send(here, &kv).unwrap();
        assert_eq!(open_fds(), before - 1, "only the socket is closed");
        assert_eq!(importer.ends(), format!("{sum:x} {drawn:?}"));
    }
    kv.close().unwrap();
}

fn says_what_it_reads(side: &Side) {
    let span = attached_read_only(side, receive(stdin()));
    let sum = checked(&span, 0);
    let drawn: Vec<_> = span.mappings().map(|mapping| mapping.range()).collect();
    assert_eq!(
        span.access_of(drawn[0].start, &side.device).unwrap(),
        Access::Read
    );
    span.close().unwrap();
    println!("{sum:x} {drawn:?}");
}

/// Pieces of one to eight granules with a hole behind each, and one whose handle was given up.
fn mixed(side: &Side) -> Reservation {
    let mut kv = side.reserve(64);
    let mut at = 0;
    for granules in [1, 2, 3, 5, 8] {
        kv.map(at, granules * side.g, &side.props()).unwrap();
        at += (granules + 1) * side.g;
    }
    kv.map_releasing(at, side.g, &side.props()).unwrap();
    write_all(&mut kv, 0);
    kv
}
