//! What a stream is given to do, as plain data.

use std::ops::Range;

use super::super::place::Rights;
use super::abi::Raw;

/// Where bytes begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    /// In a buffer of the host.
    Host(Raw),
    /// At an address of the device's.
    Device(u64),
}

/// What a stream can be given to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Bytes from one place to another.
    Move { to: Spot, from: Spot, size: u64 },
    /// The same, row by row.
    Rows(Rows),
    /// The same byte everywhere.
    Fill { to: u64, value: u8, size: u64 },
    /// One word, as a whole.
    Word { to: u64, value: u32 },
}

/// Rows of bytes, each of them so far behind the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) to: Side,
    pub(super) from: Side,
    pub(super) width: u64,
    pub(super) count: u64,
}

/// One side of the copy: where its first row begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) first: Spot,
    pub(super) pitch: u64,
}

impl Rows {
    /// The copy of one row.
    pub(super) fn row(&self, index: u64) -> Work {
        let spot = |side: Side| side.first.behind(index * side.pitch);
        Work::Move {
            to: spot(self.to),
            from: spot(self.from),
            size: self.width,
        }
    }
}

impl Spot {
    pub(super) fn address(self) -> u64 {
        match self {
            Spot::Host(buffer) => buffer.bits() as u64,
            Spot::Device(address) => address,
        }
    }

    /// So many bytes further on, which must be an address.
    pub(super) fn behind(self, bytes: u64) -> Spot {
        match self {
            Spot::Host(buffer) => Spot::Host(buffer.behind(bytes as usize)),
            Spot::Device(address) => Spot::Device(address + bytes),
        }
    }

    pub(super) fn on_device(self) -> Option<u64> {
        match self {
            Spot::Host(_) => None,
            Spot::Device(address) => Some(address),
        }
    }
}

impl Work {
    /// The device addresses it touches.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends().map(|(range, _)| range)
    }

    /// The device addresses it touches, and what it needs to do there.
    pub(super) fn ends(&self) -> impl Iterator<Item = (Range<u64>, Rights)> {
        self.pieces().flat_map(|piece| {
            let (to, from) = match piece {
                Work::Move { to, from, .. } => (to.on_device(), from.on_device()),
                Work::Fill { to, .. } | Work::Word { to, .. } => (Some(to), None),
                Work::Rows(_) => (None, None),
            };
            let size = piece.size();
            let end = move |start: u64, needed| (start..start.saturating_add(size), needed);
            let target = to.map(|to| end(to, Rights::ReadWrite));
            let source = from.map(|from| end(from, Rights::Read));
            target.into_iter().chain(source)
        })
    }

    /// Each row of a copy of rows; anything else is one piece.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Work> {
        let work = *self;
        let count = match work {
            Work::Rows(rows) => rows.count,
            _ => 1,
        };
        (0..count).map(move |index| match work {
            Work::Rows(rows) => rows.row(index),
            whole => whole,
        })
    }

    /// The bytes of one piece.
    pub(super) fn size(&self) -> u64 {
        match *self {
            Work::Move { size, .. } | Work::Fill { size, .. } => size,
            Work::Word { .. } => size_of::<u32>() as u64,
            Work::Rows(_) => 0,
        }
    }
}
