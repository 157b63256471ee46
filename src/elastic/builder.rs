//! How an elastic range is asked for.

use std::ops::RangeInclusive;

use super::blocks::Bounds;
use super::cache::Cache;
use super::granules::Granules;
use super::{Contents, ElasticRange};
use crate::access::Access;
use crate::error::{Error, Result, What};
use crate::location::Location;
use crate::props::AllocationProps;
use crate::range::aligned;
use crate::reservation::{Reservation, ReservationBuilder};

/// Greater handles are not cheaper to make and to give back, byte for byte, on the machine that was measured.
const GREATEST: usize = 1 << 30;

/// What to reserve. Made by [`ElasticRange::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder reserves nothing before `reserve`"]
pub struct ElasticRangeBuilder {
    size: usize,
    props: AllocationProps,
    reservation: ReservationBuilder,
    alignment: usize,
    placed: bool,
    blocks: Option<(usize, usize)>,
    cache: usize,
    contents: Contents,
}

impl ElasticRangeBuilder {
    pub(super) fn new(size: usize, props: &AllocationProps) -> Self {
        ElasticRangeBuilder {
            size,
            props: props.clone(),
            reservation: Reservation::builder(size),
            alignment: 0,
            placed: false,
            blocks: None,
            cache: 0,
            contents: Contents::Unspecified,
        }
    }

    /// Who may do what with everything that is committed: granted with every block that is made, now or later. As
    /// [`ReservationBuilder::access`]. Nobody may do anything, if this is not called.
    pub fn access(mut self, location: impl Into<Location>, access: Access) -> Self {
        self.reservation = self.reservation.access(location, access);
        self
    }

    /// The least and the greatest size of a block, in bytes: powers of two, no less than the granularity. Without any
    /// call of this they are the granularity and 1 GiB.
    ///
    /// The least size is how much is made at a time where less is asked for: with 32 MiB, growing in steps of 2 MiB
    /// makes one block in sixteen steps, and copies run at the speed of large blocks; in exchange up to 30 MiB are held
    /// ahead of need, and given back only with the last byte of their block.
    pub fn blocks(mut self, sizes: RangeInclusive<usize>) -> Self {
        self.blocks = Some((*sizes.start(), *sizes.end()));
        self
    }

    /// How many bytes of blocks that are no longer needed are kept for the next commit instead of being released. None,
    /// if this is not called. Kept blocks are still the device's memory: see [`trim`](ElasticRange::trim).
    ///
    /// A block that was exported [by the range's reservation](ElasticRange::reservation) is never kept, nor one that
    /// somebody in this process holds. One that was exported by its address, by
    /// [`Allocation::retain`](crate::Allocation::retain) or [`SpanSource`](crate::share::SpanSource), is not told from
    /// others once these are gone, while descriptors of it may be open: with such exports, do without a cache.
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }

    /// What bytes hold when they are committed: [`Contents::Unspecified`], if this is not called.
    pub fn contents(mut self, contents: Contents) -> Self {
        self.contents = contents;
        self
    }

    /// The base is to be a multiple of this, and in any case of the greatest block that fits. As
    /// [`ReservationBuilder::alignment`].
    pub fn alignment(mut self, alignment: usize) -> Self {
        self.alignment = alignment;
        self
    }

    /// An address to try first. As [`ReservationBuilder::hint`]; the base is then aligned as the hint is.
    pub fn hint(mut self, address: u64) -> Self {
        self.reservation = self.reservation.hint(address);
        self.placed = true;
        self
    }

    /// The address it has to be. As [`ReservationBuilder::exact_address`].
    pub fn exact_address(mut self, address: u64) -> Self {
        self.reservation = self.reservation.exact_address(address);
        self.placed = true;
        self
    }

    /// Reserves the addresses, with the driver of the properties. No memory is taken.
    ///
    /// # Errors
    ///
    /// Before any driver call but the questions for granularities and for the device's total memory:
    /// [`Error::ZeroSize`], [`Error::BlockNotPowerOfTwo`], [`Error::BlockBelowGranularity`],
    /// [`Error::BlocksOutOfOrder`], [`Error::Misaligned`] (the size must be a multiple of the least block),
    /// [`Error::CacheBeyondMemory`], [`Error::BadAlignment`]. Else as [`ReservationBuilder::reserve`].
    #[doc(alias = "cuMemAddressReserve")]
    pub fn reserve(self) -> Result<ElasticRange> {
        let granularity = self.props.granularity()?.minimum();
        let bounds = self.bounds(granularity)?;
        self.check_cache()?;
        let alignment = if self.placed {
            self.alignment
        } else {
            self.alignment.max(self.base_alignment(bounds))
        };
        let reserved = self.reservation.alignment(alignment);
        let reservation = reserved.reserve(self.props.driver())?;
        // Ranges of thousands of millions of granules are committed in coarser steps.
        let granule = granularity.max(reservation.granularity());
        let bounds = Bounds {
            least: bounds.least.max(granule),
            greatest: bounds.greatest.max(granule),
        };
        Ok(ElasticRange {
            granules: Granules::new(self.size / granule),
            cache: Cache::new(self.cache, bounds.least, bounds.greatest),
            retained: 0,
            made: Vec::new(),
            reservation,
            props: self.props,
            bounds,
            granule,
            contents: self.contents,
        })
    }

    fn bounds(&self, granularity: usize) -> Result<Bounds> {
        if self.size == 0 {
            return Err(Error::ZeroSize {
                what: What::ReservationSize,
            });
        }
        // Behind the alignment that the blocks need it would not be seen.
        let alignment = self.alignment;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Error::BadAlignment { alignment });
        }
        let (least, greatest) = self
            .blocks
            .unwrap_or((granularity, granularity.max(GREATEST)));
        for size in [least, greatest] {
            if size == 0 {
                return Err(Error::ZeroSize {
                    what: What::BlockSize,
                });
            }
            if !size.is_power_of_two() {
                return Err(Error::BlockNotPowerOfTwo { size });
            }
            if size < granularity {
                return Err(Error::BlockBelowGranularity { size, granularity });
            }
        }
        if least > greatest {
            return Err(Error::BlocksOutOfOrder { least, greatest });
        }
        aligned(What::ReservationSize, self.size, least)?;
        Ok(Bounds { least, greatest })
    }

    /// Blocks are aligned to their size by offset; with this they are by address, too.
    fn base_alignment(&self, bounds: Bounds) -> usize {
        bounds.greatest.min(1 << self.size.ilog2())
    }

    fn check_cache(&self) -> Result<()> {
        let location = self.props.location();
        let Some(ordinal) = location.device().filter(|_| self.cache > 0) else {
            return Ok(());
        };
        let total = self.props.driver().device(ordinal)?.total_memory()?;
        if self.cache > total {
            return Err(Error::CacheBeyondMemory {
                cache: self.cache,
                total,
                location,
            });
        }
        Ok(())
    }
}
