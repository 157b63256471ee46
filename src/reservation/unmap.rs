//! Unmapping: of one mapping, or of a range of whole ones; all or nothing.
//!
//! The handles are released first and the range is unmapped last, by one call. That order is what makes a range of many
//! mappings all or nothing: a release of mapped memory frees nothing and can be taken back (the driver gives the count
//! again for the mapped address), while the unmap, after which nothing can be taken back, is a single call that happens
//! or does not. The memory is never out of place in between, so that a failed unmap disturbs no work that uses it.

use std::ops::Range;

use super::Reservation;
use crate::error::{Error, Result};
use crate::mapping::{Mapping, MappingId};

impl Reservation {
    /// Unmaps a mapping and releases what backs it (`cuMemUnmap`, `cuMemRelease`).
    ///
    /// Does not wait for work that uses the memory: see [work in flight](Reservation#work-in-flight).
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`] where the mapping was unmapped by range before, or is another reservation's.
    /// [`Error::Disagreement`] where the driver knows of no such mapping, which is then in quarantine. Any driver
    /// failure leaves everything mapped; the id is used up, and [`id_at`](Reservation::id_at) gives it again:
    ///
    /// ```
    /// # use cuda_vmm::{sim::{Fault, Simulation}, sys::Call, AllocationProps, Driver, Reservation};
    /// # let sim = Simulation::new();
    /// # let driver = Driver::simulated(&sim)?;
    /// # let props = AllocationProps::on(&driver.device(0)?);
    /// # let mut kv = Reservation::builder(8 << 20).reserve(&driver)?;
    /// let block = kv.map(0, 2 << 20, &props)?;
    /// # sim.inject(Fault::on(Call::cuMemUnmap))?;
    /// if let Err(error) = kv.unmap(block) {
    ///     eprintln!("will try again: {error}");
    ///     let block = kv.id_at(0).expect("it is still mapped");
    ///     kv.unmap(block)?;
    /// }
    /// # kv.close()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "cuMemUnmap")]
    pub fn unmap(&mut self, id: MappingId) -> Result<()> {
        match self.mapping(&id).map(Mapping::range) {
            Some(range) => self.unmap_whole(range),
            None => Err(Error::NotMapped { offset: id.offset }),
        }
    }

    /// Unmaps every mapping in `[offset, offset + size)`, a range that consists of whole mappings.
    ///
    /// # Errors
    ///
    /// Before any driver call: [`Error::ZeroSize`], [`Error::Overflow`], [`Error::OutOfRange`], [`Error::Hole`],
    /// [`Error::PartialMapping`] (the driver itself would say SUCCESS to holes). A driver failure leaves everything
    /// mapped, with one exception: where several mappings in the range are all that is left of one allocation, its
    /// handle is released last, and [`Error::NotUndone`] then says that it was not: it is kept for `close`, and the
    /// range is unmapped.
    #[doc(alias = "cuMemUnmap")]
    pub fn unmap_range(&mut self, offset: usize, size: usize) -> Result<()> {
        let range = self.whole(offset, size)?.asked;
        self.unmap_whole(range)
    }

    fn unmap_whole(&mut self, range: Range<usize>) -> Result<()> {
        self.release_and_unmap(range.clone(), Mapping::release_handle)?;
        self.forget(range)
    }

    /// Releases what is to be released of the mappings in a range that cuts none, then unmaps them all by one call; all
    /// or nothing. The driver passes over holes. What the table says of the mappings is the caller's to change.
    pub(super) fn release_and_unmap(
        &mut self,
        range: Range<usize>,
        release: impl FnMut(&mut Mapping) -> Result<()>,
    ) -> Result<()> {
        if let Err((at, error)) = self.each(range.clone(), release) {
            self.doubt(at..at + 1, &error);
            return Err(error.with_undo(self.take_back(range.start..at)));
        }
        let unmapped = self
            .driver
            .calls()
            .mem_unmap(self.address(range.start), range.len());
        unmapped.map_err(|error| {
            self.doubt(range.clone(), &error);
            error.with_undo(self.take_back(range))
        })
    }

    /// Puts the mappings of a range into quarantine if the driver's answer contradicts what is known of them.
    fn doubt(&mut self, range: Range<usize>, error: &Error) {
        if error.is_disagreement() {
            let all = self.each(range, |mapping| {
                mapping.quarantine();
                Ok(())
            });
            debug_assert!(all.is_ok());
        }
    }

    /// Does something with each mapping of a range that cuts none, up to the first failure, whose offset is given.
    pub(super) fn each(
        &mut self,
        range: Range<usize>,
        mut action: impl FnMut(&mut Mapping) -> Result<()>,
    ) -> Result<(), (usize, Error)> {
        let mut rest = range;
        while let Some(span) = self.first_in(&rest).filter(|_| !rest.is_empty()) {
            let Range { start, end } = self.bytes(span);
            if let Some(mapping) = self.table.get_mut(span.start) {
                action(mapping).map_err(|error| (start, error))?;
            }
            rest.start = end.min(rest.end);
        }
        Ok(())
    }

    /// Takes released counts back after a failure, and gives what could not be.
    fn take_back(&mut self, range: Range<usize>) -> Vec<Error> {
        let mut failures = Vec::new();
        let all = self.each(range, |mapping| {
            failures.extend(mapping.retain_handle().err());
            Ok(())
        });
        debug_assert!(all.is_ok());
        failures
    }

    /// Removes the mappings of a range that the driver has unmapped.
    fn forget(&mut self, range: Range<usize>) -> Result<()> {
        let mut late = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some(mut mapping) = self.table.remove(at / self.unit) else {
                break;
            };
            at = mapping.end();
            mapping.set_unmapped();
            // Only a share is left here; it has become the last one if the caller's allocation went a moment ago.
            late.extend(
                mapping
                    .take_handle()
                    .and_then(|handle| self.release(handle).err()),
            );
        }
        Error::left_over(late)
    }
}
