//! Which bytes of a range of addresses are whose: arithmetic on offsets, which touches no memory and knows no driver.
//!
//! A byte is *used*, *free*, or in a *hole*. What is used or free has memory; a hole has none, and is filled and dug in
//! whole units. Pieces are multiples of [`ROUNDING`]; the smallest free piece that is large enough is taken, of equals
//! the one with the lowest address, and what of it is not needed stays free.
//!
//! # Streams
//!
//! What a stream used may still be in use by work that was enqueued on it. So a free piece belongs to the stream that
//! used it last, and only that stream may take it, whose work is done in order; until [`settle`](Heap::settle) says
//! that all streams are idle. Then it is free for all. New memory belongs to the stream it was made for. Neighbours
//! become one piece, if they are of one stream, or one of them is free for all: the whole is then the other one's.
//!
//! Tested by `tests/torch_allocator/pieces.rs`: case by case, and in random programs against one mark for every 512 bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A stream, by the value of its handle. 0 is the default stream.
pub type Stream = usize;

/// What sizes and offsets of pieces are multiples of, in bytes: as with PyTorch's own allocator.
pub const ROUNDING: usize = 512;

/// A free piece: its stream, unless it is free for all, then size and offset, so that they stand by what fits best.
type BySize = BTreeSet<(Option<Stream>, usize, usize)>;

pub struct Heap {
    size: usize,
    /// What holes are filled and dug in.
    unit: usize,
    used: BTreeMap<usize, Used>,
    free: BTreeMap<usize, Free>,
    by_size: BySize,
    /// Offsets and sizes of what has no memory.
    holes: BTreeMap<usize, usize>,
    used_bytes: usize,
    hole_bytes: usize,
}

#[derive(Clone, Copy)]
struct Used {
    size: usize,
    asked: usize,
}

#[derive(Clone, Copy)]
struct Free {
    size: usize,
    stream: Option<Stream>,
}

/// Why a piece was not given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotGiven {
    #[error("no piece in use starts there")]
    Unknown,
    #[error("the piece there has {0} bytes")]
    OtherSize(usize),
}

impl Heap {
    /// One hole of so many bytes, a multiple of the unit, which is one of [`ROUNDING`].
    pub fn new(size: usize, unit: usize) -> Heap {
        Heap {
            size,
            unit,
            used: BTreeMap::new(),
            free: BTreeMap::new(),
            by_size: BTreeSet::new(),
            holes: BTreeMap::from([(0, size)]),
            used_bytes: 0,
            hole_bytes: size,
        }
    }

    /// Bytes of all, with memory or without.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes in pieces that are used.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes that have memory, used or free.
    pub fn backed_bytes(&self) -> usize {
        self.size - self.hole_bytes
    }

    /// Takes a piece for so many bytes, not 0, to be used on a stream. `None` if no piece that it may take is large
    /// enough.
    pub fn take(&mut self, asked: usize, stream: Stream) -> Option<usize> {
        let size = asked.checked_next_multiple_of(ROUNDING)?;
        let own = self.best(Some(stream), size);
        let for_all = self.best(None, size);
        let (_, at) = own.into_iter().chain(for_all).min()?;
        let piece = self.remove_free(at)?;
        if piece.size > size {
            let rest = Free {
                size: piece.size - size,
                ..piece
            };
            self.insert_free(at + size, rest);
        }
        self.used.insert(at, Used { size, asked });
        self.used_bytes += size;
        Some(at)
    }

    /// Gives a piece back for which so many bytes were asked, and which this stream was the last to use.
    pub fn give(&mut self, at: usize, asked: usize, stream: Stream) -> Result<(), NotGiven> {
        let piece = *self.used.get(&at).ok_or(NotGiven::Unknown)?;
        if piece.asked != asked {
            return Err(NotGiven::OtherSize(piece.asked));
        }
        self.used.remove(&at);
        self.used_bytes -= piece.size;
        self.join(at, piece.size, Some(stream));
        Ok(())
    }

    /// Which part of a hole is to be filled so that a piece for so many bytes can be taken: the one with the lowest
    /// address. It counts on what is free right before it. `None` if no hole is large enough.
    pub fn wants(&self, asked: usize, stream: Stream) -> Option<Range<usize>> {
        let size = asked.checked_next_multiple_of(ROUNDING)?;
        self.holes.iter().find_map(|(start, hole)| {
            let missing = size.saturating_sub(self.free_before(*start, stream));
            let filled = missing.checked_next_multiple_of(self.unit)?;
            (filled <= *hole).then(|| *start..*start + filled)
        })
    }

    /// A part of a hole, whole units of it, has memory now, for this stream.
    pub fn fill(&mut self, part: Range<usize>, stream: Stream) {
        let Some((start, hole)) = self.hole_over(&part) else {
            debug_assert!(false, "{part:?} is in no hole");
            return;
        };
        self.holes.remove(&start);
        if start < part.start {
            self.holes.insert(start, part.start - start);
        }
        if part.end < start + hole {
            self.holes.insert(part.end, start + hole - part.end);
        }
        self.hole_bytes -= part.len();
        self.join(part.start, part.len(), Some(stream));
    }

    /// All streams are idle: what is free is free for all.
    pub fn settle(&mut self) {
        let pieces = std::mem::take(&mut self.free);
        self.by_size.clear();
        for (at, piece) in pieces {
            self.join(at, piece.size, None);
        }
    }

    /// The units that are wholly free, by address, in rows.
    pub fn free_units(&self) -> Vec<Range<usize>> {
        let units = self.free.iter().filter_map(|(at, piece)| {
            let start = at.next_multiple_of(self.unit);
            let end = (at + piece.size) / self.unit * self.unit;
            (start < end).then_some(start..end)
        });
        units.collect()
    }

    /// Units that are wholly free have no memory any more.
    pub fn dig(&mut self, units: Range<usize>) {
        let before = self.free.range(..=units.start).next_back();
        let over = before.filter(|(at, piece)| *at + piece.size >= units.end);
        let Some(at) = over.map(|(at, _)| *at) else {
            debug_assert!(false, "{units:?} is not free");
            return;
        };
        let Some(Free { size, stream }) = self.remove_free(at) else {
            return;
        };
        for rest in [at..units.start, units.end..at + size] {
            if !rest.is_empty() {
                let size = rest.len();
                self.insert_free(rest.start, Free { size, stream });
            }
        }
        self.hole_bytes += units.len();
        let (mut start, mut end) = (units.start, units.end);
        if let Some((before, size)) = self.holes.range(..start).next_back() {
            if before + size == start {
                start = *before;
            }
        }
        if let Some(size) = self.holes.remove(&end) {
            end += size;
        }
        self.holes.insert(start, end - start);
    }

    fn best(&self, stream: Option<Stream>, size: usize) -> Option<(usize, usize)> {
        let fits = (stream, size, 0)..=(stream, usize::MAX, usize::MAX);
        let (_, size, at) = self.by_size.range(fits).next()?;
        Some((*size, *at))
    }

    /// Bytes right before an offset that this stream may take.
    fn free_before(&self, offset: usize, stream: Stream) -> usize {
        let before = self.free.range(..offset).next_back();
        let usable = before.filter(|(at, piece)| {
            *at + piece.size == offset && piece.stream.is_none_or(|owner| owner == stream)
        });
        usable.map_or(0, |(_, piece)| piece.size)
    }

    fn hole_over(&self, part: &Range<usize>) -> Option<(usize, usize)> {
        let (start, size) = self.holes.range(..=part.start).next_back()?;
        (part.end <= start + size).then_some((*start, *size))
    }

    /// Makes bytes free, as one piece with its neighbours where they go together.
    fn join(&mut self, at: usize, size: usize, stream: Option<Stream>) {
        let mut whole = (at, Free { size, stream });
        let before = self.free.range(..at).next_back();
        if let Some((before, piece)) = before.map(|(before, piece)| (*before, *piece)) {
            if before + piece.size == at {
                if let Ok(stream) = together(piece.stream, whole.1.stream) {
                    self.remove_free(before);
                    let size = piece.size + whole.1.size;
                    whole = (before, Free { size, stream });
                }
            }
        }
        let end = at + size;
        if let Some(piece) = self.free.get(&end).copied() {
            if let Ok(stream) = together(whole.1.stream, piece.stream) {
                self.remove_free(end);
                let size = whole.1.size + piece.size;
                whole = (whole.0, Free { size, stream });
            }
        }
        self.insert_free(whole.0, whole.1);
    }

    fn insert_free(&mut self, at: usize, piece: Free) {
        self.free.insert(at, piece);
        self.by_size.insert((piece.stream, piece.size, at));
    }

    fn remove_free(&mut self, at: usize) -> Option<Free> {
        let piece = self.free.remove(&at)?;
        self.by_size.remove(&(piece.stream, piece.size, at));
        Some(piece)
    }
}

/// Whose two neighbours are as one piece; an error if they cannot be one.
fn together(one: Option<Stream>, other: Option<Stream>) -> Result<Option<Stream>, ()> {
    match (one, other) {
        (None, stream) | (stream, None) => Ok(stream),
        (Some(one), Some(other)) if one == other => Ok(Some(one)),
        _ => Err(()),
    }
}
