//! A slice that a consumer reads.

use std::fmt;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use super::acknowledge::Pending;
use super::stream::wait_for;
use super::Attached;
use crate::device::Device;
use crate::fence::Fence;
use crate::pool::entry::{Scope, Taken};
use crate::pool::error::PoolError;
use crate::pool::ticket::Part;
use crate::reservation::{Reservation, View};
use crate::sys::CUstream;

/// A slice that is open for reading: [view](Self::view) it in place, or copy it out, then acknowledge it.
///
/// Acknowledging consumes the lease, so that a second time does not compile:
///
/// ```compile_fail,E0382
/// # use cuda_vmm::pool::Lease;
/// fn twice(lease: Lease) {
///     lease.acknowledge();
///     lease.acknowledge();
/// }
/// ```
///
/// Copies that were enqueued through it are done before the producer sees the acknowledgement. A copy that fails consumes
/// the lease too, and acknowledges it: it cannot be tried again. Dropping a lease acknowledges it for this consumer.
///
/// ```compile_fail,E0382
/// # use cuda_vmm::{pool::Lease, Reservation};
/// fn again(lease: Lease, target: &mut Reservation) {
///     if lease.copy_to(0, target, 0).is_err() {
///         let _ = lease.copy_to(0, target, 0);
///     }
/// }
/// ```
/// Several parts are copied one after the other:
///
/// ```
/// # use cuda_vmm::{pool::{Lease, PoolError}, Reservation};
/// fn copy_all(mut lease: Lease, target: &mut Reservation) -> Result<(), PoolError> {
///     let parts = lease.parts().to_vec();
///     for (index, part) in parts.iter().enumerate() {
///         lease = lease.copy_to(index, target, part.offset())?;
///     }
///     lease.finish()
/// }
/// ```
///
/// After the producer evicted this consumer its methods fail with [`PoolError::TakenBack`]: the bytes may be overwritten.
#[must_use = "dropping it acknowledges the slice for this consumer"]
pub struct Lease {
    attached: Arc<Attached>,
    slot: u32,
    generation: u64,
    /// Of the slice in the pool, in bytes.
    offset: usize,
    length: usize,
    parts: Vec<Part>,
    /// Streams that copies of this lease were enqueued on: device and stream.
    used: Vec<(Device, usize)>,
    /// The stream that copies go to, if the caller chose one.
    chosen: Option<(Device, usize)>,
    acknowledged: bool,
}

/// The wait for the readers of a slice failed. The slice is still held.
#[derive(Debug, thiserror::Error)]
#[error("the slice is still held: {error}")]
#[non_exhaustive]
pub struct StillReading {
    /// Why.
    pub error: crate::Error,
    /// The lease. Dropping it acknowledges the slice.
    pub lease: Lease,
}

impl Lease {
    pub(super) fn new(
        attached: Arc<Attached>,
        slot: u32,
        generation: u64,
        (offset, length): (usize, usize),
        parts: Vec<Part>,
    ) -> Lease {
        Lease {
            attached,
            slot,
            generation,
            offset,
            length,
            parts,
            used: Vec::new(),
            chosen: None,
            acknowledged: false,
        }
    }

    /// What is in the slice.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of the slice, with the gaps between packed parts.
    pub fn size(&self) -> usize {
        self.length
    }

    /// The address of a part, for kernels that read it in place. It is valid while the lease is borrowed; kernels that
    /// read it later have to be done before the lease is acknowledged: see [`acknowledge_after`](Self::acknowledge_after)
    /// and [`on_stream`](Self::on_stream).
    ///
    /// # Errors
    ///
    /// [`PoolError::NoSuchPart`].
    pub fn view(&self, part: usize) -> Result<View<'_>, PoolError> {
        let (offset, size) = self.place(part)?;
        Ok(self.attached.span().view(offset, size)?)
    }

    /// Copies a part to a reservation, in the order of the consumer's stream, or of the chosen one. Returns when the
    /// copy is enqueued: [`wait_until`](Self::wait_until) and [`finish`](Self::finish) wait for it. The copy is made by a
    /// device that may read the pool and write the target, which may be memory of another device.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoSuchPart`]; [`PoolError::Memory`] with what
    /// [`copy_from`](Reservation::copy_from) answers. The slice is acknowledged then.
    #[doc(alias = "cuMemcpyDtoDAsync")]
    pub fn copy_to(
        mut self,
        part: usize,
        target: &mut Reservation,
        offset: usize,
    ) -> Result<Lease, PoolError> {
        let (from, size) = self.place(part)?;
        let attached = self.attached.clone();
        let (used, chosen) = (&mut self.used, &self.chosen);
        let source = attached.span().reservation();
        target.enqueue_copy_from(offset, source, from, size, |device| {
            let stream = match chosen {
                Some((of, stream)) if of.ordinal() == device.ordinal() => *stream,
                _ => attached.streams.of(device)?,
            };
            note(used, device, stream);
            Ok(stream as CUstream)
        })?;
        Ok(self)
    }

    /// Copies a part to any device memory, by its address, as [`copy_to`](Self::copy_to) does.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoSuchPart`], [`PoolError::Memory`] with a driver failure. The slice is acknowledged then.
    ///
    /// # Safety
    ///
    /// From `address` on there is memory for the whole part that the consumer's device can write, and that nothing else
    /// uses until the copy is done.
    #[doc(alias = "cuMemcpyDtoDAsync")]
    #[allow(unsafe_code)]
    pub unsafe fn copy_to_address(mut self, part: usize, address: u64) -> Result<Lease, PoolError> {
        let (from, size) = self.place(part)?;
        let from = self.attached.span().base() + from as u64;
        let (device, stream) = match &self.chosen {
            Some(chosen) => chosen.clone(),
            None => {
                let device = self.attached.streams.device().clone();
                let stream = self.attached.streams.of(&device)?;
                (device, stream)
            }
        };
        note(&mut self.used, &device, stream);
        device.driver().with_context(device.raw(), |calls| {
            calls.enqueue_copy(address, from, size, stream as CUstream)
        })?;
        Ok(self)
    }

    /// Copies a part to the host. The bytes are there when this returns.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoSuchPart`], [`PoolError::TargetSize`], [`PoolError::Memory`]. The slice is acknowledged then.
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn read(self, part: usize, bytes: &mut [u8]) -> Result<Lease, PoolError> {
        let (from, size) = self.place(part)?;
        if bytes.len() != size {
            return Err(PoolError::TargetSize {
                part,
                size,
                target: bytes.len(),
            });
        }
        self.attached.span().read(from, bytes)?;
        // What was read is right only if it was still held afterwards.
        self.check_held()?;
        Ok(self)
    }

    /// Copies go to this stream from here on, and the acknowledgement comes behind all work that is enqueued on it when
    /// the lease is acknowledged or dropped: kernels that read in place, too.
    ///
    /// # Safety
    ///
    /// `stream` is a stream of `device`, in its primary context, that is not destroyed before the lease is acknowledged
    /// and its work is done.
    #[allow(unsafe_code)]
    pub unsafe fn on_stream(mut self, device: &Device, stream: CUstream) -> Lease {
        note(&mut self.used, device, stream as usize);
        self.chosen = Some((device.clone(), stream as usize));
        self
    }

    /// Waits for the copies that were enqueued, until the deadline at the latest.
    ///
    /// # Errors
    ///
    /// [`PoolError::NotDone`] at the deadline, [`PoolError::Memory`] where the driver reports a failure.
    #[doc(alias = "cuStreamQuery")]
    pub fn wait_until(&self, deadline: Instant) -> Result<(), PoolError> {
        let waited = self
            .used
            .iter()
            .try_for_each(|(device, stream)| wait_for(device, *stream, Some(deadline)));
        waited.map_err(|error| match error {
            crate::Error::DeadlinePassed { waited } => PoolError::NotDone { waited },
            error => PoolError::Memory(error),
        })?;
        self.check_held()
    }

    /// Waits for the copies that were enqueued, then acknowledges for this consumer.
    ///
    /// # Errors
    ///
    /// [`PoolError::Memory`] where the copies failed. The slice is acknowledged then too.
    #[doc(alias = "cuStreamSynchronize")]
    pub fn finish(self) -> Result<(), PoolError> {
        self.finish_for(Scope::Own)
    }

    /// [`finish`](Self::finish), and acknowledges for others too.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish), and [`PoolError::ScopeNotAllowed`]: then the slice is acknowledged for this consumer
    /// alone.
    pub fn finish_for(mut self, scope: Scope) -> Result<(), PoolError> {
        self.check_scope(scope)?;
        let waited = self
            .used
            .iter()
            .try_for_each(|(device, stream)| wait_for(device, *stream, None));
        // A wait that failed is tried again behind the acknowledgement.
        if waited.is_ok() {
            self.used.clear();
        }
        let held = self.check_held();
        self.settle(scope);
        waited?;
        held
    }

    /// Acknowledges for this consumer, behind the copies that were enqueued. Does not wait for them.
    #[doc(alias = "cuStreamWriteValue32")]
    pub fn acknowledge(mut self) {
        self.settle(Scope::Own);
    }

    /// [`acknowledge`](Self::acknowledge), for others too.
    ///
    /// # Errors
    ///
    /// [`PoolError::ScopeNotAllowed`]: then the slice is acknowledged for this consumer alone.
    #[doc(alias = "cuStreamWriteValue32")]
    pub fn acknowledge_for(mut self, scope: Scope) -> Result<(), PoolError> {
        self.check_scope(scope)?;
        self.settle(scope);
        Ok(())
    }

    /// Waits for what reads the slice in place, then acknowledges for this consumer.
    ///
    /// # Errors
    ///
    /// The lease, where the wait fails.
    pub fn acknowledge_after(self, fence: Fence<'_>) -> Result<(), Box<StillReading>> {
        match fence.wait() {
            Ok(()) => {
                self.acknowledge();
                Ok(())
            }
            Err(error) => Err(Box::new(StillReading { error, lease: self })),
        }
    }

    fn check_scope(&self, asked: Scope) -> Result<(), PoolError> {
        let widest = self.attached.widest;
        match asked <= widest {
            true => Ok(()),
            false => Err(PoolError::ScopeNotAllowed { asked, widest }),
        }
    }

    /// The producer has not evicted this consumer.
    fn check_held(&self) -> Result<(), PoolError> {
        match self.attached.entry(self.slot).is_open(self.generation) {
            true => Ok(()),
            false => Err(PoolError::TakenBack {
                slot: self.slot,
                why: Taken::Evicted,
            }),
        }
    }

    /// Offset in the pool, and size.
    fn place(&self, part: usize) -> Result<(usize, usize), PoolError> {
        self.check_held()?;
        match self.parts.get(part) {
            Some(found) => Ok((self.offset + found.offset(), found.size())),
            None => Err(PoolError::NoSuchPart {
                part,
                count: self.parts.len(),
            }),
        }
    }

    fn settle(&mut self, scope: Scope) {
        if mem::replace(&mut self.acknowledged, true) || self.attached.is_foreign() {
            return;
        }
        let pending = Pending {
            slot: self.slot,
            generation: self.generation,
            scope,
            streams: mem::take(&mut self.used),
        };
        self.attached.acknowledge(pending);
        self.attached.leases.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.settle(Scope::Own);
    }
}

/// Notes a stream before work is enqueued on it.
fn note(used: &mut Vec<(Device, usize)>, device: &Device, stream: usize) {
    let is_it =
        |(of, known): &(Device, usize)| of.ordinal() == device.ordinal() && *known == stream;
    if !used.iter().any(is_it) {
        used.push((device.clone(), stream));
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("slot", &self.slot)
            .field("generation", &self.generation)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}
