use proptest::prelude::*;

use super::*;

const HOST: HostId = HostId([7; 16]);

fn encoded(frame: &Frame<'_>, fds: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(fds, &mut bytes);
    bytes
}

fn decoded(bytes: &[u8]) -> Result<(u16, Frame<'_>), FrameError> {
    let (header, payload) = bytes.split_first_chunk::<HEADER>().unwrap();
    let header = Header::decode(header)?;
    Ok((header.fds, Frame::decode(header, payload)?))
}

#[test]
fn the_form_is_what_the_table_says() {
    let piece = Frame::Piece {
        index: 0x0102,
        bytes: b"ab",
    };
    let expected = b"CVMW\x01\x03\x05\0\x06\0\0\0\x02\x01\0\0ab";
    assert_eq!(encoded(&piece, 5), expected);
    let announcement = Frame::Announcement(Announcement {
        topic: 1,
        pieces: 2,
        bytes: 3,
        fds: 4,
        host: HOST,
    });
    let expected = [
        b"CVMW\x01\x01\0\0\x24\0\0\0".as_slice(),
        b"\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0",
        &[7; 16],
    ]
    .concat();
    assert_eq!(encoded(&announcement, 0), expected);
    let hello = Frame::Hello { bytes: b"ab" };
    assert_eq!(encoded(&hello, 0), b"CVMW\x01\x09\0\0\x02\0\0\0ab");
}

#[test]
fn a_full_piece_and_a_full_hello_are_the_longest_messages() {
    let piece = Frame::Piece {
        index: 0,
        bytes: &[0; PIECE_BYTES],
    };
    assert_eq!(encoded(&piece, 253).len(), LONGEST);
    let bytes = &[0; HELLO_BYTES];
    assert_eq!(encoded(&Frame::Hello { bytes }, 0).len(), LONGEST);
}

#[test]
fn what_is_wrong_is_named() {
    let good = encoded(&Frame::Agreed { topic: 9 }, 0);
    let spoiled = |index: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[index] = byte;
        decoded(&bytes).unwrap_err()
    };
    let found = *b"XVMW";
    assert_eq!(spoiled(0, b'X'), FrameError::Magic { found });
    assert_eq!(spoiled(4, 2), FrameError::Version { found: 2 });
    assert_eq!(spoiled(5, 0), FrameError::Kind { found: 0 });
    assert_eq!(spoiled(5, 10), FrameError::Kind { found: 10 });
    assert_eq!(spoiled(6, 1), FrameError::Fds { announced: 1 });
    let length = 0x0f_00_00_04;
    assert_eq!(spoiled(11, 0x0f), FrameError::TooLong { length });
    let wrong = |expected, found| FrameError::Length { expected, found };
    assert_eq!(spoiled(8, 5), wrong(5, 4));
    assert_eq!(spoiled(5, 1), wrong(36, 4));
    assert_eq!(spoiled(5, 4), wrong(0, 4));
    let mut hello = good.clone();
    hello[5] = 9;
    let bytes = &9_u32.to_le_bytes();
    assert_eq!(decoded(&hello), Ok((0, Frame::Hello { bytes })));
    hello[6] = 1;
    assert_eq!(decoded(&hello), Err(FrameError::Fds { announced: 1 }));
    let piece = encoded(
        &Frame::Piece {
            index: 0,
            bytes: b"",
        },
        254,
    );
    assert_eq!(decoded(&piece), Err(FrameError::Fds { announced: 254 }));
    assert_eq!(decode_message(b"CVMW"), Err(wrong(12, 4)));
    assert_eq!(decode_message(&good), Ok("agreed"));
}

fn any_frame() -> impl Strategy<Value = (Vec<u8>, u32, u32, u64, [u8; 16], u8)> {
    (
        proptest::collection::vec(any::<u8>(), 0..=PIECE_BYTES),
        any::<u32>(),
        any::<u32>(),
        any::<u64>(),
        any::<[u8; 16]>(),
        0_u8..9,
    )
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded((bytes, a, b, c, host, kind) in any_frame(), reason in "[ -~]{0,400}") {
        let host = HostId(host);
        let frame = match kind {
            0 => Frame::Announcement(Announcement { topic: a, pieces: b, bytes: c, fds: a ^ b, host }),
            1 => Frame::Consent { host },
            2 => Frame::Piece { index: a, bytes: &bytes },
            3 => Frame::Accepted,
            4 => Frame::Refused { reason },
            5 => Frame::Join { rank: a, count: b, host },
            6 => Frame::Agreed { topic: a },
            7 => Frame::RankFailed { rank: a, reason },
            _ => Frame::Hello { bytes: &bytes },
        };
        let fds = if kind == 2 { (a % 254) as usize } else { 0 };
        let wire = encoded(&frame, fds);
        prop_assert!(wire.len() <= LONGEST);
        prop_assert_eq!(decoded(&wire), Ok((fds as u16, frame)));
    }

    /// Decoding borrows; the only thing it ever allocates is a reason of at most 512 bytes (1,536 where all of them are
    /// replaced).
    #[test]
    fn arbitrary_bytes_are_refused_or_bounded(mut bytes in proptest::collection::vec(any::<u8>(), 0..5000), kind in 0_u8..11, honest in any::<bool>()) {
        if let Some(start) = bytes.first_chunk_mut::<6>() {
            *start = [b'C', b'V', b'M', b'W', 1, kind];
        }
        let length = bytes.len().saturating_sub(HEADER) as u32;
        if let (true, Some(field)) = (honest, bytes.get_mut(6..12)) {
            field[..2].fill(0);
            field[2..].copy_from_slice(&length.to_le_bytes());
        }
        let _ = decode_message(&bytes);
        if let Some((header, payload)) = bytes.split_first_chunk::<HEADER>() {
            if let Ok(frame) = Header::decode(header).and_then(|header| Frame::decode(header, payload)) {
                if let Frame::Refused { reason } | Frame::RankFailed { reason, .. } = &frame {
                    prop_assert!(reason.len() <= 3 * 512);
                    prop_assert!(!reason.chars().any(char::is_control));
                }
                prop_assert!(bytes.len() <= LONGEST);
            }
        }
    }
}
