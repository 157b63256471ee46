//! How a simulation is configured, and what is refused.

use std::collections::BTreeSet;

use crate::bytes::Bytes;
use crate::sys::{CUresult, Call};

use super::device::SimDevice;
use super::{LogMode, Simulation};

/// The smallest page of the host, below which no granularity can go.
const PAGE: usize = 4096;

/// The largest granularity: far beyond any page there is, and far from where sums of sizes overflow.
const LARGEST_GRANULE: usize = 1 << 40;

/// More bytes than any address has bits for.
const MOST: u64 = 1 << 57;

/// As many devices as one driver shows at most.
const MOST_DEVICES: usize = 64;

/// As many NUMA nodes as Linux can be built for.
const MOST_NODES: u32 = 1024;

/// A simulated driver in the making.
///
/// ```
/// use cuda_vmm::sim::{SimDevice, Simulation};
///
/// // Two small devices that cannot reach each other.
/// let sim = Simulation::builder()
///     .device(SimDevice::new().memory(1 << 30))
///     .device(SimDevice::new().memory(1 << 30))
///     .no_peer(0, 1)
///     .build()?;
/// # Ok::<(), cuda_vmm::sim::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct SimulationBuilder {
    pub(super) devices: Vec<SimDevice>,
    pub(super) address_space: u64,
    pub(super) ledger_only: bool,
    pub(super) driver_version: u32,
    pub(super) missing: BTreeSet<Call>,
    pub(super) imex_channel: bool,
    pub(super) host_numa_nodes: u32,
    pub(super) host_memory: u64,
    pub(super) no_peers: BTreeSet<(usize, usize)>,
    pub(super) log: LogMode,
    default_device: bool,
}

impl Default for SimulationBuilder {
    fn default() -> Self {
        SimulationBuilder {
            devices: vec![SimDevice::new()],
            // 2^46 bytes can be reserved on the driver that was measured, 2^47 cannot.
            address_space: 3 << 45,
            ledger_only: false,
            driver_version: 13_000,
            missing: BTreeSet::new(),
            imex_channel: false,
            host_numa_nodes: 1,
            host_memory: 512 << 30,
            no_peers: BTreeSet::new(),
            log: LogMode::default(),
            default_device: true,
        }
    }
}

impl SimulationBuilder {
    /// Adds a device, with the next ordinal. The first one takes the place of the default H200.
    pub fn device(mut self, device: SimDevice) -> Self {
        if std::mem::take(&mut self.default_device) {
            self.devices.clear();
        }
        self.devices.push(device);
        self
    }

    /// These devices and no others, at most 64, with the ordinals from 0 in their order.
    pub fn devices(mut self, devices: impl IntoIterator<Item = SimDevice>) -> Self {
        self.default_device = false;
        self.devices = devices.into_iter().collect();
        self
    }

    /// How many bytes of addresses can be reserved at one time.
    pub fn address_space(mut self, bytes: u64) -> Self {
        self.address_space = bytes;
        self
    }

    /// Keeps books only: addresses are numbers, no memory is mapped, no file descriptor opened, no libc call made.
    ///
    /// Copies move bytes as ever; what cannot be had is a file descriptor to export, and the CPU's own access to mapped
    /// memory. Meant for Miri, and for more mappings than the kernel allows a process.
    pub fn ledger_only(mut self) -> Self {
        self.ledger_only = true;
        self
    }

    /// What `cuDriverGetVersion` answers: 1000 × major + 10 × minor.
    pub fn driver_version(mut self, version: u32) -> Self {
        self.driver_version = version;
        self
    }

    /// Leaves out a call, as an older driver does. `cuInit` cannot be left out.
    pub fn without(mut self, call: Call) -> Self {
        self.missing.insert(call);
        self
    }

    /// Whether there is an IMEX channel. Without one, memory with a fabric handle is `NOT_PERMITTED`.
    pub fn imex_channel(mut self, present: bool) -> Self {
        self.imex_channel = present;
        self
    }

    /// How many NUMA nodes the host has, at most 1024.
    pub fn host_numa_nodes(mut self, nodes: u32) -> Self {
        self.host_numa_nodes = nodes;
        self
    }

    /// How much memory can be created on the host, all nodes together.
    pub fn host_memory(mut self, bytes: u64) -> Self {
        self.host_memory = bytes;
        self
    }

    /// Two devices that cannot reach each other's memory. Without this all can.
    pub fn no_peer(mut self, a: usize, b: usize) -> Self {
        self.no_peers.insert((a.min(b), a.max(b)));
        self
    }

    /// How many calls are kept in the log.
    pub fn log(mut self, mode: LogMode) -> Self {
        self.log = mode;
        self
    }

    /// The simulated driver.
    ///
    /// # Errors
    ///
    /// A configuration that no machine could have, or that would leave nothing to do, is refused with the reason.
    pub fn build(self) -> Result<Simulation, ConfigError> {
        let config = self.numbered();
        config.check()?;
        Ok(Simulation::from_config(config))
    }

    /// Gives the devices without a UUID one that follows from the ordinal.
    pub(super) fn numbered(mut self) -> Self {
        for (ordinal, device) in self.devices.iter_mut().enumerate() {
            device.uuid.get_or_insert_with(|| {
                let mut uuid = *b"cuda-vmm sim\0\0\0\0";
                uuid[12..].copy_from_slice(&(ordinal as u32).to_be_bytes());
                uuid
            });
        }
        self
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.devices.is_empty() {
            return Err(ConfigError::NoDevices);
        }
        if self.devices.len() > MOST_DEVICES {
            return Err(ConfigError::TooManyDevices(self.devices.len()));
        }
        if self.host_numa_nodes > MOST_NODES {
            return Err(ConfigError::NumaNodes(self.host_numa_nodes));
        }
        if self.missing.contains(&Call::cuInit) {
            return Err(ConfigError::Without(Call::cuInit));
        }
        for (ordinal, device) in self.devices.iter().enumerate() {
            check_device(ordinal, device)?;
            let earlier = &self.devices[..ordinal];
            if let Some(twin) = earlier.iter().position(|other| other.uuid == device.uuid) {
                return Err(ConfigError::DuplicateUuid {
                    first: twin,
                    second: ordinal,
                });
            }
        }
        let memory = self
            .devices
            .iter()
            .map(|device| ("device memory", device.memory));
        let others = [
            ("host memory", self.host_memory),
            ("an address space", self.address_space),
        ];
        if let Some((what, bytes)) = memory.chain(others).find(|(_, bytes)| *bytes > MOST) {
            return Err(ConfigError::TooMuch { what, bytes });
        }
        let granule = self.granule();
        if self.address_space < granule as u64 {
            return Err(ConfigError::AddressSpace {
                bytes: self.address_space,
                granule,
            });
        }
        // The first release was 1.0, and no minor version ever had a third digit.
        let possible = 1_000..=i32::MAX as u32;
        if !possible.contains(&self.driver_version) || self.driver_version % 10 != 0 {
            return Err(ConfigError::DriverVersion(self.driver_version));
        }
        for &(a, b) in &self.no_peers {
            if a == b {
                return Err(ConfigError::PeerOfItself(a));
            }
            if b >= self.devices.len() {
                return Err(ConfigError::NoSuchPeer {
                    a,
                    b,
                    devices: self.devices.len(),
                });
            }
        }
        Ok(())
    }

    /// What a reservation's size must be a multiple of.
    pub(super) fn granule(&self) -> usize {
        self.devices
            .iter()
            .map(|device| device.minimum)
            .min()
            .unwrap_or(super::device::GRANULE)
    }

    pub(super) fn peers(&self, a: usize, b: usize) -> bool {
        a != b && !self.no_peers.contains(&(a.min(b), a.max(b)))
    }
}

fn check_device(ordinal: usize, device: &SimDevice) -> Result<(), ConfigError> {
    let SimDevice {
        minimum,
        recommended,
        ..
    } = *device;
    for bytes in [minimum, recommended] {
        if !bytes.is_power_of_two() || !(PAGE..=LARGEST_GRANULE).contains(&bytes) {
            return Err(ConfigError::Granularity { ordinal, bytes });
        }
    }
    if recommended < minimum {
        return Err(ConfigError::Recommended {
            ordinal,
            minimum,
            recommended,
        });
    }
    // Of the memory that there is the last byte cannot be had, on a real device as here.
    if device.memory <= minimum as u64 {
        return Err(ConfigError::Memory {
            ordinal,
            bytes: device.memory,
            granule: minimum,
        });
    }
    if device.name.contains('\0') {
        return Err(ConfigError::Name { ordinal });
    }
    if device
        .refusals()
        .any(|(types, code)| types == 0 || code == CUresult::CUDA_SUCCESS)
    {
        return Err(ConfigError::Refusal { ordinal });
    }
    Ok(())
}

/// Why a simulation was not built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No device at all.
    #[error("a driver without devices has nothing to simulate: add one with device()")]
    NoDevices,
    /// More devices than a driver shows.
    #[error("{0} devices: a driver has at most {MOST_DEVICES}")]
    TooManyDevices(usize),
    /// More NUMA nodes than a host has.
    #[error("{0} NUMA nodes: a host has at most {MOST_NODES}")]
    NumaNodes(u32),
    /// A driver that could not be used at all.
    #[error("without({0}): no driver lacks it, and nothing could be called")]
    Without(Call),
    /// A granularity that no page table has.
    #[error(
        "device {ordinal}: a granularity of {} is not a power of two from {} to {}",
        Bytes(*bytes),
        Bytes(PAGE),
        Bytes(LARGEST_GRANULE)
    )]
    Granularity {
        /// The device.
        ordinal: usize,
        /// What was asked for.
        bytes: usize,
    },
    /// A recommendation that would be refused.
    #[error("device {ordinal}: the recommended granularity, {}, is below the minimum, {}: give them in the order (minimum, recommended)", Bytes(*recommended), Bytes(*minimum))]
    Recommended {
        /// The device.
        ordinal: usize,
        /// The minimum granularity.
        minimum: usize,
        /// The recommended granularity.
        recommended: usize,
    },
    /// Memory of which not even one allocation could be made: all that there is cannot be had.
    #[error("device {ordinal}: of {} of memory nothing could be created: give it more than one granule, which is {}", Bytes(*bytes as usize), Bytes(*granule))]
    Memory {
        /// The device.
        ordinal: usize,
        /// Its memory.
        bytes: u64,
        /// Its minimum granularity.
        granule: usize,
    },
    /// An address space that holds not even one reservation.
    #[error("an address space of {} is below one granule, which is {}: nothing could be reserved", Bytes(*bytes as usize), Bytes(*granule))]
    AddressSpace {
        /// The address space.
        bytes: u64,
        /// The smallest granularity of the devices.
        granule: usize,
    },
    /// More than there can be addresses for.
    #[error("{what} of {}: nothing has more than {}", Bytes(*bytes as usize), Bytes(MOST as usize))]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much of it.
        bytes: u64,
    },
    /// Devices that imports could not tell apart.
    #[error("devices {first} and {second} have the same UUID: an imported allocation could not be placed")]
    DuplicateUuid {
        /// The device that had it first.
        first: usize,
        /// The device that has it again.
        second: usize,
    },
    /// A peer that does not exist.
    #[error("no_peer({a}, {b}): there is no device {b}, ordinals run from 0 to {}", devices - 1)]
    NoSuchPeer {
        /// The lower ordinal.
        a: usize,
        /// The higher ordinal.
        b: usize,
        /// How many devices there are.
        devices: usize,
    },
    /// A device always reaches itself.
    #[error("no_peer({0}, {0}): a device always reaches its own memory")]
    PeerOfItself(usize),
    /// A version `cuDriverGetVersion` could not give.
    #[error("driver version {0}: give 1000 x major + 10 x minor, as in 13000")]
    DriverVersion(u32),
    /// A name that C could not read.
    #[error("device {ordinal}: the name contains a zero byte, at which every C string ends")]
    Name {
        /// The device.
        ordinal: usize,
    },
    /// A refusal that refuses nothing.
    #[error("device {ordinal}: a refusal must name at least one handle type and a code other than CUDA_SUCCESS")]
    Refusal {
        /// The device.
        ordinal: usize,
    },
}
