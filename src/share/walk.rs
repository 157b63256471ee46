//! The allocations beneath a span of addresses, whoever mapped them: memory made by other code can be shared by its
//! address.

use std::ops::Range;

use super::source::SpanSource;
use crate::allocation::Allocation;
use crate::code::Code;
use crate::driver::Driver;
use crate::error::{Error, Result, What};

/// What is to become of addresses at which nothing is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gaps {
    Refused,
    Left,
}

impl SpanSource {
    /// The allocations beneath `[address, address + size)`, a range that virtual memory management mapped throughout,
    /// with whatever code.
    ///
    /// Allocations are whole: the span begins where the first does, at or before the address ([`lead`](Self::lead) says
    /// how far), and ends where the last does. So memory of a library that keeps its handles to itself, such as PyTorch
    /// with expandable segments, can be exported, if it was created for that.
    ///
    /// The range must stay mapped while it is walked.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::Overflow`], [`Error::Gap`] with the first addresses that are not mapped (or are
    /// ordinary memory), or a driver failure.
    #[doc(alias = "cuMemRetainAllocationHandle")]
    #[doc(alias = "cuMemGetAddressRange")]
    pub fn of_addresses(driver: &Driver, address: u64, size: usize) -> Result<SpanSource> {
        walk(driver, address, size, Gaps::Refused)
    }

    /// [`of_addresses`](Self::of_addresses), where gaps stay holes of the span. Nothing mapped at all is an
    /// [`Error::Gap`] still.
    ///
    /// The driver does not say where the next mapping begins: each granule of a gap is asked about.
    ///
    /// # Errors
    ///
    /// As [`of_addresses`](Self::of_addresses).
    #[doc(alias = "cuMemRetainAllocationHandle")]
    pub fn of_sparse_addresses(driver: &Driver, address: u64, size: usize) -> Result<SpanSource> {
        walk(driver, address, size, Gaps::Left)
    }
}

fn walk(driver: &Driver, address: u64, size: usize, gaps: Gaps) -> Result<SpanSource> {
    if size == 0 {
        return Err(Error::ZeroSize { what: What::Size });
    }
    let Some(end) = address.checked_add(size as u64) else {
        return Err(Error::Overflow {
            offset: address as usize,
            size,
        });
    };
    let mut found = Vec::new();
    match find(driver, address..end, gaps, &mut found) {
        Ok(granule) => Ok(span(driver, address, granule, found)),
        Err(error) => {
            let held = found.into_iter().map(|one| one.allocation);
            Allocation::settle_all(held, Err(error))
        }
    }
}

/// An allocation, and the address at which it is mapped.
struct Found {
    base: u64,
    allocation: Allocation,
}

impl Found {
    fn end(&self) -> u64 {
        self.base + self.allocation.size() as u64
    }
}

/// Adds what is mapped in the range, and gives the granularity in which it was asked about.
fn find(driver: &Driver, asked: Range<u64>, gaps: Gaps, found: &mut Vec<Found>) -> Result<u64> {
    let granule = driver.units()?.least as u64;
    let mut at = asked.start;
    let mut gap = None;
    while at < asked.end {
        match Allocation::retain_with_base(driver, at) {
            Ok((allocation, base)) => {
                let one = Found { base, allocation };
                at = one.end();
                found.push(one);
            }
            Err(error) if is_nothing(&error) => {
                let start = at;
                at = (at | (granule - 1)).saturating_add(1);
                gap.get_or_insert(start..at.min(asked.end));
            }
            Err(error) => return Err(error),
        }
        if let (Some(gap), Gaps::Refused) = (&gap, gaps) {
            return Err(Error::Gap {
                asked,
                gap: gap.clone(),
            });
        }
    }
    match found.is_empty() {
        true => Err(Error::Gap {
            gap: asked.clone(),
            asked,
        }),
        false => Ok(granule),
    }
}

/// Whether the driver said that nothing is mapped there. Nothing was retained then.
fn is_nothing(error: &Error) -> bool {
    match error {
        Error::Driver(failure) => {
            failure.call == crate::sys::Call::cuMemRetainAllocationHandle
                && failure.code == Code::ERROR_INVALID_VALUE
        }
        _ => false,
    }
}

fn span(driver: &Driver, address: u64, granule: u64, found: Vec<Found>) -> SpanSource {
    // A gap may come first: the span then begins with the granule that was asked for.
    let first = address & !(granule - 1);
    let start = found.first().map_or(first, |one| one.base.min(first));
    let end = found.last().map_or(address, Found::end);
    let held = found
        .into_iter()
        .map(|one| ((one.base - start) as usize, one.allocation))
        .collect();
    let mut source = SpanSource::of(driver, (end - start) as usize, held);
    source.lead = (address - start) as usize;
    source
}
