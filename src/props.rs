//! What memory to create: where, for which kinds of sharing, with which extras.

use std::sync::OnceLock;

use crate::device::Device;
use crate::driver::Driver;
use crate::error::Result;
use crate::location::Location;
use crate::recipe::{Granularity, HandleTypes, Recipe};

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

    /// Memory of this NUMA node of the host (CUDA 12.2 and newer). The -1 that the driver has for "no node" is none:
    ///
    /// ```compile_fail,E0600
    /// # use cuda_vmm::{AllocationProps, Driver};
    /// fn nowhere(driver: &Driver) -> AllocationProps {
    ///     AllocationProps::on_host_numa(driver, -1_u32)
    /// }
    /// ```
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

    /// Ask for memory that GPUDirect RDMA can reach. A request: [`Allocation::granted`](crate::Allocation::granted)
    /// tells what came of it.
    #[must_use]
    pub fn rdma(self, rdma: bool) -> Self {
        self.with(|recipe| recipe.rdma = rdma)
    }

    /// Ask for compressible memory. A request: [`Allocation::granted`](crate::Allocation::granted) tells what came of
    /// it.
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
    /// [`Error::NoSuchDevice`](crate::Error::NoSuchDevice), [`Error::NoSuchPlace`](crate::Error::NoSuchPlace) (the
    /// driver's own query would answer for any device at all), or a driver failure.
    #[doc(alias = "cuMemGetAllocationGranularity")]
    pub fn granularity(&self) -> Result<Granularity> {
        if let Some(known) = self.granularity.get() {
            return Ok(*known);
        }
        self.driver.check_location(self.recipe.location)?;
        let granularity = self.driver.granularity(&self.recipe)?;
        Ok(*self.granularity.get_or_init(|| granularity))
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    pub(crate) fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}
