use proptest::prelude::*;

use super::*;

const POOL: PoolId = PoolId(*b"0123456789abcdef");
const KEY: TicketKey = TicketKey(*b"a key of 16 byte");

fn part(offset: usize, element: ElementType, shape: &[usize]) -> Part {
    Part::new(offset, Layout::new(element, shape).unwrap()).unwrap()
}

fn data(length: u64, parts: Vec<Part>) -> TicketData {
    TicketData {
        pool: POOL,
        slot: 0x0102_0304,
        generation: 0x0506_0708_090a_0b0c,
        offset: 0x1_0000_0000,
        length,
        parts,
    }
}

/// Two tensors with a gap, and all bytes of the slice.
fn usual() -> TicketData {
    let first = part(0, ElementType::F16, &[2, 3]);
    let second = part(16, ElementType::F32, &[12]);
    data(64, vec![first, second, part(0, ElementType::U8, &[64])])
}

fn decoded(bytes: &[u8]) -> Result<TicketData, TicketError> {
    decode(bytes, &POOL, &KEY)
}

/// The error of a ticket that a producer with the key made otherwise than this crate does.
fn refused(body: Vec<u8>) -> TicketError {
    decoded(&seal(body, &KEY)).unwrap_err()
}

/// A ticket's body with one part in these bytes.
fn with_part(length: u64, bytes: &[u8]) -> Vec<u8> {
    let mut body = write(&data(length, Vec::new()));
    body[49] = 1;
    body.extend(bytes);
    body
}

/// The order of the table in the module's documentation.
fn expected_of(index: usize, altered: &[u8]) -> TicketError {
    match index {
        0..4 => TicketError::NotATicket {
            found: altered[..4].try_into().unwrap(),
        },
        4 => TicketError::Version {
            found: altered[4],
            known: 1,
        },
        5..21 => TicketError::OtherPool {
            found: PoolId(altered[5..21].try_into().unwrap()),
            expected: POOL,
        },
        _ => TicketError::Altered,
    }
}

#[test]
fn the_check_is_siphash_2_4() {
    // The vector in the paper's appendix: the key 00..0f, the bytes 00..0e.
    let key = TicketKey::from_bytes(std::array::from_fn(|index| index as u8));
    let bytes: [u8; 15] = std::array::from_fn(|index| index as u8);
    assert_eq!(key.check(&bytes), 0xa129_ca61_49be_45e5_u64.to_le_bytes());
    assert_eq!(key.to_bytes()[15], 15);
}

#[test]
fn the_form_is_what_the_table_says() {
    let expected = [
        b"CVMT\x01".as_slice(),
        b"0123456789abcdef",
        b"\x04\x03\x02\x01\x0c\x0b\x0a\x09\x08\x07\x06\x05",
        b"\0\0\0\0\x01\0\0\0",
        b"\x40\0\0\0\0\0\0\0",
        b"\x03\0",
        b"\x09\x02\0\0\0\0\x02\0\0\0\x03\0\0\0",
        b"\x0b\x01\x10\0\0\0\x0c\0\0\0",
        b"\0",
    ]
    .concat();
    let ticket = encode(&usual(), &KEY);
    let (body, check) = ticket.split_last_chunk().unwrap();
    assert_eq!(body, expected);
    assert_eq!(*check, KEY.check(&expected));
    assert_eq!(decoded(&ticket), Ok(usual()));
}

#[test]
fn numbers_have_64_bits_where_one_of_the_part_needs_them() {
    let length = 1 << 40;
    for (part, bytes) in [
        (part(1 << 32, ElementType::I8, &[5]), 18),
        (part(0, ElementType::I8, &[1 << 32]), 18),
        (part(0, ElementType::I8, &[(1 << 32) - 1]), 10),
        (part(0, ElementType::I8, &[1 << 20, 1 << 20]), 14),
        (part((1 << 32) - 1, ElementType::I8, &[5]), 10),
    ] {
        let made = data(length, vec![part]);
        let ticket = encode(&made, &KEY);
        assert_eq!(ticket.len(), LEAST + bytes);
        assert_eq!(decoded(&ticket), Ok(made));
    }
}

#[test]
fn usual_tickets_are_short() {
    let size = |parts| encode(&data(4096, parts), &KEY).len();
    assert_eq!(size(vec![]), 59);
    assert_eq!(size(vec![part(0, ElementType::U8, &[4096])]), 60);
    assert_eq!(size(vec![part(0, ElementType::BF16, &[16, 128])]), 73);
    assert_eq!(size(vec![part(0, ElementType::F16, &[2; 8])]), 97);
}

#[test]
fn every_byte_altered_to_every_other_value_is_refused() {
    let ticket = encode(&usual(), &KEY);
    for index in 0..ticket.len() {
        for value in (0..=u8::MAX).filter(|&value| value != ticket[index]) {
            let mut altered = ticket.clone();
            altered[index] = value;
            assert_eq!(decoded(&altered), Err(expected_of(index, &altered)));
        }
    }
}

#[test]
fn every_two_flipped_bits_are_refused() {
    let ticket = encode(&data(8, vec![part(0, ElementType::F32, &[2])]), &KEY);
    let bits = ticket.len() * 8;
    for first in 0..bits {
        for second in first + 1..bits {
            let mut altered = ticket.clone();
            altered[first / 8] ^= 1 << (first % 8);
            altered[second / 8] ^= 1 << (second % 8);
            assert_eq!(decoded(&altered), Err(expected_of(first / 8, &altered)));
        }
    }
}

#[test]
fn every_truncation_and_every_extension_is_refused() {
    let ticket = encode(&usual(), &KEY);
    for length in 0..ticket.len() {
        let expected = match length < LEAST {
            true => TicketError::Truncated {
                length,
                least: LEAST,
            },
            false => TicketError::Altered,
        };
        assert_eq!(decoded(&ticket[..length]), Err(expected));
    }
    for byte in 0..=u8::MAX {
        for more in [1, 8, LONGEST] {
            let mut longer = ticket.clone();
            longer.resize(ticket.len() + more, byte);
            assert_eq!(decoded(&longer), Err(TicketError::Altered));
        }
    }
    // A byte left out or put in elsewhere shifts all that follow.
    for index in 0..ticket.len() {
        let mut altered = ticket.clone();
        altered.remove(index);
        assert!(decoded(&altered).is_err());
        altered = ticket.clone();
        altered.insert(index, 0);
        assert!(decoded(&altered).is_err());
    }
}

#[test]
fn another_key_or_another_pool_refuses_the_ticket() {
    let ticket = encode(&usual(), &KEY);
    for bit in 0..128 {
        let mut key = KEY;
        key.0[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&ticket, &POOL, &key), Err(TicketError::Altered));
    }
    let other = PoolId::from_bytes([7; 16]);
    let found = POOL;
    assert_eq!(
        decode(&ticket, &other, &KEY),
        Err(TicketError::OtherPool {
            found,
            expected: other
        })
    );
}

#[test]
fn the_pool_of_a_ticket_is_a_claim() {
    let mut ticket = encode(&usual(), &KEY);
    assert_eq!(pool_of(&ticket), Ok(POOL));
    ticket[54] ^= 1;
    assert_eq!(pool_of(&ticket), Ok(POOL));
    ticket[4] = 2;
    assert_eq!(
        pool_of(&ticket),
        Err(TicketError::Version { found: 2, known: 1 })
    );
    ticket[3] = b'W';
    let found = *b"CVMW";
    assert_eq!(pool_of(&ticket), Err(TicketError::NotATicket { found }));
    assert_eq!(
        pool_of(&ticket[..58]),
        Err(TicketError::Truncated {
            length: 58,
            least: 59
        })
    );
}

#[test]
fn a_slice_that_cannot_be_is_refused() {
    for (offset, length) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let made = TicketData {
            offset,
            length,
            ..data(1, Vec::new())
        };
        let error = TicketError::Slice { offset, length };
        assert_eq!(made.check(), Err(error.clone()));
        assert_eq!(refused(write(&made)), error);
    }
    let largest = TicketData {
        offset: 0,
        length: u64::MAX,
        ..data(1, vec![part(0, ElementType::U8, &[usize::MAX])])
    };
    assert_eq!(decoded(&encode(&largest, &KEY)), Ok(largest));
}

#[test]
fn a_part_outside_the_slice_is_refused() {
    let made = data(
        15,
        vec![
            part(0, ElementType::U8, &[15]),
            part(8, ElementType::F32, &[2]),
        ],
    );
    let error = TicketError::Part {
        part: 1,
        error: LayoutError::Outside {
            offset: 8,
            size: 8,
            length: 15,
        },
    };
    assert_eq!(made.check(), Err(error.clone()));
    assert_eq!(refused(write(&made)), error);
}

#[test]
fn parts_end_at_4096() {
    let whole = part(0, ElementType::U8, &[64]);
    let most = data(64, vec![whole; MAX_PARTS]);
    assert_eq!(decoded(&encode(&most, &KEY)), Ok(most));
    let more = data(64, vec![whole; MAX_PARTS + 1]);
    let error = TicketError::TooManyParts {
        found: 4097,
        most: 4096,
    };
    assert_eq!(more.check(), Err(error.clone()));
    assert_eq!(refused(write(&more)), error);
}

#[test]
fn the_longest_ticket_decodes_and_one_byte_more_is_altered() {
    let wide = part(1 << 32, ElementType::I8, &[1, 1, 1, 1, 1, 1, 1, 1]);
    let longest = data(1 << 40, vec![wide; MAX_PARTS]);
    let ticket = encode(&longest, &KEY);
    assert_eq!(ticket.len(), LONGEST);
    assert_eq!(decoded(&ticket), Ok(longest.clone()));
    let mut body = write(&longest);
    body.push(0);
    assert_eq!(refused(body), TicketError::Altered);
}

#[test]
fn parts_that_no_producer_writes_are_refused() {
    let of_part = |error| TicketError::Part { part: 0, error };
    let eight = [0u8; 4 + 4 * 8];
    for (bytes, error) in [
        // Nothing, no form, no offset, half a dimension.
        (b"".as_slice(), TicketError::Malformed { at: 51 }),
        (b"\x02", TicketError::Malformed { at: 52 }),
        (b"\x02\x01\0\0\0", TicketError::Malformed { at: 53 }),
        (b"\x02\x01\0\0\0\0\x05\0", TicketError::Malformed { at: 57 }),
        // A part too many.
        (b"\0\0", TicketError::Malformed { at: 52 }),
        // All bytes of the slice, in the form of other parts.
        (
            b"\x01\x01\0\0\0\0\x40\0\0\0",
            TicketError::Malformed { at: 51 },
        ),
        // 64 bits, and 32 are enough.
        (
            b"\x02\x81\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0",
            TicketError::Malformed { at: 51 },
        ),
        (
            b"\x12\0\0\0\0\0",
            TicketError::ElementType { part: 0, code: 18 },
        ),
        (
            &[b"\x02\x09".as_slice(), &eight].concat(),
            of_part(LayoutError::TooManyDimensions { found: 9, most: 8 }),
        ),
        (
            &[b"\x02\x7f".as_slice(), &eight].concat(),
            of_part(LayoutError::TooManyDimensions {
                found: 127,
                most: 8,
            }),
        ),
        (
            b"\x02\x01\0\0\0\0\0\0\0\0",
            of_part(LayoutError::ZeroDimension { index: 0 }),
        ),
        (
            b"\x09\x81\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80",
            of_part(LayoutError::TooLarge {
                element: ElementType::F16,
                index: 0,
                extent: 1 << 63,
            }),
        ),
        (
            b"\x0b\x01\x02\0\0\0\x01\0\0\0",
            of_part(LayoutError::Misaligned {
                offset: 2,
                element: ElementType::F32,
            }),
        ),
        (
            b"\x02\x80\xff\xff\xff\xff\xff\xff\xff\xff",
            of_part(LayoutError::Outside {
                offset: usize::MAX,
                size: 1,
                length: usize::MAX,
            }),
        ),
    ] {
        assert_eq!(refused(with_part(64, bytes)), error, "{bytes:02x?}");
    }
}

#[test]
fn a_count_without_its_parts_is_refused() {
    let mut body = write(&data(64, Vec::new()));
    body[49..51].copy_from_slice(&4096u16.to_le_bytes());
    assert_eq!(refused(body), TicketError::Malformed { at: 51 });
}

#[test]
fn the_key_is_not_shown() {
    assert_eq!(format!("{KEY:?}"), "TicketKey(secret)");
    let id = PoolId::from_bytes([0xab; 16]);
    assert_eq!(id.to_string(), "ab".repeat(16));
    assert_eq!(format!("{id:?}"), format!("PoolId({id})"));
    assert_eq!(id.to_bytes(), [0xab; 16]);
}

#[test]
fn texts_say_the_numbers_and_what_to_do() {
    let magic = TicketError::NotATicket { found: *b"HTTP" };
    assert_eq!(
        magic.to_string(),
        "not a ticket: it begins with \"HTTP\" instead of \"CVMT\""
    );
    let part = TicketError::Part {
        part: 3,
        error: LayoutError::ZeroDimension { index: 1 },
    };
    assert_eq!(
        part.to_string(),
        "part 3 of the ticket is invalid: dimension 1 of the shape is 0, so that there is nothing to publish: leave \
         empty tensors out"
    );
}

fn any_part() -> impl Strategy<Value = Part> {
    let extents = prop::collection::vec(1usize..5, 0..=8);
    let offsets = prop_oneof![0usize..100, Just(0usize), (1usize << 30)..(1 << 34)];
    (1u8..=17, extents, offsets).prop_map(|(code, shape, units)| {
        let element = ElementType::from_code(code).unwrap();
        part(units * element.bytes(), element, &shape)
    })
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        (pool, key, slot, generation) in any::<([u8; 16], [u8; 16], u32, u64)>(),
        offset in 0..u64::MAX / 2,
        room in 0u64..3,
        parts in prop::collection::vec(any_part(), 0..5),
    ) {
        let end = parts.iter().map(|part| part.range().end as u64).max();
        let data = TicketData {
            pool: PoolId(pool),
            slot,
            generation,
            offset,
            length: (end.unwrap_or(0) + room).max(1),
            parts,
        };
        prop_assert_eq!(data.check(), Ok(()));
        let ticket = encode(&data, &TicketKey(key));
        prop_assert_eq!(decode(&ticket, &data.pool, &TicketKey(key)), Ok(data));
    }

    #[test]
    fn sealed_bytes_are_refused_or_are_the_one_form(
        length in 1u64..100,
        count in 0u16..4,
        bytes in prop::collection::vec(prop_oneof![0u8..20, any::<u8>(), Just(0u8)], 0..60),
    ) {
        let mut body = write(&data(length, Vec::new()));
        body[49..51].copy_from_slice(&count.to_le_bytes());
        body.extend(bytes);
        let ticket = seal(body, &KEY);
        if let Ok(data) = decoded(&ticket) {
            prop_assert_eq!(data.check(), Ok(()));
            prop_assert_eq!(encode(&data, &KEY), ticket);
        }
    }
}
