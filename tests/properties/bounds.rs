//! Which ranges an operation takes, said once more and without any cleverness.

use std::ops::Range;

use cuda_vmm::{Error, What};

use crate::model::Area;
use crate::operation::{Extent, Flaw, Length, Spot, Window};

type Checked<T = Range<usize>> = Result<T, Error>;

impl Area {
    /// The offset and the size that an extent means here.
    pub fn extent(&self, extent: Extent, unit: usize) -> (usize, usize) {
        let at = self.spot(extent.at, unit);
        flawed(
            at,
            self.length(at, extent.size, unit),
            extent.flaw,
            self.size,
        )
    }

    /// The offset and the size that a window means here.
    pub fn window(&self, window: Window, unit: usize) -> (usize, usize) {
        let at = self
            .spot(window.at, unit)
            .saturating_add_signed(window.shift);
        flawed(
            at,
            self.length(at, window.size, unit),
            window.flaw,
            self.size,
        )
    }

    fn spot(&self, spot: Spot, unit: usize) -> usize {
        let nth = |which: usize| self.mapped.iter().nth(which % self.mapped.len().max(1));
        match spot {
            Spot::Unit(number) => number * unit,
            Spot::Start(which) => nth(which).map_or(0, |(offset, _)| *offset),
            Spot::End(which) => nth(which).map_or(0, |(offset, mapped)| offset + mapped.size),
        }
    }

    fn length(&self, at: usize, length: Length, unit: usize) -> usize {
        match length {
            Length::Bytes(bytes) => bytes,
            Length::Units(units) => units * unit,
            Length::Mappings(more) => {
                let ends = self
                    .mapped
                    .iter()
                    .map(|(offset, mapped)| offset + mapped.size);
                let end = ends.filter(|end| *end > at).take(more + 1).last();
                end.map_or(unit, |end| end - at)
            }
        }
    }

    pub fn within(&self, offset: usize, size: usize) -> Checked {
        if size == 0 {
            return Err(Error::ZeroSize { what: What::Size });
        }
        match offset.checked_add(size) {
            None => Err(Error::Overflow { offset, size }),
            Some(end) if end <= self.size => Ok(offset..end),
            Some(_) => Err(Error::OutOfRange {
                offset,
                size,
                len: self.size,
            }),
        }
    }

    /// A range that is mapped throughout.
    pub fn mapped_throughout(&self, offset: usize, size: usize) -> Checked {
        let asked = self.within(offset, size)?;
        for hole in self.holes() {
            let hole = hole.start.max(asked.start)..hole.end.min(asked.end);
            if !hole.is_empty() {
                return Err(Error::Hole { asked, hole });
            }
        }
        Ok(asked)
    }

    /// A range that is made of whole mappings.
    pub fn whole(&self, offset: usize, size: usize) -> Checked {
        let asked = self.mapped_throughout(offset, size)?;
        for (offset, mapped) in self.in_range(&asked) {
            let mapping = offset..offset + mapped.size;
            if mapping.start < asked.start || mapping.end > asked.end {
                return Err(Error::PartialMapping {
                    mapping,
                    asked: asked.clone(),
                });
            }
        }
        Ok(asked)
    }

    /// A range in which nothing is mapped.
    pub fn vacant(&self, offset: usize, size: usize, granularity: usize) -> Checked {
        let asked = self.within(offset, size)?;
        multiple(What::Offset, offset, granularity)?;
        multiple(What::Size, size, granularity)?;
        multiple(What::Address, self.base as usize + offset, granularity)?;
        let first = self.in_range(&asked).next();
        match first.map(|(offset, mapped)| offset..offset + mapped.size) {
            None => Ok(asked),
            Some(existing) => Err(Error::Overlap { asked, existing }),
        }
    }
}

pub fn multiple(what: What, value: usize, granularity: usize) -> Checked<()> {
    match value % granularity {
        0 => Ok(()),
        _ => Err(Error::Misaligned {
            what,
            value,
            granularity,
        }),
    }
}

/// The range with a flaw in it; `len` is what there is.
pub fn flawed(offset: usize, size: usize, flaw: Flaw, len: usize) -> (usize, usize) {
    match flaw {
        Flaw::None => (offset, size),
        Flaw::NoSize => (offset, 0),
        Flaw::OddOffset => (offset + 1, size),
        Flaw::OddSize => (offset, size + 1),
        Flaw::TooLong => (offset, size + len),
        Flaw::Overflow => (offset + 1, usize::MAX),
        Flaw::LastOffset => (usize::MAX, size),
    }
}
