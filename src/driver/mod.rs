//! The driver: which implementation answers, what is asked of it once, and what it still has to take back.

mod answers;
mod calls;
mod contexts;
mod piece;
mod quarantine;
mod reserved;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError};

#[allow(unused_imports)]
pub(crate) use calls::{Calls, Event, Function, Module, RawHandle, Stream};
pub(crate) use contexts::{leave, Context, Contexts, Entered, Unwinding};
pub(crate) use piece::Piece;

use crate::code::Code;
use crate::error::{Error, Result};
use crate::handle_type::{HandleType, Refusal};
use crate::identity::{Identities, Identity, Known};
use crate::location::Location;
use crate::recipe::{Granularity, Recipe};
use crate::report;
use crate::sync::{lock, Mutex};
use crate::sys::{CUmemAllocationGranularity_flags, DriverCalls, Library};
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
    units: OnceLock<Units>,
    contexts: Contexts,
    reserved: Reserved,
    quarantine: Mutex<Vec<Piece>>,
    identities: Mutex<Identities>,
    handle_types: Mutex<HashMap<([u8; 16], HandleType), Verdict>>,
}

/// What came of trying a kind of handle on a device: nothing stands against it, or a refusal.
pub(crate) type Verdict = Result<(), Refusal>;

/// The granularities of the devices' memory.
#[derive(Clone, Copy)]
pub(crate) struct Units {
    /// The smallest: what a reservation's size is a multiple of.
    pub(crate) least: usize,
    /// The largest: what a reservation's base is a multiple of, so that offsets can be aligned for every device.
    pub(crate) greatest: usize,
}

impl Driver {
    /// Opens the driver's library and initialises it (`cuInit`).
    ///
    /// # Errors
    ///
    /// [`Error::DriverNotFound`] without a driver, [`Error::StubLibrary`] where a toolkit's stub was found in its
    /// place, [`Error::ForkedChild`] where a parent process has loaded it before, else what the library or `cuInit`
    /// answered.
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
                units: OnceLock::new(),
                contexts: Contexts::default(),
                reserved: Reserved::default(),
                quarantine: Mutex::default(),
                identities: Mutex::default(),
                handle_types: Mutex::default(),
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
        self.settle(Piece::Handle { raw, size: 0 }, Ok(true))
    }

    /// The raw calls, for what this crate does not wrap.
    pub fn calls_raw(&self) -> &Arc<dyn DriverCalls> {
        self.calls().raw()
    }

    #[inline]
    pub(crate) fn calls(&self) -> &Calls {
        &self.inner.calls
    }

    #[inline]
    pub(crate) fn is_same(&self, other: &Driver) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether addresses and ordinals of the other mean the same here: it is the same driver, or the same library.
    pub(crate) fn is_alike(&self, other: &Driver) -> bool {
        self.is_same(other) || (self.path().is_some() && self.path() == other.path())
    }

    pub(crate) fn check_device(&self, ordinal: u32) -> Result<()> {
        match self.device_count() {
            count if ordinal < count => Ok(()),
            count => Err(Error::NoSuchDevice { ordinal, count }),
        }
    }

    pub(crate) fn check_location(&self, location: Location) -> Result<()> {
        match location.device() {
            Some(ordinal) => self.check_device(ordinal),
            // One place, one name: rights are kept by it.
            None if !location.is_canonical() => Err(Error::NoSuchPlace { location }),
            None => Ok(()),
        }
    }

    /// Granularity of these properties; the driver is asked once for each set of them.
    pub(crate) fn granularity(&self, recipe: &Recipe) -> Result<Granularity> {
        // A thread of the parent may have held the lock when the process forked.
        if self.calls().forked() {
            return Err(Error::ForkedChild);
        }
        if let Some(known) = lock(&self.inner.granularities).get(recipe) {
            return Ok(*known);
        }
        let granularity = ask_granularity(self.calls(), recipe)?;
        lock(&self.inner.granularities).insert(*recipe, granularity);
        Ok(granularity)
    }

    /// The granularities of the devices' memory; they are asked once.
    pub(crate) fn units(&self) -> Result<Units> {
        if let Some(units) = self.inner.units.get() {
            return Ok(*units);
        }
        let mut units = None;
        for ordinal in 0..self.device_count() {
            let minimum = self
                .granularity(&Recipe::plain(Location::Device(ordinal)))?
                .minimum();
            let so_far = units.unwrap_or(Units {
                least: minimum,
                greatest: minimum,
            });
            units = Some(Units {
                least: so_far.least.min(minimum),
                greatest: so_far.greatest.max(minimum),
            });
        }
        let units = units.ok_or(Error::NoSuchDevice {
            ordinal: 0,
            count: 0,
        })?;
        Ok(*self.inner.units.get_or_init(|| units))
    }

    /// The name of the memory that a handle leads to. The caller holds both from now on.
    pub(crate) fn identity(&self, raw: RawHandle) -> Identity {
        if self.calls().forked() {
            // No memory of the child's has it; asking needs a name all the same, and no lock of the parent's.
            return Identities::default().of(raw);
        }
        lock(&self.inner.identities).of(raw)
    }

    /// What is known of the memory that a handle leads to, if anything is.
    pub(crate) fn known(&self, raw: RawHandle) -> Option<Identity> {
        if self.calls().forked() {
            return None;
        }
        lock(&self.inner.identities).known(raw)
    }

    /// Notes what memory was imported with.
    pub(crate) fn note_identity(&self, raw: RawHandle, known: Known) -> Identity {
        lock(&self.inner.identities).note(raw, known)
    }

    /// What came of trying this kind of handle on the device with this UUID, if it was tried.
    pub(crate) fn verdict(&self, uuid: [u8; 16], handle_type: HandleType) -> Option<Verdict> {
        if self.calls().forked() {
            return None;
        }
        let verdicts = lock(&self.inner.handle_types);
        verdicts.get(&(uuid, handle_type)).copied()
    }

    pub(crate) fn note_verdict(&self, uuid: [u8; 16], handle_type: HandleType, verdict: Verdict) {
        if !self.calls().forked() {
            lock(&self.inner.handle_types).insert((uuid, handle_type), verdict);
        }
    }

    pub(crate) fn forget_verdicts(&self, uuid: [u8; 16]) {
        if !self.calls().forked() {
            lock(&self.inner.handle_types).retain(|(of, _), _| *of != uuid);
        }
    }

    pub(crate) fn contexts(&self) -> &Contexts {
        &self.inner.contexts
    }
}

fn ask_granularity(calls: &Calls, recipe: &Recipe) -> Result<Granularity> {
    use CUmemAllocationGranularity_flags as Flags;
    let ask = |option| {
        let value = calls.mem_granularity(recipe, option)?;
        match value.is_power_of_two() {
            true => Ok(value),
            false => Err(Error::disagreement(
                "a granularity is a power of two".into(),
                format!("says {value} for memory on {}", recipe.location),
            )),
        }
    };
    let minimum = ask(Flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM)?;
    let recommended = ask(Flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)?;
    match minimum <= recommended {
        true => Ok(Granularity::new(minimum, recommended)),
        false => Err(Error::disagreement(
            format!("what is recommended is a multiple of the minimum, {minimum}"),
            format!("recommends {recommended} for memory on {}", recipe.location),
        )),
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Everything is the parent's, and so may be a lock that was held when the process forked.
        if self.calls.forked() {
            return;
        }
        let mut pieces = std::mem::take(
            self.quarantine
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        pieces.extend(self.contexts.take());
        for piece in pieces.into_iter().rev() {
            if let Err((left, errors)) = self.give_back(piece) {
                left.leaked(errors).into_iter().for_each(report::leaked);
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
