//! Who goes first: killed or in good order, the other side keeps what it has, and then all of it is back.

use std::thread;
use std::time::Duration;

use cuda_vmm::share::wire::{pair, SocketKind, Step, WireError};
use cuda_vmm::Reservation;

use crate::side::Side;
use crate::span::{attached, checked, made, receive, send, stdin, write_all};
use crate::surroundings::Other;
use crate::{raw, Case, Part};

pub const CASES: &[Case] = &[
    (
        "deaths::exporter_killed_while_the_importer_reads",
        exporter_killed,
    ),
    (
        "deaths::exporter_killed_before_the_importer_attached",
        exporter_killed_early,
    ),
    ("deaths::importer_killed_with_the_span_attached", |side| {
        importer_killed(side, "attaches_and_sits")
    }),
    ("deaths::importer_killed_with_descriptors_alone", |side| {
        importer_killed(side, "receives_and_sits")
    }),
    ("deaths::exporter_closes_first", exporter_closes_first),
    ("deaths::importer_closes_first", importer_closes_first),
];

pub const PARTS: &[Part] = &[
    ("makes_and_sits", |side, _| makes_and_sits(side)),
    ("attaches_and_sits", |side, _| attaches_and_sits(side)),
    ("receives_and_sits", |_, _| receives_and_sits()),
    ("attaches_and_closes_when_told", |side, _| {
        closes_when_told(side)
    }),
];

/// Pieces of a span, and granules of a piece.
const PIECES: usize = 5;
const GRANULES: usize = 2;

fn sits() -> ! {
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

/// Sends a span, says the sum of what is in it, and stays until it is killed.
fn makes_and_sits(side: &Side) {
    let kv = made(side, PIECES, GRANULES * side.g);
    println!("{:x}", checked(&kv, 0));
    let sent = send(stdin(), &kv);
    println!("{sent:?}");
    sits();
}

fn exporter_killed(side: &Side) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let mut exporter = Other::with_stdin(&side.role("makes_and_sits"), there);
    let sum = exporter.line();
    let mut received = receive(here);
    let mut span = attached(side, &mut received);
    received.accept().unwrap();
    assert_eq!(exporter.line(), "Ok(())");
    assert_eq!(format!("{:x}", checked(&span, 0)), sum);
    thread::scope(|scope| {
        // It is killed while this reads.
        let killer = scope.spawn(|| exporter.kill());
        while !killer.is_finished() {
            checked(&span, 0);
        }
    });
    assert_eq!(format!("{:x}", checked(&span, 0)), sum);
    // And the memory is as good as any.
    write_all(&mut span, 1);
    checked(&span, 1);
    span.close().unwrap();
}

/// Descriptors hold the memory by themselves. That the last word could not be said is the importer's to judge: it has
/// the memory.
fn exporter_killed_early(side: &Side) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let mut exporter = Other::with_stdin(&side.role("makes_and_sits"), there);
    let sum = exporter.line();
    let mut received = receive(here);
    exporter.kill();
    let span = attached(side, &mut received);
    match received.accept().unwrap_err() {
        WireError::Vanished { at: Step::Answer } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(format!("{:x}", checked(&span, 0)), sum);
    span.close().unwrap();
}

fn attaches_and_sits(side: &Side) {
    let mut received = receive(stdin());
    let mut span = attached(side, &mut received);
    checked(&span, 0);
    write_all(&mut span, 1);
    received.accept().unwrap();
    println!("attached");
    sits();
}

fn receives_and_sits() {
    let _received = receive(stdin());
    println!("received");
    sits();
}

fn importer_killed(side: &Side, part: &str) {
    let kv = made(side, PIECES, GRANULES * side.g);
    let (here, there) = pair(SocketKind::Stream).unwrap();
    let mut importer = Other::with_stdin(&side.role(part), there);
    let (sent, seed) = thread::scope(|scope| {
        let sender = scope.spawn(|| send(here, &kv));
        let seed = u64::from(importer.line() == "attached");
        importer.kill();
        (sender.join().unwrap(), seed)
    });
    match sent {
        Ok(()) => assert_eq!(seed, 1),
        Err(WireError::Vanished { at: Step::Answer }) => assert_eq!(seed, 0),
        Err(other) => panic!("{other:?}"),
    }
    checked(&kv, seed);
    // The next importer gets it as well as the first.
    again(side, &kv, seed);
    kv.close().unwrap();
}

/// One more importer, who reads and goes.
fn again(side: &Side, kv: &Reservation, seed: u64) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let mut importer = Other::with_stdin(&side.role("attaches_and_closes_when_told"), there);
    assert_eq!(importer.line(), "here");
    raw::send(&here, &[seed as u8], &[]);
    send(&here, kv).unwrap();
    raw::send(&here, b"c", &[]);
    assert_eq!(importer.ends(), format!("{:x}", checked(kv, seed)));
}

/// Reads what comes, and once more when it is told to close.
fn closes_when_told(side: &Side) {
    let socket = stdin();
    println!("here");
    let seed = u64::from(raw::receive(&socket)[0]);
    let mut received = receive(&socket);
    let span = attached(side, &mut received);
    let sum = checked(&span, seed);
    received.accept().unwrap();
    assert_eq!(raw::receive(&socket), b"c");
    assert_eq!(checked(&span, seed), sum);
    span.close().unwrap();
    println!("{sum:x}");
}

/// Both processes are there before the memory is, so that the free bytes are those of the memory alone.
fn exporter_closes_first(side: &Side) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let mut importer = Other::with_stdin(&side.role("attaches_and_closes_when_told"), there);
    assert_eq!(importer.line(), "here");
    let free = side.free();
    let kv = made(side, PIECES, GRANULES * side.g);
    let sum = checked(&kv, 0);
    raw::send(&here, &[0], &[]);
    send(&here, &kv).unwrap();
    kv.close().unwrap();
    // The importer keeps it.
    side.is_back(free - PIECES * GRANULES * side.g);
    assert_eq!(side.driver.quarantined(), 0);
    raw::send(&here, b"c", &[]);
    assert_eq!(importer.ends(), format!("{sum:x}"));
}

fn importer_closes_first(side: &Side) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let mut importer = Other::with_stdin(&side.role("attaches_and_closes_when_told"), there);
    assert_eq!(importer.line(), "here");
    let free = side.free();
    let kv = made(side, PIECES, GRANULES * side.g);
    raw::send(&here, &[0], &[]);
    send(&here, &kv).unwrap();
    raw::send(&here, b"c", &[]);
    let sum = importer.ends();
    assert_eq!(sum, format!("{:x}", checked(&kv, 0)));
    assert!(side.free() + PIECES * GRANULES * side.g <= free || side.sees_the_others());
    kv.close().unwrap();
}
