//! What memory to create: where, for which kinds of sharing, with which extras; and its granularity.

use std::fmt;
use std::ops::BitOr;
use std::sync::OnceLock;

use crate::allocation::Allocation;
use crate::device::Device;
use crate::driver::{Calls, Driver};
use crate::error::{Attempt, Error, Result, What};
use crate::location::Location;
use crate::range::{aligned, round_up};
use crate::sys::{
    CUmemAllocationCompType, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType,
};

/// A set of the ways in which an allocation can be shared with other processes (`CUmemAllocationHandleType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HandleTypes(u32);

impl HandleTypes {
    /// Cannot be shared.
    pub const NONE: HandleTypes = HandleTypes(0);
    /// As a POSIX file descriptor, on one machine.
    pub const POSIX_FD: HandleTypes = HandleTypes(1);
    /// As a fabric handle, over NVLink also across machines (CUDA 12.3 and newer; needs an IMEX channel).
    pub const FABRIC: HandleTypes = HandleTypes(8);

    /// Whether all of `other` is in this set.
    pub const fn contains(self, other: HandleTypes) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set as `cuda.h` has it.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for HandleTypes {
    type Output = HandleTypes;

    fn bitor(self, other: HandleTypes) -> HandleTypes {
        HandleTypes(self.0 | other.0)
    }
}

impl fmt::Display for HandleTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [
            (HandleTypes::POSIX_FD, "POSIX fd"),
            (HandleTypes::FABRIC, "FABRIC handle"),
        ];
        let mut names: Vec<String> = known
            .iter()
            .filter(|(one, _)| self.contains(*one))
            .map(|(_, name)| name.to_string())
            .collect();
        match self.0 & !9 {
            0 => {}
            rest => names.push(format!("type bits {rest:#x}")),
        }
        f.write_str(&if names.is_empty() {
            "nothing".into()
        } else {
            names.join(" or ")
        })
    }
}

/// The properties alone: what is hashed, compared and sent to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    pub(crate) location: Location,
    pub(crate) handle_types: HandleTypes,
    pub(crate) rdma: bool,
    pub(crate) compression: bool,
}

impl Recipe {
    pub(crate) fn plain(location: Location) -> Self {
        Recipe {
            location,
            handle_types: HandleTypes::NONE,
            rdma: false,
            compression: false,
        }
    }

    pub(crate) fn to_raw(self) -> CUmemAllocationProp {
        let mut raw = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType(self.handle_types.0),
            location: self.location.to_raw(),
            ..Default::default()
        };
        raw.allocFlags.gpuDirectRDMACapable = self.rdma.into();
        raw.allocFlags.compressionType = match self.compression {
            true => CUmemAllocationCompType::CU_MEM_ALLOCATION_COMP_GENERIC.0 as u8,
            false => CUmemAllocationCompType::CU_MEM_ALLOCATION_COMP_NONE.0 as u8,
        };
        raw
    }

    pub(crate) fn from_raw(raw: &CUmemAllocationProp) -> Self {
        Recipe {
            location: Location::from_raw(raw.location),
            handle_types: HandleTypes(raw.requestedHandleTypes.0),
            rdma: raw.allocFlags.gpuDirectRDMACapable != 0,
            compression: raw.allocFlags.compressionType != 0,
        }
    }

    pub(crate) fn attempt(&self, size: usize) -> Attempt {
        let Recipe {
            location,
            handle_types,
            rdma,
            compression,
        } = *self;
        Attempt::Create {
            size,
            location,
            handle_types,
            rdma,
            compression,
        }
    }
}

/// The multiples in which memory of some properties is created, mapped and granted, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granularity {
    minimum: usize,
    recommended: usize,
}

impl Granularity {
    pub(crate) fn ask(calls: &Calls, recipe: &Recipe) -> Result<Granularity> {
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
            true => Ok(Granularity {
                minimum,
                recommended,
            }),
            false => Err(Error::disagreement(
                format!(
                    "what is recommended for memory on {} is a multiple of the minimum, {minimum}",
                    recipe.location
                ),
                format!("recommends {recommended}"),
            )),
        }
    }

    /// Sizes and offsets must be multiples of this.
    pub fn minimum(self) -> usize {
        self.minimum
    }

    /// Multiples of this perform best.
    pub fn recommended(self) -> usize {
        self.recommended
    }

    /// The size rounded up to a multiple of the recommended granularity, or `None` if that does not fit in a `usize`.
    pub fn round_up(self, size: usize) -> Option<usize> {
        round_up(size, self.recommended)
    }
}

/// Properties of physical memory to be created (`CUmemAllocationProp`): pinned memory, somewhere.
///
/// ```
/// # use cuda_vmm::{sim::Simulation, AllocationProps, Driver, HandleTypes};
/// # let driver = Driver::simulated(&Simulation::new())?;
/// let device = driver.device(0)?;
/// let props = AllocationProps::on(&device).shareable_as(HandleTypes::POSIX_FD);
/// let size = props.granularity()?.round_up(6912).unwrap();
/// let page = props.create(size)?;
/// assert_eq!(page.size(), size);
/// # Ok::<_, cuda_vmm::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct AllocationProps {
    driver: Driver,
    recipe: Recipe,
    granularity: OnceLock<Granularity>,
}

impl AllocationProps {
    /// Memory of this device.
    pub fn on(device: &Device) -> Self {
        Self::at(device.driver(), Location::from(device))
    }

    /// Memory of the host, no particular node (CUDA 12.2 and newer; cannot be shared as a POSIX fd).
    pub fn on_host(driver: &Driver) -> Self {
        Self::at(driver, Location::Host)
    }

    /// Memory of this NUMA node of the host (CUDA 12.2 and newer).
    pub fn on_host_numa(driver: &Driver, node: u32) -> Self {
        Self::at(driver, Location::HostNuma(node))
    }

    fn at(driver: &Driver, location: Location) -> Self {
        Self::of(driver, Recipe::plain(location))
    }

    pub(crate) fn of(driver: &Driver, recipe: Recipe) -> Self {
        AllocationProps {
            driver: driver.clone(),
            recipe,
            granularity: OnceLock::new(),
        }
    }

    fn with(self, change: impl FnOnce(&mut Recipe)) -> Self {
        let mut recipe = self.recipe;
        change(&mut recipe);
        Self::of(&self.driver, recipe)
    }

    /// The kinds of sharing to be prepared for. What is not asked for here cannot be exported later.
    #[must_use]
    pub fn shareable_as(self, handle_types: HandleTypes) -> Self {
        self.with(|recipe| recipe.handle_types = handle_types)
    }

    /// Ask for memory that GPUDirect RDMA can reach. A request: [`Allocation::granted`] tells what came of it.
    #[must_use]
    pub fn rdma(self, rdma: bool) -> Self {
        self.with(|recipe| recipe.rdma = rdma)
    }

    /// Ask for compressible memory. A request: [`Allocation::granted`] tells what came of it.
    #[must_use]
    pub fn compression(self, compression: bool) -> Self {
        self.with(|recipe| recipe.compression = compression)
    }

    /// Where the memory lies.
    pub fn location(&self) -> Location {
        self.recipe.location
    }

    /// The kinds of sharing asked for.
    pub fn handle_types(&self) -> HandleTypes {
        self.recipe.handle_types
    }

    /// Whether RDMA is asked for (or, of an allocation, granted).
    pub fn is_rdma(&self) -> bool {
        self.recipe.rdma
    }

    /// Whether compression is asked for (or, of an allocation, granted).
    pub fn is_compressible(&self) -> bool {
        self.recipe.compression
    }

    /// The granularity of memory with these properties. The driver is asked once.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`] (the driver's own query would answer for any device at all), or a driver failure.
    #[doc(alias = "cuMemGetAllocationGranularity")]
    pub fn granularity(&self) -> Result<Granularity> {
        if let Some(known) = self.granularity.get() {
            return Ok(*known);
        }
        self.driver.check_location(self.recipe.location)?;
        let granularity = self.driver.granularity(&self.recipe)?;
        Ok(*self.granularity.get_or_init(|| granularity))
    }

    /// Creates physical memory of this many bytes, mapped nowhere. New memory reads as zero.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::Misaligned`] (a multiple of [`Granularity::minimum`] is needed), [`Error::OutOfMemory`], or
    /// another driver failure, such as NOT_PERMITTED for a FABRIC handle without an IMEX channel.
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

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    pub(crate) fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}
