//! The same a thousand times: memory made, exported, sent, attached, checked and closed, with as many descriptors and
//! free bytes after each round as before it, in both processes.

use cuda_vmm::share::wire::{pair, receive_parcel, Limits, SocketKind, Step, WireError};
use cuda_vmm::Reservation;

use crate::side::Side;
use crate::span::{attached, send, stdin};
use crate::surroundings::{open_fds, soon, Other};
use crate::{Case, Part};

pub const CASES: &[Case] = &[("rounds::many_leave_nothing", many)];

pub const PARTS: &[Part] = &[("takes_every_round", |side, _| takes_every_round(side))];

/// How many; set this to have other numbers.
const ROUNDS: &str = "CUDA_VMM_SHARED_ROUNDS";

const PIECES: usize = 3;

fn rounds() -> u64 {
    std::env::var(ROUNDS).map_or(1000, |text| text.parse().expect(ROUNDS))
}

/// Fresh memory, with the number of the round in the first and the last bytes of each piece.
fn made(side: &Side, round: u64) -> Reservation {
    let mut kv = side.reserve(PIECES);
    for piece in 0..PIECES {
        kv.map(piece * side.g, side.g, &side.props()).unwrap();
    }
    for at in ends(&kv) {
        kv.write(at, &(round + at as u64).to_le_bytes()).unwrap();
    }
    kv
}

fn ends(kv: &Reservation) -> Vec<usize> {
    let ranges = kv.mappings().map(|mapping| mapping.range());
    ranges
        .flat_map(|range| [range.start, range.end - 8])
        .collect()
}

#[track_caller]
fn is_of(kv: &Reservation, round: u64) {
    for at in ends(kv) {
        let mut bytes = [0; 8];
        kv.read(at, &mut bytes).unwrap();
        assert_eq!(
            u64::from_le_bytes(bytes),
            round + at as u64,
            "round {round}, at {at}"
        );
    }
}

fn many(side: &Side) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let mut importer = Other::with_stdin(&side.role("takes_every_round"), there);
    assert_eq!(importer.line(), "here");
    let (fds, free) = (open_fds(), side.free());
    for round in 0..rounds() {
        let kv = made(side, round);
        send(&here, &kv).unwrap();
        kv.close().unwrap();
        // The importer has let go before it accepted.
        side.is_back(free);
        assert_eq!(open_fds(), fds, "round {round}");
        side.holds_nothing();
    }
    drop(here);
    assert_eq!(importer.ends(), format!("{} rounds, flat", rounds()));
}

fn takes_every_round(side: &Side) {
    let socket = stdin();
    // Before the exporter knows, and makes memory.
    let (fds, free) = (open_fds(), side.free());
    println!("here");
    let mut round = 0_u64;
    loop {
        let mut received = match receive_parcel(&socket, Limits::default(), Some(soon(30))) {
            Ok(received) => received,
            Err(WireError::Vanished {
                at: Step::Announcement,
            }) => break,
            Err(other) => panic!("round {round}: {other:?}"),
        };
        let span = attached(side, &mut received);
        is_of(&span, round);
        span.close().unwrap();
        side.holds_nothing();
        // The exporter still has it.
        side.is_back(
            free - if side.sees_the_others() {
                PIECES * side.g
            } else {
                0
            },
        );
        received.accept().unwrap();
        assert_eq!(open_fds(), fds, "round {round}");
        round += 1;
    }
    println!("{round} rounds, flat");
}
