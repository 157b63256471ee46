//! Elastic ranges: addresses that stay, memory that comes and goes beneath them.

mod blocks;
mod builder;
mod cache;
mod close;
mod commit;
mod decommit;
mod draw;
mod granules;
mod report;
mod resize;
mod split;
mod through;

use std::fmt;
use std::ops::Range;

pub use builder::ElasticRangeBuilder;
pub use report::{Committed, Decommitted, Resized};

use crate::error::{Error, Result, What};
use crate::props::AllocationProps;
use crate::range::{aligned, within};
use crate::reservation::Reservation;
use blocks::Bounds;
use cache::Cache;
use granules::Granules;

/// A range of addresses of which any part can be committed and decommitted, at the granularity. It never moves.
///
/// ```
/// # use cuda_vmm::sim::Simulation;
/// use cuda_vmm::{Access, AllocationProps, Contents, Driver, ElasticRange};
///
/// # let driver = Driver::simulated(&Simulation::new())?;
/// let device = driver.device(0)?;
/// let mut kv = ElasticRange::builder(64 << 30, &AllocationProps::on(&device))
///     .access(&device, Access::ReadWrite)
///     .blocks(32 << 20..=1 << 30) // made 32 MiB at a time, or more where more is committed at once
///     .cache(1 << 30) // up to 1 GiB stays at hand
///     .contents(Contents::Zeroed)
///     .reserve()?;
///
/// kv.commit(8 << 30, 64 << 20)?; // any part of it
/// kv.write(8 << 30, b"tokens")?;
///
/// let gone = kv.decommit(8 << 30, 64 << 20)?;
/// assert_eq!((gone.bytes, gone.cached), (64 << 20, 64 << 20));
/// kv.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A range that only grows and shrinks at its end, from its start on, is told its length with
/// [`resize`](Self::resize), which decommits everything at or above it.
///
/// # What is committed, retained, cached
///
/// *Committed* are the granules that the caller asked for and did not decommit. What lies beneath them are *blocks*:
/// physical handles, each a power of two in size and aligned to that, between a least and a greatest size. A block is
/// *retained*, and mapped, as long as any of its granules is committed. Blocks that are no longer needed are released,
/// or *cached* up to a bound, for the next commit of that size. Copies and views are for committed bytes only.
///
/// # What it costs
///
/// The driver charges by the handle, not by the byte, and copies run faster over large handles. So a commit makes the
/// largest blocks that fit: 4 GiB at once are four handles of 1 GiB, and not 2,048 of 2 MiB, which would take eighty
/// times as long. Who grows in small steps sets the [least block](ElasticRangeBuilder::blocks) larger than the step, or
/// uses the [cache](ElasticRangeBuilder::cache), which spares creating and releasing, but not mapping and granting. The
/// crate's own part is the same among a thousand committed granules as among a million.
///
/// Giving memory back costs twice: 0.3 to 0.6 ms a GiB when it is released, and another 0.2 to 0.4 ms a GiB in whatever
/// create comes next after the driver has cleared it, however small that one is (driver 580.159 on an H200). A first
/// growth of 4 GiB in a process takes 0.65 ms, a later one that follows such a release twice to three times as long.
///
/// # Failures
///
/// An operation that fails has changed nothing of what is committed, of its contents and of its rights, over however
/// many blocks; only the cache may hold less than before. Where undoing failed too the error is [`Error::NotUndone`],
/// and the block that is left is in [quarantine](Reservation::quarantined): decommitting what it lies under tries
/// again.
///
/// # Work in flight
///
/// As a reservation's: [`decommit`](Self::decommit) and [`resize`](Self::resize) wait for nothing, and
/// [`decommit_after`](Self::decommit_after) and [`resize_after`](Self::resize_after) take a [`Fence`](crate::Fence).
pub struct ElasticRange {
    // Dropped in this order: mappings before what is cached.
    reservation: Reservation,
    cache: Cache,
    granules: Granules,
    props: AllocationProps,
    bounds: Bounds,
    /// Bytes of a granule: what offsets and sizes are multiples of.
    granule: usize,
    /// Bytes of blocks.
    retained: usize,
    contents: Contents,
    /// The blocks that a commit makes. Empty between commits; kept for its memory.
    made: Vec<Made>,
}

/// What bytes hold when they are committed, until they are written. Committing what is committed changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Contents {
    /// The default: anything that the driver gives, or that these or other bytes of this same range held before. Never
    /// bytes of another range.
    #[default]
    Unspecified,
    /// Zeroes, written by a device that may. Costs a fill of what is newly committed, at the speed of the memory.
    Zeroed,
    /// Zeroes, for which the driver is trusted where a block is new: new memory was measured to read as zero without
    /// exception, but NVIDIA documents no such promise. Only what is reused is filled.
    ZeroedUnlessFresh,
}

/// A block made by a commit in progress.
struct Made {
    block: Range<usize>,
    cached: bool,
}

impl ElasticRange {
    /// Starts describing a range of this many bytes, for memory with these properties.
    pub fn builder(size: usize, props: &AllocationProps) -> ElasticRangeBuilder {
        ElasticRangeBuilder::new(size, props)
    }

    /// First address.
    pub fn base(&self) -> u64 {
        self.reservation.base()
    }

    /// Bytes reserved.
    pub fn size(&self) -> usize {
        self.reservation.size()
    }

    /// What offsets and sizes are multiples of, in bytes.
    pub fn granularity(&self) -> usize {
        self.granule
    }

    /// The least and the greatest size of a block.
    pub fn blocks(&self) -> (usize, usize) {
        (self.bounds.least, self.bounds.greatest)
    }

    /// Bytes that are committed.
    pub fn committed_bytes(&self) -> usize {
        self.granules.count() * self.granule
    }

    /// Bytes of blocks that are mapped: committed, or in one block with what is.
    pub fn retained_bytes(&self) -> usize {
        self.retained
    }

    /// Bytes of blocks that are kept for the next commit.
    pub fn cached_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Where the last committed byte ends; 0 where there is none. What [`resize`](Self::resize) changes.
    pub fn len(&self) -> usize {
        self.granules
            .last_set()
            .map_or(0, |last| (last + 1) * self.granule)
    }

    /// Whether nothing is committed.
    pub fn is_empty(&self) -> bool {
        self.granules.count() == 0
    }

    /// The committed runs, by offset.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let granule = self.granule;
        let runs = self.granules.runs(0..self.size() / granule);
        runs.map(move |run| run.start * granule..run.end * granule)
    }

    /// Whether all of `[offset, offset + size)` is committed.
    pub fn is_committed(&self, offset: usize, size: usize) -> bool {
        self.committed(offset, size).is_ok()
    }

    /// The properties of its memory.
    pub fn props(&self) -> &AllocationProps {
        &self.props
    }

    /// What bytes hold when they are committed.
    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// The reservation, whose mappings are the blocks: for exporting, and for copies to other reservations.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// For the layers above, which put back whatever they take out.
    pub(crate) fn reservation_mut(&mut self) -> &mut Reservation {
        &mut self.reservation
    }

    /// Releases cached blocks, those first that have been there longest, until no more than so many bytes are left.
    /// Gives the number of bytes released.
    ///
    /// # Errors
    ///
    /// A driver failure; what was released before it is gone from the cache, the rest is still there.
    #[doc(alias = "cuMemRelease")]
    pub fn trim(&mut self, to_bytes: usize) -> Result<usize> {
        let before = self.cache.bytes();
        self.cache.shrink(to_bytes)?;
        Ok(before - self.cache.bytes())
    }

    /// The range, checked, as offsets of whole granules.
    fn whole(&self, offset: usize, size: usize) -> Result<Range<usize>> {
        let asked = within(offset, size, self.size())?;
        aligned(What::Offset, offset, self.granule)?;
        aligned(What::Size, size, self.granule)?;
        Ok(asked)
    }

    /// Refuses a range that has bytes which are not committed.
    fn committed(&self, offset: usize, size: usize) -> Result<()> {
        let asked = within(offset, size, self.size())?;
        let granules = asked.start / self.granule..(asked.end - 1) / self.granule + 1;
        match self.granules.gaps(granules).next() {
            None => Ok(()),
            Some(gap) => Err(Error::NotCommitted {
                gap: asked.start.max(gap.start * self.granule)
                    ..asked.end.min(gap.end * self.granule),
                asked,
            }),
        }
    }

    /// Offsets of whole granules, counted in granules.
    fn in_granules(&self, range: &Range<usize>) -> Range<usize> {
        range.start / self.granule..range.end / self.granule
    }
}

impl fmt::Debug for ElasticRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElasticRange")
            .field("base", &format_args!("{:#x}", self.base()))
            .field("size", &self.size())
            .field("committed", &self.committed_bytes())
            .field("retained", &self.retained)
            .field("cached", &self.cache.bytes())
            .finish_non_exhaustive()
    }
}
