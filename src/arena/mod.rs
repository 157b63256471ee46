//! A bump arena over any number of extents of addresses.
//!
//! It hands out addresses and counts; it owns no memory and makes no driver call, so it can lie over anything: a mapped
//! part of a [`Reservation`](crate::Reservation), several of them, an [`ElasticRange`](crate::ElasticRange) that it
//! [commits as it grows](Arena::allocate_in), or memory that other code mapped.
//!
//! It does not know what is mapped. Pieces of a member of a [group](crate::suspend) that is suspended keep their
//! addresses, beneath which there is no memory until the member is resumed.
//!
//! ```
//! use cuda_vmm::arena::{Arena, Extent, Fit};
//!
//! let extents = [Extent::new(0x1000, 4096), Extent::new(0x9000, 1024)];
//! let mut arena = Arena::over(extents, Fit::Best)?;
//! let piece = arena.allocate(1000, 256)?; // in the smaller extent, which it fits best
//! assert_eq!(piece.address(), 0x9000);
//! arena.free(piece)?; // counted, and reused after `reset`
//! assert_eq!((arena.used(), arena.freed()), (1000, 1000));
//! # Ok::<(), cuda_vmm::Error>(())
//! ```

mod growing;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result, What};
use crate::reservation::View;

/// Addresses that an arena may hand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    address: u64,
    size: usize,
}

/// Which extent a piece is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fit {
    /// The first, in the order in which they were given, that has room.
    #[default]
    First,
    /// The one that has the least room left of those that have enough.
    Best,
}

/// A bump arena: each extent has a cursor, which moves up with each piece that is handed out. What is freed is counted,
/// and can be handed out again only after [`reset`](Arena::reset) or [`set_extents`](Arena::set_extents).
#[derive(Debug)]
pub struct Arena {
    extents: Vec<Filled>,
    fit: Fit,
    /// The sizes of all pieces that were freed.
    freed: usize,
    /// Which arena it is, and how often its pieces were forgotten: a piece is known by both.
    key: Key,
}

type Key = (u64, u64);

#[derive(Debug, Clone, Copy)]
struct Filled {
    extent: Extent,
    cursor: usize,
}

/// Addresses that an arena handed out. It can be freed once:
///
/// ```compile_fail,E0382
/// # use cuda_vmm::arena::{Arena, Piece};
/// fn twice(arena: &mut Arena, piece: Piece) {
///     arena.free(piece).unwrap();
///     arena.free(piece).unwrap();
/// }
/// ```
///
/// Dropping it frees nothing; the addresses are the arena's to give again when it is reset.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    address: u64,
    size: usize,
    key: Key,
}

/// Where the next piece would lie.
struct Place {
    extent: usize,
    /// The cursor behind the piece.
    cursor: usize,
    address: u64,
}

impl Extent {
    /// `size` bytes from this address on.
    pub fn new(address: u64, size: usize) -> Extent {
        Extent { address, size }
    }

    /// First address.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn size(self) -> usize {
        self.size
    }

    fn range(self) -> Range<u64> {
        self.address..self.address + self.size as u64
    }
}

/// The mapped bytes that the view shows. Nothing keeps them mapped when the view is gone.
impl From<View<'_>> for Extent {
    fn from(view: View<'_>) -> Extent {
        Extent::new(view.address(), view.size())
    }
}

impl Piece {
    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Arena {
    /// An arena over these extents. There may be none; then it is always full.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::Overflow`], [`Error::ExtentsOverlap`].
    pub fn over(extents: impl IntoIterator<Item = Extent>, fit: Fit) -> Result<Arena> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Arena {
            extents: empty(extents)?,
            fit,
            freed: 0,
            key: (NEXT.fetch_add(1, Ordering::Relaxed), 0),
        })
    }

    /// Hands out `size` bytes at a multiple of `alignment`: a power of two, or 0 for none.
    ///
    /// These are addresses, whether or not there is memory beneath them. Over an [`ElasticRange`](crate::ElasticRange)
    /// nothing is committed: use [`allocate_in`](Self::allocate_in), or commit what the piece lies in, in whole granules,
    /// before it is used.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::AlignmentNotPowerOfTwo`], [`Error::ArenaFull`]. Nothing is changed then.
    pub fn allocate(&mut self, size: usize, alignment: usize) -> Result<Piece> {
        let place = self.place(size, alignment)?;
        Ok(self.take(&place, size))
    }

    /// Counts a piece as freed.
    ///
    /// # Errors
    ///
    /// [`Error::NotOfThisArena`] where it is another arena's, or was handed out before the last
    /// [`reset`](Self::reset) or [`set_extents`](Self::set_extents).
    pub fn free(&mut self, piece: Piece) -> Result<()> {
        if piece.key != self.key {
            return Err(Error::NotOfThisArena {
                address: piece.address,
                size: piece.size,
            });
        }
        self.freed += piece.size;
        Ok(())
    }

    /// Begins anew: all cursors at the start, nothing freed. Pieces handed out before are forgotten.
    ///
    /// Memory stays as it is. What is handed out again holds what it held, also in an [`ElasticRange`] that promises
    /// zeroes: these are promised of what is newly committed. To give the memory back, or to have zeroes, decommit in
    /// between, as with [`resize(0)`](crate::ElasticRange::resize).
    ///
    /// [`ElasticRange`]: crate::ElasticRange
    pub fn reset(&mut self) {
        self.extents.iter_mut().for_each(|filled| filled.cursor = 0);
        self.begin_anew();
    }

    /// Points the arena to other extents and begins anew.
    ///
    /// # Errors
    ///
    /// As [`over`](Self::over). Nothing is changed then.
    pub fn set_extents(&mut self, extents: impl IntoIterator<Item = Extent>) -> Result<()> {
        self.extents = empty(extents)?;
        self.begin_anew();
        Ok(())
    }

    /// The extents, each with its cursor: how many of its bytes are handed out, or left out for alignment.
    pub fn extents(&self) -> impl Iterator<Item = (Extent, usize)> + '_ {
        let extents = self.extents.iter();
        extents.map(|filled| (filled.extent, filled.cursor))
    }

    /// Bytes below the cursors of all extents.
    pub fn used(&self) -> usize {
        self.extents.iter().map(|filled| filled.cursor).sum()
    }

    /// Bytes above the cursors of all extents.
    pub fn left(&self) -> usize {
        self.extents.iter().map(Filled::left).sum()
    }

    /// Bytes of pieces that were freed since the beginning.
    pub fn freed(&self) -> usize {
        self.freed
    }

    fn begin_anew(&mut self) {
        self.freed = 0;
        self.key.1 += 1;
    }

    fn place(&self, size: usize, alignment: usize) -> Result<Place> {
        if size == 0 {
            return Err(Error::ZeroSize { what: What::Size });
        }
        let alignment = alignment.max(1);
        if !alignment.is_power_of_two() {
            return Err(Error::AlignmentNotPowerOfTwo { alignment });
        }
        let mut best: Option<(usize, Place)> = None;
        let mut largest = 0;
        for (extent, filled) in self.extents.iter().enumerate() {
            let start = filled.aligned(alignment);
            let room = filled.extent.size.saturating_sub(start);
            largest = largest.max(room);
            if room < size {
                continue;
            }
            if best
                .as_ref()
                .is_none_or(|(least, _)| filled.left() < *least)
            {
                let place = Place {
                    extent,
                    cursor: start + size,
                    address: filled.extent.address + start as u64,
                };
                best = Some((filled.left(), place));
            }
            if self.fit == Fit::First {
                break;
            }
        }
        match best {
            Some((_, place)) => Ok(place),
            None => Err(Error::ArenaFull {
                size,
                alignment,
                largest,
            }),
        }
    }

    fn take(&mut self, place: &Place, size: usize) -> Piece {
        self.extents[place.extent].cursor = place.cursor;
        Piece {
            address: place.address,
            size,
            key: self.key,
        }
    }
}

impl Filled {
    fn left(&self) -> usize {
        self.extent.size - self.cursor
    }

    /// Where, in the extent, the first aligned address at or behind the cursor lies; far outside, if there is none.
    fn aligned(&self, alignment: usize) -> usize {
        let next = self.extent.address + self.cursor as u64;
        let past = (next & (alignment as u64 - 1)) as usize;
        match past {
            0 => self.cursor,
            _ => self.cursor.saturating_add(alignment - past),
        }
    }
}

/// The extents with nothing taken of them, if they are sound.
fn empty(extents: impl IntoIterator<Item = Extent>) -> Result<Vec<Filled>> {
    let mut filled = Vec::new();
    for extent in extents {
        if extent.size == 0 {
            return Err(Error::ZeroSize {
                what: What::ExtentSize,
            });
        }
        if extent.address.checked_add(extent.size as u64).is_none() {
            return Err(Error::Overflow {
                offset: extent.address as usize,
                size: extent.size,
            });
        }
        filled.push(Filled { extent, cursor: 0 });
    }
    let mut order: Vec<Range<u64>> = filled
        .iter()
        .map(|one: &Filled| one.extent.range())
        .collect();
    order.sort_unstable_by_key(|range| range.start);
    match order.windows(2).find(|pair| pair[1].start < pair[0].end) {
        Some(pair) => Err(Error::ExtentsOverlap {
            first: pair[0].clone(),
            second: pair[1].clone(),
        }),
        None => Ok(filled),
    }
}
