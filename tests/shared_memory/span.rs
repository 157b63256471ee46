//! Spans with known contents, sent and attached.

use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use cuda_vmm::share::wire::{receive_parcel, send_parcel, Limits, Parcel, Received, WireError};
use cuda_vmm::share::{ReadOnlySpan, SpanImport};
use cuda_vmm::{Access, HandleType, Reservation};

use crate::side::Side;
use crate::surroundings::soon;

/// Bytes are written and compared in blocks of this size, each with its own stamp.
const BLOCK: usize = 1 << 20;

/// The socket that is this process's standard input.
pub fn stdin() -> OwnedFd {
    unsafe { OwnedFd::from_raw_fd(0) }
}

/// So many pieces of this size, side by side, each filled with a pattern of its own.
pub fn made(side: &Side, pieces: usize, size: usize) -> Reservation {
    let mut kv = side.reserve(pieces * size / side.g);
    for piece in 0..pieces {
        kv.map(piece * size, size, &side.props()).unwrap();
    }
    write_all(&mut kv, 0);
    kv
}

/// Fills every mapping; another seed makes other contents.
pub fn write_all(kv: &mut Reservation, seed: u64) {
    let places: Vec<_> = kv.mappings().map(|mapping| mapping.range()).collect();
    let mut block = Block::new();
    for place in places {
        for at in place.clone().step_by(BLOCK) {
            let size = BLOCK.min(place.end - at);
            kv.write(at, &block.stamped(at, seed)[..size]).unwrap();
        }
    }
}

/// Something that can be read.
pub trait Readable {
    fn places(&self) -> Vec<Range<usize>>;
    fn bytes(&self, at: usize, bytes: &mut [u8]);
}

impl Readable for Reservation {
    fn places(&self) -> Vec<Range<usize>> {
        self.mappings().map(|mapping| mapping.range()).collect()
    }

    fn bytes(&self, at: usize, bytes: &mut [u8]) {
        self.read(at, bytes).unwrap();
    }
}

impl Readable for ReadOnlySpan {
    fn places(&self) -> Vec<Range<usize>> {
        self.mappings().map(|mapping| mapping.range()).collect()
    }

    fn bytes(&self, at: usize, bytes: &mut [u8]) {
        self.read(at, bytes).unwrap();
    }
}

/// Every byte is as [`write_all`] left it; the sum over all, which both sides can say.
#[track_caller]
pub fn checked(span: &impl Readable, seed: u64) -> u64 {
    checked_in(span, 0..usize::MAX, seed)
}

/// The same of the pieces that begin in a part of it.
#[track_caller]
pub fn checked_in(span: &impl Readable, part: Range<usize>, seed: u64) -> u64 {
    let (mut expected, mut got) = (Block::new(), vec![0; BLOCK]);
    let mut sum = 0_u64;
    for place in span
        .places()
        .into_iter()
        .filter(|place| part.contains(&place.start))
    {
        for at in place.clone().step_by(BLOCK) {
            let size = BLOCK.min(place.end - at);
            span.bytes(at, &mut got[..size]);
            let same = got[..size] == expected.stamped(at, seed)[..size];
            assert!(same, "other bytes than were written at {at}");
            // One word in eight: all were compared.
            let words = got[..size]
                .chunks_exact(64)
                .map(|words| words.first_chunk());
            sum = words.fold(sum, |sum, word| {
                let word = u64::from_le_bytes(*word.unwrap());
                sum.rotate_left(5).wrapping_add(word)
            });
        }
    }
    sum
}

/// Bytes that look random, stamped with where they are.
struct Block(Vec<u8>);

impl Block {
    fn new() -> Block {
        // Made once: programs without optimisation take their time for it.
        static RANDOM: OnceLock<Vec<u8>> = OnceLock::new();
        let random = || {
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            let word = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            };
            let words = std::iter::repeat_with(word).take(BLOCK / 8);
            words.flatten().collect()
        };
        Block(RANDOM.get_or_init(random).clone())
    }

    /// In each page there are the seed and the offset.
    fn stamped(&mut self, at: usize, seed: u64) -> &[u8] {
        for page in self.0.chunks_exact_mut(4096) {
            page[..8].copy_from_slice(&seed.to_le_bytes());
            page[8..16].copy_from_slice(&(at as u64).to_le_bytes());
        }
        &self.0
    }
}

/// The whole of a reservation as a parcel, for others to do this with.
pub fn parcel(kv: &Reservation, offered: Access) -> Parcel {
    let exported = kv.export_span(0, kv.size(), HandleType::PosixFd, offered);
    let (bytes, fds, _) = exported.unwrap().into_parts();
    Parcel::new(bytes, fds)
}

pub fn send(socket: impl AsFd, kv: &Reservation) -> Result<(), WireError> {
    send_parcel(socket, &parcel(kv, Access::ReadWrite), Some(soon(30)))
}

pub fn receive<S: AsFd>(socket: S) -> Received<S> {
    receive_parcel(socket, Limits::default(), Some(soon(30))).unwrap()
}

/// What was received, attached for reading and writing; the sender does not know yet.
pub fn attached<S: AsFd>(side: &Side, received: &mut Received<S>) -> Reservation {
    let parcel = mem::take(received.parcel_mut());
    SpanImport::new(&parcel.bytes, parcel.fds)
        .and_then(|import| import.attach(&side.driver, [(&side.device, Access::ReadWrite)]))
        .unwrap()
}

/// What was received, attached for reading, and accepted.
pub fn attached_read_only<S: AsFd>(side: &Side, mut received: Received<S>) -> ReadOnlySpan {
    let parcel = mem::take(received.parcel_mut());
    let span = SpanImport::new(&parcel.bytes, parcel.fds)
        .and_then(|import| import.attach_read_only(&side.driver, [&side.device]))
        .unwrap();
    received.accept().unwrap();
    span
}
