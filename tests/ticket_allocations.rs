//! A ticket that is refused before its check matches costs no allocation, regardless of its counts.
//!
//! A program of its own, because the allocator that counts is the whole program's.

#[path = "support/counting.rs"]
mod counting;

use cuda_vmm::pool::{decode_ticket, ticket_check, TicketError};

use counting::allocations;

const POOL: [u8; 16] = [7; 16];
const KEY: [u8; 16] = [9; 16];

/// A ticket with this number of parts. Each part is the whole slice of 64 bytes.
fn ticket(parts: u16) -> Vec<u8> {
    let mut bytes = [b"CVMT\x01".as_slice(), &POOL, &[0; 20]].concat();
    bytes.extend(64u64.to_le_bytes());
    bytes.extend(parts.to_le_bytes());
    bytes.resize(bytes.len() + usize::from(parts), 0);
    let check = ticket_check(&bytes, KEY);
    bytes.extend(check);
    bytes
}

/// The answer, and its allocations: the fewest of three attempts, because the test harness has a thread of its own.
fn decode(bytes: &[u8]) -> (Result<(), TicketError>, u64) {
    let attempt = || {
        let before = allocations();
        let decoded = decode_ticket(bytes, POOL, KEY);
        (decoded, allocations() - before)
    };
    let attempts = [attempt(), attempt(), attempt()];
    attempts
        .into_iter()
        .min_by_key(|attempt| attempt.1)
        .unwrap()
}

#[test]
fn only_what_is_verified_allocates() {
    for parts in [1, 4096] {
        let good = ticket(parts);
        assert_eq!(decode(&good), (Ok(()), 1), "the list of parts");
        let mut altered = good.clone();
        for index in 0..good.len() {
            altered[index] ^= 0xff;
            let (decoded, allocated) = decode(&altered);
            assert!(decoded.is_err());
            assert_eq!(allocated, 0, "byte {index}: {decoded:?}");
            altered[index] = good[index];
        }
        for length in 0..good.len() {
            let (decoded, allocated) = decode(&good[..length]);
            assert!(decoded.is_err());
            assert_eq!(allocated, 0, "{length} bytes: {decoded:?}");
        }
    }
    // With the key, a count beyond the limit is refused before the parts are read.
    let expected = TicketError::TooManyParts {
        found: 4097,
        most: 4096,
    };
    assert_eq!(decode(&ticket(4097)), (Err(expected), 0));
}
