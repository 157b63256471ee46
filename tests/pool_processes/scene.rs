//! A pool, consumers of it, and payloads whose bytes can be checked.

use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Attach, Consumer, Counters, Lease, Payload, Pool, PoolError};
use cuda_vmm::pool::{Published, Publisher, Source};
use cuda_vmm::wire::Name;

use crate::side::Side;
use crate::surroundings::soon;

/// A name that no other case has.
pub fn name(of: &str) -> String {
    format!("pool processes, {of} {}", std::process::id())
}

pub fn serve(side: &Side, name: &str, granules: usize, consumers: usize) -> Pool {
    Pool::builder(&side.device, granules * side.g, consumers)
        .serve(&Name::new(name))
        .unwrap()
}

/// Attaches, once the consumer that had the rank before is gone.
pub fn attach(side: &Side, name: &str, rank: usize) -> Consumer {
    let until = soon(20);
    loop {
        let name = Name::new(name);
        let attach = Attach::new(&name, rank).by(until).waiting_for_server();
        match attach.attach(&side.device) {
            Err(PoolError::RankTaken { .. }) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(1));
            }
            attached => return attached.unwrap(),
        }
    }
}

/// Bytes in front of a payload's contents: sequence number and checksum.
pub const HEADER: usize = 16;

/// A payload of this length, at least [`HEADER`].
pub fn filled(sequence: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let seed = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut words = bytes[HEADER..].chunks_exact_mut(8);
    let mut at = seed;
    for word in &mut words {
        word.copy_from_slice(&at.to_le_bytes());
        at = at.wrapping_add(seed);
    }
    words.into_remainder().fill(sequence as u8);
    let sum = checksum(sequence, &bytes[HEADER..]);
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[8..HEADER].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Whether these bytes are the payload with this sequence number.
pub fn is_payload(sequence: u64, bytes: &[u8]) -> bool {
    bytes[..8] == sequence.to_le_bytes()
        && bytes[8..HEADER] == checksum(sequence, &bytes[HEADER..]).to_le_bytes()
}

fn checksum(sequence: u64, bytes: &[u8]) -> u64 {
    let mut sum = sequence ^ bytes.len() as u64;
    let words = bytes.chunks_exact(8);
    let rest = words.remainder().iter().map(|byte| u64::from(*byte));
    let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    for word in words.chain(rest) {
        sum = (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(5);
    }
    sum
}

pub fn publish(publisher: &Publisher, sequence: u64, length: usize) -> Published {
    let bytes = filled(sequence, length);
    publisher
        .publish(&Payload::bytes(Source::host(&bytes)))
        .unwrap()
}

/// Reads the slice, which has the payload with this sequence number.
#[track_caller]
pub fn checked(lease: Lease, sequence: u64) -> Lease {
    let mut bytes = vec![0; lease.size()];
    let lease = lease.read(0, &mut bytes).unwrap();
    assert!(
        is_payload(sequence, &bytes),
        "payload {sequence} is altered"
    );
    lease
}

/// Whether the holds that ended and those that have not are as many as could have begun.
fn is_balanced(counters: &Counters) -> bool {
    let held: usize = counters.consumers.iter().map(|it| it.held).sum();
    let ended = counters.acknowledged
        + counters.covered
        + counters.cancelled_holds
        + counters.expired
        + counters.reclaimed;
    counters.published * counters.consumers.len() as u64 == ended + counters.absent + held as u64
}

/// All holds are accounted for.
#[track_caller]
pub fn adds_up(counters: &Counters) {
    assert!(is_balanced(counters), "{counters:?}");
}

/// No slice is in use, the free bytes are one piece, and all holds are accounted for.
#[track_caller]
pub fn is_idle(counters: &Counters) {
    adds_up(counters);
    assert_eq!((counters.busy, counters.slices), (0, 0), "{counters:?}");
    assert_eq!(counters.largest_free, counters.size, "{counters:?}");
    assert_eq!(counters.quarantined, 0, "{counters:?}");
    assert!(counters.consumers.iter().all(|it| it.held == 0));
}

/// The counters, once they are so and account for all holds. Asks for nothing but them.
#[track_caller]
pub fn counters_once(pool: &Pool, within: Duration, so: impl Fn(&Counters) -> bool) -> Counters {
    let until = Instant::now() + within;
    loop {
        let counters = pool.counters();
        if so(&counters) && is_balanced(&counters) {
            return counters;
        }
        assert!(Instant::now() < until, "after {within:?}: {counters:?}");
        thread::sleep(Duration::from_micros(200));
    }
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

/// The next line of the standard input; empty at its end.
pub fn told() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
