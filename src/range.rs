//! The one range check: every call that takes an offset and a size goes through it.

use std::ops::Range;

use crate::error::{Error, Result, What};

/// `[offset, offset + size)` within `[0, len)`, or the error that says why not. All numbers are bytes.
pub(crate) fn within(offset: usize, size: usize, len: usize) -> Result<Range<usize>> {
    if size == 0 {
        return Err(Error::ZeroSize { what: What::Size });
    }
    let Some(end) = offset.checked_add(size) else {
        return Err(Error::Overflow { offset, size });
    };
    if end > len {
        return Err(Error::OutOfRange { offset, size, len });
    }
    Ok(offset..end)
}

/// The value is a multiple of the granularity, or the error that names the next multiples.
pub(crate) fn aligned(what: What, value: usize, granularity: usize) -> Result<()> {
    debug_assert!(granularity.is_power_of_two());
    if value & (granularity - 1) != 0 {
        return Err(Error::Misaligned {
            what,
            value,
            granularity,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_accepts_up_to_the_last_byte() {
        assert_eq!(within(0, 8, 8).unwrap(), 0..8);
        assert_eq!(within(7, 1, 8).unwrap(), 7..8);
    }

    #[test]
    fn within_names_what_is_wrong() {
        assert!(matches!(within(0, 0, 8), Err(Error::ZeroSize { .. })));
        assert!(matches!(
            within(8, 1, 8),
            Err(Error::OutOfRange {
                offset: 8,
                size: 1,
                len: 8
            })
        ));
        assert!(matches!(
            within(1, usize::MAX, 8),
            Err(Error::Overflow {
                offset: 1,
                size: usize::MAX
            })
        ));
        assert!(matches!(
            within(usize::MAX, 1, usize::MAX),
            Err(Error::Overflow { .. })
        ));
    }
}
