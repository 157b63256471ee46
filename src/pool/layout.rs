//! Type and shape of a tensor.

use std::fmt;

use super::element::ElementType;
use crate::bytes::Bytes;

/// The most dimensions that a shape has.
pub(super) const MAX_DIMENSIONS: usize = 8;

/// Element type and shape of a dense tensor in row-major order: the last dimension is contiguous, and nothing lies
/// between the rows.
///
/// Every layout has at least one element, and its size in bytes fits into a `usize`.
///
/// ```
/// use cuda_vmm::pool::{ElementType, Layout};
///
/// let layout = Layout::new(ElementType::F16, &[2, 3])?;
/// assert_eq!((layout.count(), layout.size()), (6, 12));
/// assert_eq!(layout.to_string(), "f16[2, 3]");
/// # Ok::<(), cuda_vmm::pool::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    element: ElementType,
    dimensions: u8,
    /// The dimensions, then zeroes. In place, so that a layout costs no allocation.
    shape: [usize; MAX_DIMENSIONS],
}

impl Layout {
    /// A tensor of this shape. The empty shape is one element.
    ///
    /// # Errors
    ///
    /// | [`LayoutError`] | when |
    /// |---|---|
    /// | `TooManyDimensions` | more than 8 dimensions |
    /// | `ZeroDimension` | a dimension is 0: the tensor has no elements |
    /// | `TooLarge` | the size in bytes overflows `usize` |
    pub fn new(element: ElementType, shape: &[usize]) -> Result<Layout, LayoutError> {
        let mut kept = [0; MAX_DIMENSIONS];
        let Some(place) = kept.get_mut(..shape.len()) else {
            return Err(LayoutError::TooManyDimensions {
                found: shape.len(),
                most: MAX_DIMENSIONS,
            });
        };
        place.copy_from_slice(shape);
        if let Some(index) = shape.iter().position(|&extent| extent == 0) {
            return Err(LayoutError::ZeroDimension { index });
        }
        let mut size = element.bytes();
        for (index, &extent) in shape.iter().enumerate() {
            size = size.checked_mul(extent).ok_or(LayoutError::TooLarge {
                element,
                index,
                extent,
            })?;
        }
        Ok(Layout {
            element,
            dimensions: shape.len() as u8,
            shape: kept,
        })
    }

    /// Bytes without a further type: `u8` of the shape `[length]`.
    ///
    /// # Errors
    ///
    /// [`LayoutError::ZeroDimension`] for no bytes.
    pub fn bytes(length: usize) -> Result<Layout, LayoutError> {
        Layout::new(ElementType::U8, &[length])
    }

    /// The type of the elements.
    #[doc(alias = "dtype")]
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The dimensions, outermost first. Empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape[..usize::from(self.dimensions)]
    }

    /// The number of elements, at least 1.
    #[doc(alias = "numel")]
    pub fn count(&self) -> usize {
        self.shape().iter().product()
    }

    /// The size in bytes, at least 1.
    #[doc(alias = "nbytes")]
    pub fn size(&self) -> usize {
        self.count() * self.element.bytes()
    }

    /// Checks that data of this many bytes has exactly the size of the layout.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Length`], with the layout and the length.
    pub fn check_length(&self, length: usize) -> Result<(), LayoutError> {
        match self.size() == length {
            true => Ok(()),
            false => Err(LayoutError::Length {
                layout: *self,
                length,
            }),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.element, self.shape())
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layout({self})")
    }
}

/// A layout that cannot be, or that does not fit where it is placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The shape has more dimensions than a layout can have.
    #[error("the shape has {found} dimensions, and at most {most} are supported: merge adjacent dimensions")]
    TooManyDimensions {
        /// Dimensions of the shape.
        found: usize,
        /// Dimensions that are supported.
        most: usize,
    },
    /// A tensor without elements.
    #[error("dimension {index} of the shape is 0, so that there is nothing to publish: leave empty tensors out")]
    ZeroDimension {
        /// Which dimension, counted from 0.
        index: usize,
    },
    /// The size overflows.
    #[error(
        "the size of the {element} shape overflows at dimension {index}, which is {extent}: check the shape, \
         its dimensions are counts of elements"
    )]
    TooLarge {
        /// The type of the elements.
        element: ElementType,
        /// The dimension at which the size no longer fits into a `usize`, counted from 0.
        index: usize,
        /// That dimension.
        extent: usize,
    },
    /// The data is shorter or longer than the layout says.
    #[error("{layout} has {}, and the data has {}: pass the shape and element type of this data", Bytes(layout.size()), Bytes(*length))]
    Length {
        /// The layout. [`Layout::size`] is the length that it requires.
        layout: Layout,
        /// The length of the data in bytes.
        length: usize,
    },
    /// The offset is not aligned for the elements.
    #[error("offset {offset:#x} is not a multiple of {}, the size of {element}: align the offset of every part to its elements", Bytes(element.bytes()))]
    Misaligned {
        /// From the start of the slice, in bytes.
        offset: usize,
        /// The type of the elements.
        element: ElementType,
    },
    /// The part ends behind the slice.
    #[error("a part of {} at offset {offset:#x} does not fit into a slice of {}: make the slice longer, or the part smaller", Bytes(*size), Bytes(*length))]
    Outside {
        /// From the start of the slice, in bytes.
        offset: usize,
        /// The size of the part in bytes.
        size: usize,
        /// The length of the slice in bytes.
        length: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(element: ElementType, shape: &[usize]) -> Layout {
        Layout::new(element, shape).unwrap()
    }

    #[test]
    fn size_and_count_follow_from_type_and_shape() {
        for (made, count, size, text) in [
            (layout(ElementType::F16, &[2, 3]), 6, 12, "f16[2, 3]"),
            (layout(ElementType::C128, &[]), 1, 16, "c128[]"),
            (
                layout(ElementType::BOOL, &[1; 8]),
                1,
                1,
                "bool[1, 1, 1, 1, 1, 1, 1, 1]",
            ),
            (Layout::bytes(7).unwrap(), 7, 7, "u8[7]"),
        ] {
            assert_eq!((made.count(), made.size()), (count, size));
            assert_eq!(made.to_string(), text);
            assert_eq!(format!("{made:?}"), format!("Layout({text})"));
        }
        let made = layout(ElementType::F32, &[4, 5, 6]);
        assert_eq!(made.element(), ElementType::F32);
        assert_eq!(made.shape(), [4, 5, 6]);
    }

    #[test]
    fn shapes_differ_in_their_dimensions_too() {
        let one = layout(ElementType::U8, &[4]);
        assert_ne!(one, layout(ElementType::U8, &[4, 1]));
        assert_ne!(one, layout(ElementType::I8, &[4]));
        assert_eq!(one, Layout::bytes(4).unwrap());
    }

    #[test]
    fn nine_dimensions_are_too_many() {
        assert_eq!(
            Layout::new(ElementType::U8, &[0; 9]),
            Err(LayoutError::TooManyDimensions { found: 9, most: 8 })
        );
    }

    #[test]
    fn an_empty_tensor_is_refused() {
        let zero = |index| Err(LayoutError::ZeroDimension { index });
        assert_eq!(Layout::new(ElementType::F32, &[3, 0, 2, 0]), zero(1));
        assert_eq!(Layout::bytes(0), zero(0));
        // Also where the product overflows before the zero.
        assert_eq!(
            Layout::new(ElementType::F32, &[usize::MAX, usize::MAX, 0]),
            zero(2)
        );
    }

    #[test]
    fn sizes_end_where_usize_does() {
        let too_large = |element, index, extent| {
            Err(LayoutError::TooLarge {
                element,
                index,
                extent,
            })
        };
        let most = usize::MAX / 8;
        let made = layout(ElementType::F64, &[most]);
        assert_eq!(made.size(), usize::MAX - 7);
        assert_eq!(
            Layout::new(ElementType::F64, &[most + 1]),
            too_large(ElementType::F64, 0, most + 1)
        );
        assert_eq!(
            Layout::new(ElementType::U8, &[1 << 32, 2, 1 << 31]),
            too_large(ElementType::U8, 2, 1 << 31)
        );
        assert_eq!(Layout::bytes(usize::MAX).unwrap().size(), usize::MAX);
    }

    #[test]
    fn the_length_of_the_data_is_the_size() {
        let layout = layout(ElementType::F16, &[2, 3]);
        assert_eq!(layout.check_length(12), Ok(()));
        for length in [0, 6, 11, 13] {
            assert_eq!(
                layout.check_length(length),
                Err(LayoutError::Length { layout, length })
            );
        }
    }

    #[test]
    fn texts_say_the_numbers_and_what_to_do() {
        let text = |error: LayoutError| error.to_string();
        let error = layout(ElementType::F16, &[2, 3]).check_length(16);
        assert_eq!(
            text(error.unwrap_err()),
            "f16[2, 3] has 12 bytes, and the data has 16 bytes: pass the shape and element type of this data"
        );
        assert_eq!(
            text(LayoutError::TooLarge {
                element: ElementType::F64,
                index: 1,
                extent: 9
            }),
            "the size of the f64 shape overflows at dimension 1, which is 9: check the shape, its dimensions are \
             counts of elements"
        );
        assert_eq!(
            text(LayoutError::Outside {
                offset: 16,
                size: 4096,
                length: 64
            }),
            "a part of 4096 bytes (4 KiB) at offset 0x10 does not fit into a slice of 64 bytes: make the slice \
             longer, or the part smaller"
        );
        assert_eq!(
            text(LayoutError::Misaligned {
                offset: 6,
                element: ElementType::F32
            }),
            "offset 0x6 is not a multiple of 4 bytes, the size of f32: align the offset of every part to its elements"
        );
    }
}
