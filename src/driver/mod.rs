//! The driver: which implementation answers, what is asked of it once, and what it still has to take back.

mod answers;
mod calls;
mod contexts;
mod piece;
mod reserved;
#[cfg(all(test, not(shuttle), feature = "sim"))]
mod unlocked;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError};

pub(crate) use calls::{Calls, RawHandle, Stream};
pub(crate) use contexts::{leave, Context, Contexts, Entered, Unwinding};
pub(crate) use piece::Piece;

use crate::code::Code;
use crate::error::{Error, Result};
use crate::handle_type::{HandleType, Refusal};
use crate::identity::{AllocationId, Identities, Identity};
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

    /// How many pieces (handles, address ranges) the driver refused to take back and nobody else owns.
    pub fn quarantined(&self) -> usize {
        lock(&self.inner.quarantine).iter().map(Piece::count).sum()
    }

    /// Tries once more to give back what the driver refused to take. Gives the number of pieces that went.
    ///
    /// # Errors
    ///
    /// The first failure, with the further ones attached; what failed again stays quarantined.
    pub fn reclaim(&self) -> Result<usize> {
        let pieces = std::mem::take(&mut *lock(&self.inner.quarantine));
        let asked = pieces.iter().map(Piece::count).sum();
        let mut errors = Vec::new();
        for piece in pieces.into_iter().rev() {
            errors.extend(self.give_back(piece).err());
        }
        match errors.is_empty() {
            true => Ok(asked),
            false => Err(errors.remove(0).with_undo(errors)),
        }
    }

    /// Gives a piece back to the driver, or keeps what it does not take in quarantine.
    pub(crate) fn give_back(&self, piece: Piece) -> Result<()> {
        self.inner.give_back(piece).map_err(|(left, mut errors)| {
            self.keep(left);
            let first = errors.remove(0);
            first.with_undo(errors)
        })
    }

    /// Ends an operation by giving back a piece that it needed: after a failure as a part of undoing it; else a refusal
    /// is the operation's failure, and the piece is tried once more.
    pub(crate) fn settle<T>(&self, piece: Piece, result: Result<T>) -> Result<T> {
        let error = match result {
            Err(error) => error,
            Ok(value) => match self.inner.give_back(piece) {
                Ok(()) => return Ok(value),
                Err((left, mut errors)) => {
                    let first = errors.remove(0).with_undo(errors);
                    let undo = self.give_back(left).err();
                    return Err(first.with_undo(undo.into_iter().collect()));
                }
            },
        };
        Err(error.with_undo(self.give_back(piece).err().into_iter().collect()))
    }

    /// Keeps a piece in quarantine, where [`reclaim`](Driver::reclaim) finds it.
    pub(crate) fn keep(&self, piece: Piece) {
        lock(&self.inner.quarantine).push(piece);
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
        match location.device() {
            Some(ordinal) => self.check_device(ordinal),
            // One place, one name: rights are kept by it.
            None if !location.is_canonical() => Err(Error::NoSuchPlace { location }),
            None => Ok(()),
        }
    }

    /// Granularity of these properties; the driver is asked once for each set of them.
    pub(crate) fn granularity(&self, recipe: &Recipe) -> Result<Granularity> {
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
        lock(&self.inner.identities).of(raw)
    }

    /// Notes the name that memory was imported under.
    pub(crate) fn note_identity(&self, raw: RawHandle, id: AllocationId) -> Identity {
        lock(&self.inner.identities).note(raw, id)
    }

    /// What came of trying this kind of handle on the device with this UUID, if it was tried.
    pub(crate) fn verdict(&self, uuid: [u8; 16], handle_type: HandleType) -> Option<Verdict> {
        let verdicts = lock(&self.inner.handle_types);
        verdicts.get(&(uuid, handle_type)).copied()
    }

    pub(crate) fn note_verdict(&self, uuid: [u8; 16], handle_type: HandleType, verdict: Verdict) {
        lock(&self.inner.handle_types).insert((uuid, handle_type), verdict);
    }

    pub(crate) fn forget_verdicts(&self, uuid: [u8; 16]) {
        lock(&self.inner.handle_types).retain(|(of, _), _| *of != uuid);
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

impl Inner {
    /// Gives a piece back to the driver, or gives what is left of it, with every failure.
    fn give_back(&self, piece: Piece) -> Result<(), (Piece, Vec<Error>)> {
        let ours_to_free = match &piece {
            _ if self.calls.forked() => Err(Error::ForkedChild),
            // A reservation that was leaked, or came later, may lie there.
            Piece::Addresses { base, size } | Piece::Mapped { base, size, .. } => {
                self.reserved.check(*base, *size)
            }
            _ => Ok(()),
        };
        match ours_to_free {
            Ok(()) => piece.give_back(&self.calls),
            Err(error) => Err((piece, vec![error])),
        }
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
