//! Physical memory: one handle, one count, released once.

#![allow(unsafe_code)] // `from_raw` is declared unsafe; no unsafe operation stands here.

use std::fmt;
use std::sync::Arc;

use crate::access::Access;
use crate::bytes::Bytes;
use crate::code::Code;
use crate::driver::{Driver, Piece, RawHandle};
use crate::error::{Error, Result, What};
use crate::handle::{Handle, Memory, Origin};
use crate::identity::AllocationId;
use crate::location::Location;
use crate::props::AllocationProps;
use crate::range::aligned;
use crate::recipe::{HandleTypes, Recipe};
use crate::sys::{CUmemLocationType, Call};

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

    pub(crate) fn from_share(handle: Arc<Handle>) -> Allocation {
        Allocation { handle }
    }

    /// The same count, held once more: it is given back with the last of its holders.
    pub(crate) fn another_hold(&self) -> Allocation {
        Allocation::from_share(self.share())
    }

    pub(crate) fn driver(&self) -> &Driver {
        self.handle.driver()
    }

    /// The allocation that is mapped at this address, whoever mapped it, with one more count.
    ///
    /// Any address inside the mapping will do. Where an import is mapped that this crate made, the rights that it came
    /// with are [offered](Self::offered) here too.
    ///
    /// # Errors
    ///
    /// INVALID_VALUE where virtual memory management mapped nothing (see [`Driver::is_vmm`]), NOT_FOUND where the
    /// memory's own device (device 0 for host memory) has no access to that mapping, of which the driver then tells no
    /// size, or another driver failure.
    #[doc(alias = "cuMemRetainAllocationHandle")]
    pub fn retain(driver: &Driver, address: u64) -> Result<Allocation> {
        Allocation::retain_with_base(driver, address).map(|(allocation, _)| allocation)
    }

    /// [`retain`](Self::retain), and where the mapping begins.
    pub(crate) fn retain_with_base(driver: &Driver, address: u64) -> Result<(Allocation, u64)> {
        let raw = driver.calls().mem_retain(address)?;
        let unknown = Memory::of(&Recipe::plain(Location::Host), 0, 1);
        let mut handle = Handle::recognised(driver, raw, unknown, Origin::Retained);
        let described = describe(driver, raw).and_then(|recipe| {
            let granularity = driver.granularity(&recipe)?.minimum();
            // Asking for the size needs a context; the memory's own device has one, host memory is asked of device 0.
            let device = driver.device(recipe.location.device().unwrap_or(0))?;
            let (base, size) =
                driver.with_context(device.raw(), |calls| calls.mem_address_range(address))?;
            if base == 0 && recipe.location.device().is_some() {
                return Err(Error::disagreement(
                    format!("device memory at {address:#x} is mapped from an address on"),
                    "gives none".into(),
                ));
            }
            if size % granularity != 0 {
                return Err(Error::disagreement(
                    format!("an allocation's size is a multiple of its granularity, {granularity}"),
                    format!("says that {size} bytes are mapped at {address:#x}"),
                ));
            }
            Ok((Memory::of(&recipe, size, granularity), base))
        });
        match described {
            Ok((memory, base)) => {
                handle.describe(memory);
                Ok((Allocation::from_handle(handle), base))
            }
            Err(error) => Allocation::from_handle(handle).settle(Err(error)),
        }
    }

    /// Ends an operation by letting go of an allocation that it needed: see [`Driver::settle`].
    pub(crate) fn settle<T>(self, result: Result<T>) -> Result<T> {
        let driver = self.handle.driver().clone();
        match Arc::into_inner(self.handle) {
            None => result,
            Some(mut handle) => {
                let size = handle.memory().size;
                let raw = handle.give_up();
                driver.settle(Piece::Handle { raw, size }, result)
            }
        }
    }

    /// [`settle`](Self::settle) for several, in reverse order.
    pub(crate) fn settle_all<T>(
        held: impl DoubleEndedIterator<Item = Allocation>,
        result: Result<T>,
    ) -> Result<T> {
        let mut result = result;
        for allocation in held.rev() {
            result = allocation.settle(result);
        }
        result
    }

    /// The count itself, where nobody shares it.
    pub(crate) fn into_handle(self) -> Result<Handle, Allocation> {
        Arc::try_unwrap(self.handle).map_err(|handle| Allocation { handle })
    }

    fn adopt(driver: &Driver, raw: RawHandle, memory: Memory, origin: Origin) -> Allocation {
        Allocation::from_handle(Handle::recognised(driver, raw, memory, origin))
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
        let memory = Memory::of(&recipe, size, granularity);
        Ok(Allocation::adopt(driver, raw, memory, Origin::Raw))
    }

    /// Gives the raw handle and its count to the caller, who then has to release it.
    ///
    /// What was known of the memory is forgotten with that, unless something else here holds it: its
    /// [name](Self::id), and of an import what its maker [offers](Self::offered), to which the caller has to keep.
    ///
    /// # Errors
    ///
    /// The allocation itself, where it is still mapped, or exported as a fabric handle: they share the one count.
    pub fn into_raw(self) -> Result<u64, Allocation> {
        Arc::try_unwrap(self.handle)
            .map(|mut handle| handle.give_up())
            .map_err(|handle| Allocation { handle })
    }

    /// The raw handle, for calls that this crate does not wrap. The count stays here.
    pub fn raw(&self) -> u64 {
        self.handle.raw()
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.handle.memory().size
    }

    /// Where the memory lies.
    pub fn location(&self) -> Location {
        self.handle.memory().location
    }

    /// The kinds of sharing it was created for. An import says none: it cannot be exported.
    pub fn handle_types(&self) -> HandleTypes {
        self.handle.memory().handle_types
    }

    /// What may be done with it: all with one's own memory, what its maker offers with another process's.
    pub fn offered(&self) -> Access {
        self.handle.offered()
    }

    /// The name of the memory: the same for each allocation and export of it, and for what is imported of those.
    ///
    /// It is given when it is first asked for, and is the memory's for as long as an allocation or a mapping of it that
    /// was asked, or exported, lives in this process.
    pub fn id(&self) -> AllocationId {
        self.handle.identity().id
    }

    /// How the handle came here.
    pub fn origin(&self) -> Origin {
        self.handle.origin()
    }

    /// The properties that were granted, read back from the driver. Requests for RDMA and compression may have come to
    /// nothing.
    ///
    /// # Errors
    ///
    /// A driver failure.
    #[doc(alias = "cuMemGetAllocationPropertiesFromHandle")]
    pub fn granted(&self) -> Result<AllocationProps> {
        describe(self.handle.driver(), self.handle.raw())
            .map(|recipe| AllocationProps::of(self.handle.driver(), recipe))
    }

    /// Lets go of the memory, with the driver's answer. While mappings or fabric exports share it, they keep it and
    /// nothing can fail.
    ///
    /// # Errors
    ///
    /// The driver's answer, and the allocation, which can be released again.
    #[doc(alias = "cuMemRelease")]
    pub fn release(self) -> Result<(), ReleaseError> {
        let Some(mut handle) = Arc::into_inner(self.handle) else {
            return Ok(());
        };
        handle.release_count().map_err(|error| ReleaseError {
            error,
            allocation: Allocation::from_handle(handle),
        })
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

pub(crate) fn describe(driver: &Driver, raw: RawHandle) -> Result<Recipe> {
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
