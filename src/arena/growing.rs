//! An arena over an elastic range: what it hands out is committed first.

use super::{Arena, Extent, Piece};
use crate::elastic::ElasticRange;
use crate::error::{Error, Result};

/// All addresses of the range, committed or not.
impl From<&ElasticRange> for Extent {
    fn from(range: &ElasticRange) -> Extent {
        Extent::new(range.base(), range.size())
    }
}

impl Arena {
    /// [`allocate`](Self::allocate), and commits in the range what of the piece is not committed yet.
    ///
    /// Give the range back its memory with [`ElasticRange::decommit`] or [`ElasticRange::resize`] when the arena was
    /// [reset](Self::reset). The piece has an address; the range counts from its base. The pieces of a range that a
    /// [group](crate::suspend) puts to sleep are where they were when it is awake again.
    ///
    /// ```
    /// # use cuda_vmm::{sim::Simulation, Driver};
    /// use cuda_vmm::arena::{Arena, Extent, Fit};
    /// use cuda_vmm::{Access, AllocationProps, ElasticRange};
    ///
    /// # let driver = Driver::simulated(&Simulation::new())?;
    /// # let device = driver.device(0)?;
    /// let mut range = ElasticRange::builder(1 << 30, &AllocationProps::on(&device))
    ///     .access(&device, Access::ReadWrite)
    ///     .reserve()?;
    /// let mut arena = Arena::over([Extent::from(&range)], Fit::First)?;
    /// let piece = arena.allocate_in(&mut range, 3 << 20, 256)?;
    /// assert_eq!(piece.address(), range.base());
    /// assert_eq!(range.committed_bytes(), 4 << 20);
    /// range.write((piece.address() - range.base()) as usize, b"tokens")?;
    /// # range.close()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate) and [`ElasticRange::commit`], and [`Error::ExtentElsewhere`] where the piece
    /// would not lie in the range. Nothing is changed then.
    pub fn allocate_in(
        &mut self,
        range: &mut ElasticRange,
        size: usize,
        alignment: usize,
    ) -> Result<Piece> {
        let place = self.place(size, alignment)?;
        let piece = place.address..place.address + size as u64;
        let all = Extent::from(&*range).range();
        if piece.start < all.start || piece.end > all.end {
            return Err(Error::ExtentElsewhere {
                extent: self.extents[place.extent].extent.range(),
                range: all,
            });
        }
        // Both lie in the range, whose size is a multiple of the granularity.
        let mask = range.granularity() - 1;
        let start = (piece.start - all.start) as usize & !mask;
        let end = ((piece.end - all.start) as usize + mask) & !mask;
        range.commit(start, end - start)?;
        Ok(self.take(&place, size))
    }
}
