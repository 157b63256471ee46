//! The bytes of a descriptor: what is written is read, and nothing else is believed.

use cuda_vmm::share::{AllocationId, DecodeError, Descriptor};
use proptest::prelude::*;

const PAGE: u64 = 4096;

/// An allocation, as the bytes have it.
#[derive(Debug, Clone)]
struct Shared {
    id: [u8; 16],
    size: u64,
    kind: u8,
    place: [u8; 16],
    fabric: Option<[u8; 64]>,
}

/// A description, written by other code than the crate's.
#[derive(Debug, Clone)]
struct Written {
    version: u16,
    handle_type: u8,
    access: u8,
    size: u64,
    allocations: Vec<Shared>,
    pieces: Vec<(u64, u32)>,
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"cuvmspan".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend([self.handle_type, self.access]);
        bytes.extend((self.allocations.len() as u32).to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend((self.pieces.len() as u32).to_le_bytes());
        for one in &self.allocations {
            bytes.extend(one.id);
            bytes.extend(one.size.to_le_bytes());
            bytes.push(one.kind);
            bytes.extend(one.place);
            bytes.extend(one.fabric.iter().flatten());
        }
        for (offset, allocation) in &self.pieces {
            bytes.extend(offset.to_le_bytes());
            bytes.extend(allocation.to_le_bytes());
        }
        bytes
    }

    fn decoded(&self) -> Result<Descriptor, DecodeError> {
        Descriptor::decode(&self.bytes())
    }
}

/// Two allocations of two pages and one; the second lies at two places.
fn sound() -> Written {
    let shared = |number: u8, pages: u64| Shared {
        id: [number; 16],
        size: pages * PAGE,
        kind: 1,
        place: [9; 16],
        fabric: None,
    };
    Written {
        version: 1,
        handle_type: 1,
        access: 2,
        size: 8 * PAGE,
        allocations: vec![shared(1, 2), shared(2, 1)],
        pieces: vec![(0, 0), (4 * PAGE, 1), (7 * PAGE, 1)],
    }
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Written), expected: DecodeError) {
    let mut written = sound();
    change(&mut written);
    assert_eq!(written.decoded(), Err(expected));
}

#[test]
fn the_layout_is_this() {
    let read = sound().decoded().unwrap();
    assert_eq!(read.encode(), sound().bytes());
    assert_eq!(read.encode().len(), 28 + 2 * 41 + 3 * 12);
}

#[test]
fn lengths_are_checked_before_anything_is_made_for_them() {
    let bytes = sound().bytes();
    for got in 0..bytes.len() {
        let needed = match got {
            0..28 => 28,
            _ => bytes.len() as u64,
        };
        let expected = DecodeError::TooShort { needed, got };
        assert_eq!(Descriptor::decode(&bytes[..got]), Err(expected));
    }
    let mut long = bytes.clone();
    long.push(0);
    let expected = DecodeError::TooLong {
        expected: bytes.len() as u64,
        got: bytes.len() + 1,
    };
    assert_eq!(Descriptor::decode(&long), Err(expected));

    let mut greedy = bytes.clone();
    greedy[12..16].fill(0xff);
    greedy[24..28].fill(0xff);
    let expected = DecodeError::TooShort {
        needed: 28 + u64::from(u32::MAX) * (41 + 12),
        got: bytes.len(),
    };
    assert_eq!(Descriptor::decode(&greedy), Err(expected));
}

#[test]
fn what_is_not_known() {
    let mut bytes = sound().bytes();
    bytes[0] = b'X';
    let found = *b"Xuvmspan";
    assert_eq!(
        Descriptor::decode(&bytes),
        Err(DecodeError::BadMagic { found })
    );
    refused(
        |one| one.version = 2,
        DecodeError::UnknownVersion {
            version: 2,
            known: 1,
        },
    );
    refused(
        |one| one.handle_type = 3,
        DecodeError::UnknownHandleType { tag: 3 },
    );
    refused(|one| one.access = 0, DecodeError::UnknownAccess { tag: 0 });
    refused(
        |one| one.allocations[1].kind = 7,
        DecodeError::UnknownHome {
            allocation: 1,
            tag: 7,
        },
    );
}

#[test]
fn a_place_has_one_form() {
    for kind in [2, 3] {
        refused(
            |one| one.allocations[1].kind = kind,
            DecodeError::Padding { allocation: 1 },
        );
    }
    let mut host = sound();
    host.allocations[0].kind = 2;
    host.allocations[0].place = [0; 16];
    host.allocations[1].kind = 3;
    host.allocations[1].place = [0; 16];
    host.allocations[1].place[0] = 5;
    assert_eq!(host.decoded().unwrap().encode(), host.bytes());
}

#[test]
fn sizes_and_offsets() {
    refused(
        |one| one.allocations[0].size = 0,
        DecodeError::ZeroSize { allocation: 0 },
    );
    let misaligned = |value| DecodeError::Misaligned {
        value,
        granularity: PAGE,
    };
    refused(|one| one.allocations[1].size = 100, misaligned(100));
    refused(|one| one.size = 8 * PAGE + 1, misaligned(8 * PAGE + 1));
    refused(
        |one| one.pieces[1].0 = 3 * PAGE + 8,
        misaligned(3 * PAGE + 8),
    );
    refused(
        |one| one.size = 7 * PAGE,
        DecodeError::OutOfSpan {
            piece: 2,
            offset: 7 * PAGE,
            size: PAGE,
            span: 7 * PAGE,
        },
    );
    let far = u64::MAX - PAGE + 1;
    refused(
        |one| {
            one.pieces[2].0 = far;
            one.size = far;
        },
        DecodeError::OutOfSpan {
            piece: 2,
            offset: far,
            size: PAGE,
            span: far,
        },
    );
}

#[test]
fn pieces_over_each_other_or_in_disorder() {
    refused(
        |one| one.pieces[1].0 = PAGE,
        DecodeError::Overlap {
            piece: 1,
            offset: PAGE,
            end: 2 * PAGE,
        },
    );
    refused(
        |one| one.pieces.swap(1, 2),
        DecodeError::Overlap {
            piece: 2,
            offset: 4 * PAGE,
            end: 8 * PAGE,
        },
    );
}

#[test]
fn indexes_that_are_missing_unused_or_in_disorder() {
    refused(
        |one| one.pieces[2].1 = 2,
        DecodeError::NoSuchAllocation {
            piece: 2,
            allocation: 2,
            count: 2,
        },
    );
    refused(
        |one| one.pieces[0].1 = 1,
        DecodeError::OutOfOrder {
            piece: 0,
            allocation: 1,
            expected: 0,
        },
    );
    refused(
        |one| one.pieces.truncate(1),
        DecodeError::Unused { allocation: 1 },
    );
    refused(
        |one| {
            one.pieces.clear();
            one.allocations.clear();
        },
        DecodeError::Empty,
    );
    refused(
        |one| one.allocations[1].id = [1; 16],
        DecodeError::Duplicate {
            allocation: 1,
            id: AllocationId::from_bytes([1; 16]),
        },
    );
}

/// Spans of up to a dozen pieces, in the one form that they have.
fn spans() -> impl Strategy<Value = Written> {
    let piece = (0..4_u64, 1..4_u64, any::<prop::sample::Index>());
    let header = (any::<bool>(), 1..3_u8, 0..3_u64);
    (header, prop::collection::vec(piece, 1..12)).prop_map(|((fabric, access, tail), pieces)| {
        let mut span = Written {
            version: 1,
            handle_type: 1 + u8::from(fabric),
            access,
            size: 0,
            allocations: Vec::new(),
            pieces: Vec::new(),
        };
        for (hole, pages, which) in pieces {
            let known = span.allocations.len();
            let index = which.index(known + 1);
            if index == known {
                let kind = 1 + (known % 3) as u8;
                let mut place = [0; 16];
                place[0] = if kind == 2 { 0 } else { known as u8 };
                span.allocations.push(Shared {
                    id: [known as u8; 16],
                    size: pages * PAGE,
                    kind,
                    place,
                    fabric: fabric.then_some([known as u8; 64]),
                });
            }
            let offset = span.size + hole * PAGE;
            span.pieces.push((offset, index as u32));
            span.size = offset + span.allocations[index].size;
        }
        span.size += tail * PAGE;
        span
    })
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(span in spans()) {
        let read = span.decoded().unwrap();
        prop_assert_eq!(read.encode(), span.bytes());
        prop_assert_eq!(read.size(), span.size);
        prop_assert_eq!(read.pieces().len(), span.pieces.len());
        prop_assert_eq!(Descriptor::decode(&read.encode()).unwrap(), read);
    }

    /// Whatever is believed has one form: the bytes that it was read from.
    #[test]
    fn any_bytes_are_refused_or_read_in_full(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(read) = Descriptor::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }

    #[test]
    fn a_change_anywhere_is_refused_or_read_in_full(
        span in spans(),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let mut bytes = span.bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(read) = Descriptor::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }
}
