//! The driver: which implementation answers, what is asked of it once, and what it still has to take back.

mod answers;
mod calls;
mod reserved;

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) use answers::context as check_context;
pub(crate) use calls::{Calls, RawHandle};

use crate::code::Code;
use crate::context::Contexts;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::props::{Granularity, Recipe};
use crate::report::{self, Leak};
use crate::sys::{DriverCalls, Library};
use reserved::Reserved;

/// A CUDA driver: the real one, the simulated one, or one put in between.
///
/// Cheap to clone; everything made through it holds a clone. Nothing is asked of the driver before
/// [`load`](Driver::load), and nothing is linked: a program that embeds this crate starts on a machine without a GPU.
#[derive(Clone)]
pub struct Driver {
    inner: Arc<Inner>,
}

struct Inner {
    calls: Calls,
    path: Option<PathBuf>,
    device_count: u32,
    version: u32,
    granularities: Mutex<HashMap<Recipe, Granularity>>,
    unit: OnceLock<usize>,
    contexts: Contexts,
    reserved: Reserved,
    quarantine: Mutex<Vec<Piece>>,
}

/// Something that the driver would not take back, owned by nobody else.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    /// A handle with one count.
    Handle { raw: RawHandle, size: usize },
    /// A reserved range without mappings.
    Addresses { base: u64, size: usize },
    /// One retain of a device's primary context.
    Context { device: c_int },
}

impl Driver {
    /// Opens the driver's library and initialises it (`cuInit`).
    ///
    /// # Errors
    ///
    /// [`Error::DriverNotFound`] without a driver, [`Error::StubLibrary`] where a toolkit's stub was found in its place,
    /// [`Error::ForkedChild`] where a parent process has loaded it before, else what the library or `cuInit` answered.
    #[doc(alias = "cuInit")]
    pub fn load() -> Result<Driver> {
        Driver::from_library(Library::open()?)
    }

    /// [`load`](Driver::load), from the library at this path.
    ///
    /// # Errors
    ///
    /// As [`load`](Driver::load).
    pub fn load_from(path: impl AsRef<Path>) -> Result<Driver> {
        Driver::from_library(Library::open_path(path.as_ref())?)
    }

    fn from_library(library: Library) -> Result<Driver> {
        let path = library.path().to_path_buf();
        Driver::start(Arc::new(library), Some(path))
    }

    /// The simulated driver.
    ///
    /// # Errors
    ///
    /// What a fault injected into the start-up calls makes of them.
    #[cfg(feature = "sim")]
    pub fn simulated(simulation: &crate::sim::Simulation) -> Result<Driver> {
        Driver::start(Arc::new(simulation.clone()), None)
    }

    /// A driver whose calls go through an implementation of one's own: an interposer, or a driver that does nothing.
    ///
    /// # Errors
    ///
    /// What the implementation answers to the start-up calls.
    pub fn from_calls(calls: Arc<dyn DriverCalls>) -> Result<Driver> {
        Driver::start(calls, None)
    }

    fn start(raw: Arc<dyn DriverCalls>, path: Option<PathBuf>) -> Result<Driver> {
        let calls = Calls::new(raw);
        calls.init().map_err(|error| match (error.code(), &path) {
            (Some(Code::ERROR_STUB_LIBRARY), Some(path)) => {
                Error::StubLibrary { path: path.clone() }
            }
            // Whoever loaded the driver in the parent: its `cuInit` says so in a forked child, and nowhere else.
            (Some(Code::ERROR_NOT_INITIALIZED), _) => Error::ForkedChild,
            _ => error,
        })?;
        let version = calls.driver_version()?;
        let device_count = calls.device_count()?;
        Ok(Driver {
            inner: Arc::new(Inner {
                calls,
                path,
                device_count,
                version,
                granularities: Mutex::default(),
                unit: OnceLock::new(),
                contexts: Contexts::default(),
                reserved: Reserved::default(),
                quarantine: Mutex::default(),
            }),
        })
    }

    /// The CUDA version the driver supports, as `1000 × major + 10 × minor` (13000 for 13.0).
    #[doc(alias = "cuDriverGetVersion")]
    pub fn version(&self) -> u32 {
        self.inner.version
    }

    /// The library's path, for a driver that was loaded from one.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// How many devices there are.
    #[doc(alias = "cuDeviceGetCount")]
    pub fn device_count(&self) -> u32 {
        self.inner.device_count
    }

    /// The device with this ordinal.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`] names how many there are.
    #[doc(alias = "cuDeviceGet")]
    pub fn device(&self, ordinal: u32) -> Result<Device> {
        self.check_device(ordinal)?;
        Device::get(self, ordinal)
    }

    /// The device with this UUID.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchUuid`], or a driver failure while the devices were asked.
    #[doc(alias = "cuDeviceGetUuid")]
    pub fn device_by_uuid(&self, uuid: [u8; 16]) -> Result<Device> {
        for device in self.devices() {
            let device = device?;
            if device.uuid()? == uuid {
                return Ok(device);
            }
        }
        Err(Error::NoSuchUuid { uuid })
    }

    /// All devices, in the order of their ordinals.
    pub fn devices(&self) -> impl Iterator<Item = Result<Device>> + '_ {
        (0..self.device_count()).map(|ordinal| self.device(ordinal))
    }

    /// Whether virtual memory management made what lies at this address (`cuMemRetainAllocationHandle` knows it).
    ///
    /// An address of ordinary device memory, of the host, or one at which nothing is mapped is not.
    ///
    /// # Errors
    ///
    /// Any failure of the driver but the one that means "no". A count that the look-up took and that could not be given
    /// back is tried once more; if that fails too, [`reclaim`](Driver::reclaim) can try again.
    #[doc(alias = "cuMemRetainAllocationHandle")]
    pub fn is_vmm(&self, address: u64) -> Result<bool> {
        let raw = match self.calls().mem_retain(address) {
            Ok(raw) => raw,
            Err(error) if error.code() == Some(Code::ERROR_INVALID_VALUE) => return Ok(false),
            Err(error) => return Err(error),
        };
        match self.calls().mem_release(raw, 0) {
            Ok(()) => Ok(true),
            Err(error) => {
                let undo = self.give_back(Piece::Handle { raw, size: 0 }).err();
                Err(error.with_undo(undo.into_iter().collect()))
            }
        }
    }

    /// The raw calls, for what this crate does not wrap.
    pub fn calls_raw(&self) -> &Arc<dyn DriverCalls> {
        self.calls().raw()
    }

    /// How many pieces (handles, address ranges) the driver refused to take back and nobody else owns.
    pub fn quarantined(&self) -> usize {
        lock(&self.inner.quarantine).len()
    }

    /// Tries once more to give back what the driver refused to take. Gives the number of pieces that went.
    ///
    /// # Errors
    ///
    /// The first failure, with the further ones attached; what failed again stays quarantined.
    pub fn reclaim(&self) -> Result<usize> {
        let pieces = std::mem::take(&mut *lock(&self.inner.quarantine));
        let asked = pieces.len();
        let mut errors = Vec::new();
        for piece in pieces.into_iter().rev() {
            errors.extend(self.give_back(piece).err());
        }
        match errors.is_empty() {
            true => Ok(asked),
            false => Err(errors.remove(0).with_undo(errors)),
        }
    }

    /// Gives a piece back to the driver, or keeps it in quarantine.
    pub(crate) fn give_back(&self, piece: Piece) -> Result<()> {
        let vacant = match piece {
            // Freeing them would free what somebody else owns.
            Piece::Addresses { base, size } if !self.calls().forked() => {
                let end = base.saturating_add(size as u64);
                self.inner.reserved.check(&(base..end))
            }
            _ => Ok(()),
        };
        vacant
            .and_then(|()| piece.give_back(self.calls()))
            .inspect_err(|_| lock(&self.inner.quarantine).push(piece))
    }

    /// Reserves addresses, aligned as asked and to the unit, that nobody else has.
    pub(crate) fn reserve(
        &self,
        size: usize,
        alignment: usize,
        unit: usize,
        hint: u64,
    ) -> Result<u64> {
        let base = self.calls().address_reserve(size, alignment, hint)?;
        match answers::addresses(base, size, alignment.max(unit))
            .and_then(|range| self.inner.reserved.claim(range))
        {
            Ok(()) => Ok(base),
            Err(error) => {
                let undo = self.give_back(Piece::Addresses { base, size }).err();
                Err(error.with_undo(undo.into_iter().collect()))
            }
        }
    }

    /// Frees addresses that turned out not to be the ones wanted, or keeps them in quarantine.
    pub(crate) fn unreserve(&self, base: u64, size: usize) -> Result<()> {
        self.inner.reserved.forget(base);
        self.give_back(Piece::Addresses { base, size })
    }

    /// Frees the addresses of a reservation.
    pub(crate) fn free(&self, base: u64, size: usize) -> Result<()> {
        let calls = self.calls();
        if calls.forked() {
            return Err(Error::ForkedChild); // A thread of the parent may hold the lock for ever.
        }
        let range = base..base.saturating_add(size as u64);
        self.inner
            .reserved
            .free(range, || calls.address_free(base, size))
    }

    #[inline]
    pub(crate) fn calls(&self) -> &Calls {
        &self.inner.calls
    }

    #[inline]
    pub(crate) fn is_same(&self, other: &Driver) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn check_device(&self, ordinal: u32) -> Result<()> {
        match self.device_count() {
            count if ordinal < count => Ok(()),
            count => Err(Error::NoSuchDevice { ordinal, count }),
        }
    }

    pub(crate) fn check_location(&self, location: Location) -> Result<()> {
        location
            .device()
            .map_or(Ok(()), |ordinal| self.check_device(ordinal))
    }

    /// Granularity of these properties; the driver is asked once for each set of them.
    pub(crate) fn granularity(&self, recipe: &Recipe) -> Result<Granularity> {
        if let Some(known) = lock(&self.inner.granularities).get(recipe) {
            return Ok(*known);
        }
        let granularity = Granularity::ask(self.calls(), recipe)?;
        lock(&self.inner.granularities).insert(*recipe, granularity);
        Ok(granularity)
    }

    /// The smallest granularity of any device's memory: what a reservation's size is a multiple of.
    pub(crate) fn unit(&self) -> Result<usize> {
        if let Some(unit) = self.inner.unit.get() {
            return Ok(*unit);
        }
        let mut unit = None;
        for ordinal in 0..self.device_count() {
            let minimum = self
                .granularity(&Recipe::plain(Location::Device(ordinal)))?
                .minimum();
            unit = Some(unit.map_or(minimum, |least: usize| least.min(minimum)));
        }
        let unit = unit.ok_or(Error::NoSuchDevice {
            ordinal: 0,
            count: 0,
        })?;
        Ok(*self.inner.unit.get_or_init(|| unit))
    }

    pub(crate) fn contexts(&self) -> &Contexts {
        &self.inner.contexts
    }
}

impl Piece {
    fn give_back(self, calls: &Calls) -> Result<()> {
        match self {
            Piece::Handle { raw, size } => calls.mem_release(raw, size),
            Piece::Addresses { base, size } => calls.address_free(base, size),
            Piece::Context { device } => calls.primary_context_release(device),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut pieces = std::mem::take(
            self.quarantine
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        pieces.extend(self.contexts.take());
        for piece in pieces.into_iter().rev() {
            if let Err(error) = piece.give_back(&self.calls) {
                report::leaked(match piece {
                    Piece::Handle { size, .. } => Leak::Memory { size, error },
                    Piece::Addresses { base, size } => Leak::Addresses { base, size, error },
                    Piece::Context { device } => Leak::Context {
                        device: device.unsigned_abs(),
                        error,
                    },
                });
            }
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("path", &self.inner.path)
            .field("version", &self.inner.version)
            .field("device_count", &self.inner.device_count)
            .finish_non_exhaustive()
    }
}

/// Locks a cache. A panic elsewhere while it was held leaves it whole: every section is one insertion or look-up.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
