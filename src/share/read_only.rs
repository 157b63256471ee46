//! A span that can be read, and nothing else.

use std::fmt;

use crate::access::Access;
use crate::driver::Driver;
use crate::error::Result;
use crate::location::Location;
use crate::mapping::Mapping;
use crate::reservation::{CloseError, Reservation, View};

/// Another process's span, attached to be read. Made by
/// [`SpanImport::attach_read_only`](super::SpanImport::attach_read_only).
///
/// It has no operation that writes, maps or grants:
///
/// ```compile_fail,E0599
/// # use cuda_vmm::share::ReadOnlySpan;
/// fn scribble(span: &mut ReadOnlySpan) {
///     span.write(0, b"mine").unwrap();
/// }
/// ```
///
/// A kernel that writes to its addresses is refused by the device: no right to write was granted.
pub struct ReadOnlySpan {
    span: Reservation,
}

impl ReadOnlySpan {
    pub(super) fn new(span: Reservation) -> ReadOnlySpan {
        ReadOnlySpan { span }
    }

    /// What it is made of, to be read.
    pub(crate) fn reservation(&self) -> &Reservation {
        &self.span
    }

    /// What it is made of, to be closed.
    pub(crate) fn into_reservation(self) -> Reservation {
        self.span
    }

    /// First address.
    pub fn base(&self) -> u64 {
        self.span.base()
    }

    /// Bytes, holes included.
    pub fn size(&self) -> usize {
        self.span.size()
    }

    /// The driver it was attached with.
    pub fn driver(&self) -> &Driver {
        self.span.driver()
    }

    /// Copies bytes to the host: [`Reservation::read`].
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.span.read(offset, bytes)
    }

    /// The address of a range that is mapped throughout, for kernels that read: [`Reservation::view`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn view(&self, offset: usize, size: usize) -> Result<View<'_>> {
        self.span.view(offset, size)
    }

    /// What a location may do with the byte at this offset, as the driver says: [`Reservation::access_of`].
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(alias = "cuMemGetAccess")]
    pub fn access_of(&self, offset: usize, location: impl Into<Location>) -> Result<Access> {
        self.span.access_of(offset, location)
    }

    /// All pieces, by offset.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> + '_ {
        self.span.mappings()
    }

    /// Copies its bytes into a reservation of one's own: [`Reservation::copy_from`].
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(alias = "cuMemcpyDtoD")]
    pub fn copy_to(
        &self,
        from: usize,
        target: &mut Reservation,
        to: usize,
        size: usize,
    ) -> Result<()> {
        target.copy_from(to, &self.span, from, size)
    }

    /// Unmaps everything, lets go of the memory, and frees the addresses: [`Reservation::close`].
    ///
    /// # Errors
    ///
    /// As there; the span is in the error as a reservation, which still may not be written to.
    pub fn close(self) -> Result<(), Box<CloseError>> {
        self.span.close()
    }
}

/// The same picture as of a [`Reservation`].
impl fmt::Display for ReadOnlySpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.span.fmt(f)
    }
}

impl fmt::Debug for ReadOnlySpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnlySpan").field(&self.span).finish()
    }
}
