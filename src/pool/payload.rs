//! What is published: bytes of the host or the device, and what they are.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::error::PoolError;
use super::layout::Layout;
use super::room::rounded;
use super::ticket::{Part, MAX_PARTS};
use crate::reservation::View;

/// Where the bytes of a part are.
#[derive(Clone, Copy)]
pub struct Source<'a>(pub(super) Kind<'a>);

#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    Host(&'a [u8]),
    View(View<'a>),
    Device {
        address: u64,
        size: usize,
    },
    Rows {
        address: u64,
        pitch: usize,
        width: usize,
        rows: usize,
    },
}

impl<'a> Source<'a> {
    /// Bytes of the host, also of other element types. They are copied before [`publish`](super::Publisher::publish) or
    /// [`begin`](super::Publisher::begin) returns.
    pub fn host(bytes: &'a [u8]) -> Source<'a> {
        Source(Kind::Host(bytes))
    }

    /// Mapped memory that the pool's device can read.
    pub fn view(view: &View<'a>) -> Source<'a> {
        Source(Kind::View(*view))
    }

    /// Rows of mapped memory: `width` bytes at every multiple of `pitch` bytes, as many as the view holds. They are
    /// published one behind the other.
    ///
    /// # Errors
    ///
    /// [`PoolError::Rows`].
    pub fn rows(view: &View<'a>, pitch: usize, width: usize) -> Result<Source<'a>, PoolError> {
        let size = view.size();
        let rows = match (pitch, size.checked_sub(width)) {
            (1.., Some(left)) => left / pitch + 1,
            _ => 0,
        };
        if rows == 0 || width == 0 || pitch < width {
            return Err(PoolError::Rows {
                width,
                pitch,
                rows,
                size,
            });
        }
        Ok(Source(Kind::Rows {
            address: view.address(),
            pitch,
            width,
            rows,
        }))
    }

    /// Device memory of any origin, by its address (`CUdeviceptr`).
    ///
    /// # Safety
    ///
    /// The range is memory that kernels of the pool's device can read, and stays so until the copy is done: until
    /// `publish` returns, or the [`Publishing`](super::Publishing) is done. It is not enough that the driver can copy from
    /// it: of ordinary memory of another device, peer access must be enabled in the primary context of the pool's device
    /// (`cuCtxEnablePeerAccess`). A kernel that reads anything else loses the context.
    #[allow(unsafe_code)]
    pub unsafe fn device(address: u64, size: usize) -> Source<'static> {
        Source(Kind::Device { address, size })
    }

    /// Rows of device memory of any origin.
    ///
    /// # Safety
    ///
    /// As for [`device`](Self::device), of each row; the pitch is at least the width.
    #[allow(unsafe_code)]
    pub unsafe fn device_rows(
        address: u64,
        pitch: usize,
        width: usize,
        rows: usize,
    ) -> Source<'static> {
        Source(Kind::Rows {
            address,
            pitch,
            width,
            rows,
        })
    }

    /// Bytes that are published; none where the rows have more than can be counted.
    fn size(&self) -> Option<usize> {
        match self.0 {
            Kind::Host(bytes) => Some(bytes.len()),
            Kind::View(view) => Some(view.size()),
            Kind::Device { size, .. } => Some(size),
            Kind::Rows { width, rows, .. } => width.checked_mul(rows),
        }
    }
}

/// The content of one slice: one tensor or several packed ones, and its deadline.
///
/// ```
/// # use std::time::Duration;
/// use cuda_vmm::pool::{ElementType, Layout, Payload, Source};
///
/// let pixels = [0_u8; 2 * 3 * 4];
/// let scores = [0_u8; 2 * 4];
/// let payload = Payload::tensor(
///     Source::host(&pixels),
///     Layout::new(ElementType::F32, &[2, 3])?,
/// )
/// .and(Source::host(&scores), Layout::new(ElementType::F32, &[2])?)
/// .expires_in(Duration::from_secs(30));
/// # Ok::<_, cuda_vmm::pool::LayoutError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a payload is published by a Publisher"]
pub struct Payload<'a> {
    parts: Vec<(Source<'a>, Option<Layout>)>,
    expires: Option<Duration>,
}

impl<'a> Payload<'a> {
    /// Bytes without a shape: the part is `u8[n]`.
    pub fn bytes(source: Source<'a>) -> Payload<'a> {
        Payload {
            parts: vec![(source, None)],
            expires: None,
        }
    }

    /// A tensor.
    pub fn tensor(source: Source<'a>, layout: Layout) -> Payload<'a> {
        Payload {
            parts: vec![(source, Some(layout))],
            expires: None,
        }
    }

    /// Packs a further tensor into the same slice, at an offset aligned to its element.
    pub fn and(mut self, source: Source<'a>, layout: Layout) -> Payload<'a> {
        self.parts.push((source, Some(layout)));
        self
    }

    /// Takes the slice back from each consumer that has not opened the ticket this long after the publish. Without it, the
    /// slice never expires.
    pub fn expires_in(mut self, time: Duration) -> Payload<'a> {
        self.expires = Some(time);
        self
    }

    /// Where each part goes in its slice.
    pub(super) fn plan(&self, pool: usize) -> Result<Plan, PoolError> {
        if self.parts.len() > MAX_PARTS {
            return Err(PoolError::PartCount {
                count: self.parts.len(),
                most: MAX_PARTS,
            });
        }
        let too_large = |needed| PoolError::TooLarge { needed, pool };
        let mut length = 0_usize;
        let mut parts = Vec::with_capacity(self.parts.len());
        for (part, (source, layout)) in self.parts.iter().enumerate() {
            let size = source.size().ok_or(too_large(usize::MAX))?;
            if size == 0 {
                return Err(PoolError::Empty { part });
            }
            if size > pool {
                return Err(too_large(size));
            }
            let failed = |error| PoolError::Layout { part, error };
            let layout = match layout {
                Some(layout) => {
                    layout.check_length(size).map_err(failed)?;
                    *layout
                }
                None => Layout::bytes(size).map_err(failed)?,
            };
            let offset = length.next_multiple_of(layout.element().bytes().max(PART_ALIGNMENT));
            length = offset + size;
            if length > pool {
                return Err(too_large(length));
            }
            parts.push(Part::new(offset, layout).map_err(failed)?);
        }
        // Slices are whole multiples of the alignment, as is the pool.
        debug_assert!(rounded(length as u64) <= pool as u64);
        Ok(Plan {
            length,
            parts,
            expires: self.expires,
        })
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = &Source<'a>> {
        self.parts.iter().map(|(source, _)| source)
    }
}

/// Parts lie at multiples of this, or of their element where that is larger: a copy is faster then.
const PART_ALIGNMENT: usize = 16;

/// A slice with all its offsets.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) length: usize,
    pub(super) parts: Vec<Part>,
    pub(super) expires: Option<Duration>,
}

impl Plan {
    /// Where a part lies in the slice.
    pub(super) fn range(&self, part: usize) -> Range<usize> {
        self.parts[part].range()
    }
}

/// One copy into the pool: the address, and what goes there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer<'a> {
    pub(super) to: u64,
    pub(super) source: Source<'a>,
}

/// The length in place of the bytes.
impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, address) = match self.0 {
            Kind::Host(bytes) => ("host", bytes.as_ptr() as u64),
            Kind::View(view) => ("view", view.address()),
            Kind::Device { address, .. } => ("device", address),
            Kind::Rows { address, .. } => ("rows", address),
        };
        f.debug_struct("Source")
            .field("kind", &kind)
            .field("address", &format_args!("{address:#x}"))
            .field("size", &self.size())
            .finish()
    }
}
