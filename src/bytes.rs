//! Numbers of bytes: rounded up, and shown to people.

use std::fmt;
use std::ops::Range;

/// The next multiple of a power of two, if there is one.
pub(crate) fn round_up(value: usize, granularity: usize) -> Option<usize> {
    debug_assert!(granularity.is_power_of_two());
    Some(value.checked_add(granularity - 1)? & !(granularity - 1))
}

/// A number of bytes, shown with a binary unit where that is exact: `2097152 bytes (2 MiB)`, `6912 bytes`.
pub(crate) struct Bytes(pub usize);

impl Bytes {
    /// `2 MiB` where exact, else `6912 B`.
    pub(crate) fn short(self) -> String {
        match self.unit() {
            Some((count, unit)) => format!("{count} {unit}"),
            None => format!("{} B", self.0),
        }
    }

    fn unit(&self) -> Option<(usize, &'static str)> {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        UNITS
            .iter()
            .find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift)
            .map(|(shift, unit)| (self.0 >> shift, *unit))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit() {
            Some((count, unit)) => write!(f, "{} bytes ({count} {unit})", self.0),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// A range of offsets or addresses, in the form in which a reservation is drawn: `[0x400000, 0x800000) (4 MiB)`.
pub(crate) struct Bounds(Range<usize>);

impl From<&Range<usize>> for Bounds {
    fn from(range: &Range<usize>) -> Bounds {
        Bounds(range.clone())
    }
}

impl From<&Range<u64>> for Bounds {
    fn from(range: &Range<u64>) -> Bounds {
        Bounds(range.start as usize..range.end as usize)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.0;
        let size = Bytes(self.0.len()).short();
        write!(f, "[{start:#x}, {end:#x}) ({size})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_up_ends_before_it_wraps() {
        assert_eq!(round_up(0, 4096), Some(0));
        assert_eq!(round_up(1, 4096), Some(4096));
        assert_eq!(round_up(usize::MAX, 4096), None);
    }

    #[test]
    fn bytes_use_the_largest_exact_unit() {
        assert_eq!(Bytes(2 << 20).to_string(), "2097152 bytes (2 MiB)");
        assert_eq!(Bytes(3 << 30).short(), "3 GiB");
        assert_eq!(Bytes(6912).to_string(), "6912 bytes");
        assert_eq!(Bytes(0).to_string(), "0 bytes");
    }

    #[test]
    fn bounds_are_hexadecimal_and_their_size_is_not() {
        let offsets = Bounds::from(&(0usize..3 << 20));
        assert_eq!(offsets.to_string(), "[0x0, 0x300000) (3 MiB)");
        let addresses = Bounds::from(&(0x1000u64..0x1000 + 6912));
        assert_eq!(addresses.to_string(), "[0x1000, 0x2b00) (6912 B)");
    }
}
