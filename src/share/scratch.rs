//! Finding out an import's true size: the driver maps a handle whole or not at all, and will not say how large it is.

use crate::allocation::{is_partial_map, Allocation};
use crate::driver::{Driver, Piece};
use crate::error::{Error, Result};

/// Maps the allocation at addresses of its own, and takes it away again.
///
/// # Errors
///
/// [`Error::WrongSize`], or a driver failure. What cannot be undone is left with the driver.
pub(super) fn check_size(driver: &Driver, allocation: &Allocation) -> Result<()> {
    let size = allocation.size();
    let alignment = allocation.share().memory().granularity;
    let base = driver.reserve(size, alignment, 0)?;
    driver.disown(base);
    match driver.calls().mem_map(base, size, allocation.raw()) {
        Ok(()) => {
            let mapped = vec![(base, size)];
            driver.settle(Piece::Mapped { base, size, mapped }, Ok(()))
        }
        Err(error) => {
            let error = match is_partial_map(&error) {
                true => Error::WrongSize { claimed: size },
                false => error,
            };
            driver.settle(Piece::Addresses { base, size }, Err(error))
        }
    }
}
