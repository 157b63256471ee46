//! Physical memory: one handle, one count, released once.

#![allow(unsafe_code)] // `from_raw` is declared unsafe; no unsafe operation stands here.

use std::fmt;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::code::Code;
use crate::driver::{Driver, Piece, RawHandle};
use crate::error::{Error, Result, What};
use crate::location::Location;
use crate::props::AllocationProps;
use crate::range::aligned;
use crate::recipe::Recipe;
use crate::report::{self, Leak};
use crate::sys::{CUmemLocationType, Call};

/// How an allocation's handle came to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// Created here.
    Created,
    /// Retained from an address at which it is mapped.
    Retained,
    /// Taken over as a raw handle.
    Raw,
}

/// What there is to know of memory, to map it.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) size: usize,
    pub(crate) granularity: usize,
    pub(crate) location: Location,
}

/// One count of one physical handle. Dropping it releases; nothing else does.
pub(crate) struct Handle {
    driver: Driver,
    raw: RawHandle,
    memory: Memory,
    origin: Origin,
    /// Whether the count is still this value's to give back.
    owned: bool,
}

impl Handle {
    fn create(props: &AllocationProps, size: usize) -> Result<Handle> {
        let granularity = props.granularity()?.minimum();
        let raw = props.driver().calls().mem_create(size, props.recipe())?;
        Ok(Handle::created(
            props.driver(),
            raw,
            Memory {
                size,
                granularity,
                location: props.location(),
            },
        ))
    }

    /// Wraps a count of a handle that was created here.
    #[inline]
    pub(crate) fn created(driver: &Driver, raw: RawHandle, memory: Memory) -> Handle {
        Handle::owned(driver, raw, memory, Origin::Created)
    }

    fn owned(driver: &Driver, raw: RawHandle, memory: Memory, origin: Origin) -> Handle {
        Handle {
            driver: driver.clone(),
            raw,
            memory,
            origin,
            owned: true,
        }
    }

    pub(crate) fn raw(&self) -> RawHandle {
        self.raw
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Releases the count, or gives the handle back with the reason.
    #[inline]
    pub(crate) fn release(mut self) -> Result<(), (Handle, Error)> {
        self.release_count().map_err(|error| (self, error))
    }

    /// Whether there is a count to give back.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned
    }

    /// Releases the count and stays, for it to be [taken back](Handle::take_count).
    pub(crate) fn release_count(&mut self) -> Result<()> {
        self.driver
            .calls()
            .mem_release(self.raw, self.memory.size)?;
        self.owned = false;
        Ok(())
    }

    /// Takes over a count of the same memory, in place of the one released.
    pub(crate) fn take_count(&mut self, raw: RawHandle) {
        self.raw = raw;
        self.owned = true;
    }

    /// Gives the count up without releasing it: somebody else has it now.
    pub(crate) fn give_up(&mut self) -> RawHandle {
        self.owned = false;
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // Never panics; a failure is reported, and the count is leaked with its memory.
        if let Err(error) = self.driver.calls().mem_release(self.raw, self.memory.size) {
            report::leaked(Leak::Memory {
                size: self.memory.size,
                error,
            });
        }
    }
}

/// Physical memory (`CUmemGenericAllocationHandle`), owned.
///
/// It is mapped with [`Reservation::map_existing`](crate::Reservation::map_existing), any number of times, and may be
/// dropped while it is mapped: the mappings keep the memory. It is released exactly once, when it and the last of its
/// mappings are gone, and can be neither copied nor cloned:
///
/// ```compile_fail,E0599
/// # use cuda_vmm::Allocation;
/// fn twice(page: Allocation) -> (Allocation, Allocation) {
///     (page.clone(), page)
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use cuda_vmm::Allocation;
/// fn twice(page: Allocation) -> (Allocation, Allocation) {
///     (page, page)
/// }
/// ```
///
/// A raw handle becomes an `Allocation` only where somebody vouches for it:
///
/// ```compile_fail,E0133
/// # use cuda_vmm::{Allocation, Driver};
/// fn adopt(driver: &Driver) {
///     let _ = Allocation::from_raw(driver, 0x1234, 2 << 20);
/// }
/// ```
pub struct Allocation {
    handle: Arc<Handle>,
}

impl AllocationProps {
    /// Creates physical memory of this many bytes, mapped nowhere. New memory reads as zero.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::Misaligned`] (a multiple of [`Granularity::minimum`](crate::Granularity::minimum)
    /// is needed), [`Error::OutOfMemory`], or another driver failure, such as NOT_PERMITTED for a FABRIC handle without
    /// an IMEX channel.
    #[doc(alias = "cuMemCreate")]
    pub fn create(&self, size: usize) -> Result<Allocation> {
        self.check_size(size)?;
        Allocation::create(self, size)
    }

    fn check_size(&self, size: usize) -> Result<()> {
        match size {
            0 => Err(Error::ZeroSize {
                what: What::AllocationSize,
            }),
            _ => aligned(What::AllocationSize, size, self.granularity()?.minimum()),
        }
    }
}

impl Allocation {
    pub(crate) fn create(props: &AllocationProps, size: usize) -> Result<Allocation> {
        Handle::create(props, size).map(Allocation::from_handle)
    }

    pub(crate) fn from_handle(handle: Handle) -> Allocation {
        Allocation {
            handle: Arc::new(handle),
        }
    }

    pub(crate) fn share(&self) -> Arc<Handle> {
        self.handle.clone()
    }

    /// The allocation that is mapped at this address, whoever mapped it, with one more count.
    ///
    /// Any address inside the mapping will do.
    ///
    /// # Errors
    ///
    /// INVALID_VALUE where virtual memory management mapped nothing (see [`Driver::is_vmm`]), NOT_FOUND where the
    /// memory's own device (device 0 for host memory) has no access to that mapping, of which the driver then tells no
    /// size, or another driver failure.
    #[doc(alias = "cuMemRetainAllocationHandle")]
    pub fn retain(driver: &Driver, address: u64) -> Result<Allocation> {
        let raw = driver.calls().mem_retain(address)?;
        let unknown = Memory {
            size: 0,
            granularity: 1,
            location: Location::Host,
        };
        let mut handle = Handle::owned(driver, raw, unknown, Origin::Retained);
        let described = describe(driver, raw).and_then(|recipe| {
            let granularity = driver.granularity(&recipe)?.minimum();
            // Asking for the size needs a context; the memory's own device has one, host memory is asked of device 0.
            let device = driver.device(recipe.location.device().unwrap_or(0))?;
            let (_, size) =
                driver.with_context(device.raw(), |calls| calls.mem_address_range(address))?;
            if size % granularity != 0 {
                return Err(Error::disagreement(
                    format!("an allocation's size is a multiple of its granularity, {granularity}"),
                    format!("says that {size} bytes are mapped at {address:#x}"),
                ));
            }
            Ok(Memory {
                size,
                granularity,
                location: recipe.location,
            })
        });
        match described {
            Ok(memory) => {
                handle.memory = memory;
                Ok(Allocation::from_handle(handle))
            }
            Err(error) => {
                let raw = handle.give_up();
                let undo = driver.give_back(Piece::Handle { raw, size: 0 }).err();
                Err(error.with_undo(undo.into_iter().collect()))
            }
        }
    }

    fn adopt(driver: &Driver, raw: RawHandle, memory: Memory, origin: Origin) -> Allocation {
        Allocation::from_handle(Handle::owned(driver, raw, memory, origin))
    }

    /// Takes over a raw handle and one count of it.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`] or [`Error::Misaligned`] for a size that no handle has, or a driver failure; the handle then
    /// stays the caller's.
    ///
    /// # Safety
    ///
    /// - `raw` is a live handle of this driver: the driver follows a made-up value as a pointer.
    /// - The caller owns one count of it and gives that up to the `Allocation`.
    /// - `size` is the handle's size in bytes. (A wrong one cannot do harm, but mapping then fails with
    ///   [`Error::WrongSize`].)
    pub unsafe fn from_raw(driver: &Driver, raw: u64, size: usize) -> Result<Allocation> {
        if size == 0 {
            return Err(Error::ZeroSize {
                what: What::AllocationSize,
            });
        }
        let recipe = describe(driver, raw)?;
        let granularity = driver.granularity(&recipe)?.minimum();
        aligned(What::AllocationSize, size, granularity)?;
        let memory = Memory {
            size,
            granularity,
            location: recipe.location,
        };
        Ok(Allocation::adopt(driver, raw, memory, Origin::Raw))
    }

    /// Gives the raw handle and its count to the caller, who then has to release it.
    ///
    /// # Errors
    ///
    /// The allocation itself, where it is still mapped: the mappings share the one count.
    pub fn into_raw(self) -> Result<u64, Allocation> {
        Arc::try_unwrap(self.handle)
            .map(|mut handle| handle.give_up())
            .map_err(|handle| Allocation { handle })
    }

    /// The raw handle, for calls that this crate does not wrap. The count stays here.
    pub fn raw(&self) -> u64 {
        self.handle.raw
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.handle.memory.size
    }

    /// Where the memory lies.
    pub fn location(&self) -> Location {
        self.handle.memory.location
    }

    /// How the handle came here.
    pub fn origin(&self) -> Origin {
        self.handle.origin
    }

    /// The properties that were granted, read back from the driver. Requests for RDMA and compression may have come to
    /// nothing.
    ///
    /// # Errors
    ///
    /// A driver failure.
    #[doc(alias = "cuMemGetAllocationPropertiesFromHandle")]
    pub fn granted(&self) -> Result<AllocationProps> {
        describe(&self.handle.driver, self.handle.raw)
            .map(|recipe| AllocationProps::of(&self.handle.driver, recipe))
    }

    /// Lets go of the memory, with the driver's answer. While mappings share it, they keep it and nothing can fail.
    ///
    /// # Errors
    ///
    /// The driver's answer, and the allocation, which can be released again.
    #[doc(alias = "cuMemRelease")]
    pub fn release(self) -> Result<(), ReleaseError> {
        match Arc::into_inner(self.handle).map(Handle::release) {
            None | Some(Ok(())) => Ok(()),
            Some(Err((handle, error))) => Err(ReleaseError {
                error,
                allocation: Allocation::from_handle(handle),
            }),
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("raw", &format_args!("{:#x}", self.raw))
            .field("size", &self.memory.size)
            .field("location", &self.memory.location)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Allocation").field(&*self.handle).finish()
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", Bytes(self.size()), self.location())
    }
}

/// The driver did not release an allocation, which is still owned.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ReleaseError {
    /// The driver's answer.
    pub error: Error,
    /// The allocation, to be released again.
    pub allocation: Allocation,
}

fn describe(driver: &Driver, raw: RawHandle) -> Result<Recipe> {
    let properties = driver.calls().mem_properties(raw)?;
    let recipe = Recipe::from_raw(&properties);
    let location = properties.location;
    // A device's number below zero is not taken for a device by `from_raw`.
    let of_device = location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    match recipe.location.device() {
        Some(ordinal) if ordinal < driver.device_count() => Ok(recipe),
        None if !of_device => Ok(recipe),
        _ => Err(Error::disagreement(
            format!("there are {} devices", driver.device_count()),
            format!("says that the memory lies on device {}", location.id),
        )),
    }
}

/// Whether the driver refused to map part of a handle; of a grant, the same status means something else.
pub(crate) fn is_partial_map(error: &Error) -> bool {
    match error.first() {
        Error::Driver(failure) => {
            failure.call == Call::cuMemMap && failure.code == Code::ERROR_NOT_SUPPORTED
        }
        _ => false,
    }
}
