//! Tickets from any sender, and from a faulty producer.
//!
//! Without the key no bytes decode. With the key, bytes decode if and only if a second parser accepts them. It is
//! written from the documented form and shares no code with the first. A ticket with an altered byte never decodes.
#![no_main]

use std::hash::{DefaultHasher, Hash, Hasher};

use cuda_vmm::pool::{decode_ticket, pool_of, ticket_check, ElementType, TicketError};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const POOL: [u8; 16] = [7; 16];

#[derive(Debug, Arbitrary)]
enum Input {
    /// Anything, without the key.
    Bytes { begun: bool, bytes: Vec<u8> },
    /// Anything behind the pool, with the key.
    Sealed(Vec<u8>),
    /// Parts, with the key and true counts.
    Written {
        offset: u64,
        length: Number,
        parts: Vec<Part>,
        more: Vec<u8>,
        altered: (u16, u8),
    },
}

#[derive(Debug, Arbitrary)]
enum Part {
    Whole,
    Numbers {
        code: u8,
        wide: bool,
        /// The offset, in elements unless it is odd.
        offset: Number,
        odd: bool,
        shape: Vec<Number>,
    },
}

/// Mostly small numbers.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Number {
    Small(u8),
    Middle(u16),
    Wide(u64),
}

impl Number {
    fn value(self) -> u64 {
        match self {
            Number::Small(value) => value.into(),
            Number::Middle(value) => value.into(),
            Number::Wide(value) => value,
        }
    }
}

/// A key that changes with the input. The fuzzer sees both sides of a comparison and copies one into its next input:
/// with one key for all inputs it would find the right check at once.
fn key_of(bytes: &[u8]) -> [u8; 16] {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, bytes).hash(&mut hasher);
        hasher.finish().to_le_bytes()
    };
    let mut key = [0; 16];
    key[..8].copy_from_slice(&half(1));
    key[8..].copy_from_slice(&half(2));
    key
}

fn beginning() -> Vec<u8> {
    [b"CVMT\x01".as_slice(), &POOL].concat()
}

fuzz_target!(|input: Input| match input {
    Input::Bytes { begun, bytes } => {
        let bytes = match begun {
            true => [beginning(), bytes].concat(),
            false => bytes,
        };
        let error = decode_ticket(&bytes, POOL, key_of(&bytes)).unwrap_err();
        match pool_of(&bytes) {
            Ok(pool) if pool.to_bytes() == POOL => assert_eq!(error, TicketError::Altered),
            Ok(found) => assert!(
                matches!(error, TicketError::OtherPool { found: named, .. } if named == found)
            ),
            Err(early) => assert_eq!(error, early),
        }
    }
    Input::Sealed(bytes) => judge([beginning(), bytes].concat(), (0, 0)),
    Input::Written {
        offset,
        length,
        parts,
        more,
        altered,
    } => judge(written(offset, length.value(), &parts, &more), altered),
});

fn written(offset: u64, length: u64, parts: &[Part], more: &[u8]) -> Vec<u8> {
    let mut body = beginning();
    body.extend([1; 8]);
    body.extend(offset.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend((parts.len() as u16).to_le_bytes());
    for part in parts {
        let Part::Numbers {
            code,
            wide,
            offset,
            odd,
            shape,
        } = part
        else {
            body.push(0);
            continue;
        };
        let unit = match ElementType::from_code(*code) {
            Some(element) if !odd => element.bytes() as u64,
            _ => 1,
        };
        body.extend([*code, shape.len() as u8 | if *wide { 128 } else { 0 }]);
        let offset = offset.value().wrapping_mul(unit);
        for number in std::iter::once(offset).chain(shape.iter().map(|number| number.value())) {
            match wide {
                true => body.extend(number.to_le_bytes()),
                false => body.extend((number as u32).to_le_bytes()),
            }
        }
    }
    body.extend(more);
    body
}

/// The ticket of this body, and one with an altered byte.
fn judge(body: Vec<u8>, (at, by): (u16, u8)) {
    let key = key_of(&body);
    let check = ticket_check(&body, key);
    let valid = second_opinion(&body).is_some();
    let mut ticket = [body, check.to_vec()].concat();
    let decoded = decode_ticket(&ticket, POOL, key);
    assert_eq!(decoded.is_ok(), valid, "{decoded:?}");
    assert!(decoded != Err(TicketError::Altered));
    if by != 0 {
        let at = usize::from(at) % ticket.len();
        ticket[at] ^= by;
        assert!(decode_ticket(&ticket, POOL, key).is_err());
    }
}

fn number<'a>(bytes: &'a [u8], width: usize) -> Option<(u128, &'a [u8])> {
    let (field, rest) = bytes.split_at_checked(width)?;
    let value = field
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u128::from(byte));
    Some((value, rest))
}

/// Accepts the form that a correct producer writes. Its numbers do not overflow.
fn second_opinion(body: &[u8]) -> Option<()> {
    let rest = body.strip_prefix(beginning().as_slice())?;
    let (_slot_and_generation, rest) = number(rest, 12)?;
    let (offset, rest) = number(rest, 8)?;
    let (length, rest) = number(rest, 8)?;
    let (count, mut rest) = number(rest, 2)?;
    if length == 0 || offset + length > u128::from(u64::MAX) || count > 4096 {
        return None;
    }
    for _ in 0..count {
        rest = part(rest, length)?;
    }
    rest.is_empty().then_some(())
}

/// Accepts one part, and returns the bytes behind it.
fn part(bytes: &[u8], length: u128) -> Option<&[u8]> {
    let (code, rest) = number(bytes, 1)?;
    let element = match code {
        0 => return Some(rest),
        1 | 2 | 13 | 14 | 15 => 1,
        3 | 4 | 9 | 10 => 2,
        5 | 6 | 11 => 4,
        7 | 8 | 12 | 16 => 8,
        17 => 16,
        _ => return None,
    };
    let (form, rest) = number(rest, 1)?;
    let (width, dimensions) = match form {
        0..=8 => (4, form),
        128..=136 => (8, form - 128),
        _ => return None,
    };
    let (offset, mut rest) = number(rest, width)?;
    let (mut size, mut largest) = (element, offset);
    for _ in 0..dimensions {
        let (extent, behind) = number(rest, width)?;
        rest = behind;
        largest = largest.max(extent);
        // At most 2^64 before each step, so below 2^128 after it.
        size *= extent;
        if size > length {
            return None;
        }
    }
    let whole = code == 1 && dimensions == 1 && offset == 0 && size == length;
    let needs_wide = largest > u128::from(u32::MAX);
    let valid = size > 0
        && offset % element == 0
        && offset + size <= length
        && needs_wide == (width == 8)
        && !whole;
    valid.then_some(rest)
}
