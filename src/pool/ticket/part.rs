//! One tensor in a slice.

use std::ops::Range;

use crate::pool::layout::{Layout, LayoutError};

/// One tensor in a slice: what it is, and where it starts.
///
/// A part is aligned to its elements, counted from the start of the slice, and its end does not overflow. Whether it
/// lies in a slice depends on the slice: every part that comes out of a ticket does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    offset: usize,
    layout: Layout,
}

impl Part {
    /// A tensor at this offset from the start of a slice, in bytes.
    ///
    /// # Errors
    ///
    /// | [`LayoutError`] | when |
    /// |---|---|
    /// | `Misaligned` | the offset is not a multiple of the element's size |
    /// | `Outside` | the end overflows `usize`: it would lie outside every slice |
    pub fn new(offset: usize, layout: Layout) -> Result<Part, LayoutError> {
        let element = layout.element();
        if offset % element.bytes() != 0 {
            return Err(LayoutError::Misaligned { offset, element });
        }
        let part = Part { offset, layout };
        match offset.checked_add(layout.size()) {
            Some(_) => Ok(part),
            None => Err(part.outside(usize::MAX)),
        }
    }

    /// Where it starts, in bytes from the start of the slice.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Element type and shape.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Its bytes, from the start of the slice.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.size()
    }

    /// Checks that it lies in a slice of this length.
    pub(in crate::pool) fn check_within(&self, length: usize) -> Result<(), LayoutError> {
        match self.range().end <= length {
            true => Ok(()),
            false => Err(self.outside(length)),
        }
    }

    /// Whether it is all bytes of a slice of this length, without a further type.
    pub(super) fn is_whole(&self, length: usize) -> bool {
        self.offset == 0 && Layout::bytes(length).is_ok_and(|whole| whole == self.layout)
    }

    fn outside(&self, length: usize) -> LayoutError {
        LayoutError::Outside {
            offset: self.offset,
            size: self.size(),
            length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::element::ElementType;

    #[test]
    fn a_part_is_aligned_to_its_elements() {
        for (element, bytes) in [(ElementType::F32, 4), (ElementType::C128, 16)] {
            let layout = Layout::new(element, &[3]).unwrap();
            for offset in 0..64 {
                let made = Part::new(offset, layout);
                match offset % bytes {
                    0 => assert_eq!(made.unwrap().range(), offset..offset + 3 * bytes),
                    _ => assert_eq!(made, Err(LayoutError::Misaligned { offset, element })),
                }
            }
        }
    }

    #[test]
    fn a_part_lies_within_or_not() {
        let part = Part::new(8, Layout::new(ElementType::F32, &[2]).unwrap()).unwrap();
        assert_eq!((part.offset(), part.size()), (8, 8));
        assert_eq!(part.layout().to_string(), "f32[2]");
        assert_eq!(part.check_within(16), Ok(()));
        assert_eq!(
            part.check_within(15),
            Err(LayoutError::Outside {
                offset: 8,
                size: 8,
                length: 15
            })
        );
    }

    #[test]
    fn an_end_that_overflows_is_refused() {
        let layout = Layout::bytes(2).unwrap();
        assert_eq!(
            Part::new(usize::MAX - 2, layout).unwrap().range().end,
            usize::MAX
        );
        assert_eq!(
            Part::new(usize::MAX - 1, layout),
            Err(LayoutError::Outside {
                offset: usize::MAX - 1,
                size: 2,
                length: usize::MAX
            })
        );
    }
}
