//! A snapshot of everything a driver knows, to be compared.

use std::fmt;

use super::place::{Place, Rights};

/// All driver-visible state at one moment.
///
/// Not in it are the contents of memory, what streams have yet to do, and whether a context is broken. But for
/// those, two snapshots are equal exactly when no call could tell the moments apart, so an operation that fails must
/// leave the snapshot that it found. The [`Display`](fmt::Display) form has one fact a line, in a fixed order, for a
/// readable difference.
///
/// ```
/// # use cuda_vmm::sim::Simulation;
/// let sim = Simulation::new();
/// let before = sim.snapshot();
/// // ... an operation that is made to fail ...
/// assert_eq!(sim.snapshot(), before, "{}", sim.snapshot());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Reserved addresses, by address.
    pub reservations: Vec<ReservationState>,
    /// Mappings, by address.
    pub mappings: Vec<MappingState>,
    /// Handles with a count or a mapping left, in the order they were given out.
    pub handles: Vec<HandleState>,
    /// Memory that an exported file descriptor, or another simulation that imported it, keeps.
    pub exports: Vec<ExportState>,
    /// Ordinary allocations, by address.
    pub ordinary: Vec<OrdinaryState>,
    /// Registered memory of the host, by address.
    pub registered: Vec<RegisteredState>,
    /// Free bytes of each device.
    pub free_on_devices: Vec<u64>,
    /// Free bytes of the host.
    pub free_on_host: u64,
    /// How often each device's primary context is retained.
    pub retained_contexts: Vec<u32>,
    /// How many contexts are on the stack of the thread that took the snapshot.
    pub context_depth: usize,
    /// How many streams were created and not destroyed.
    pub streams: usize,
    /// How many events were created and not destroyed.
    pub events: usize,
    /// How many modules were loaded and not unloaded.
    pub modules: usize,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservationState {
    /// Its base.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappingState {
    /// Where it begins.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The handle that was mapped.
    pub handle: u64,
    /// Who has access; who is not named has none.
    pub rights: Vec<(Place, Rights)>,
}

/// A handle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandleState {
    /// Its value, which is never given out again.
    pub handle: u64,
    /// The memory it leads to: the same number for two handles that lead to the same memory.
    pub memory: u64,
    /// The memory's size in bytes.
    pub size: u64,
    /// Where the memory lies.
    pub place: Place,
    /// How often it must still be released.
    pub count: u32,
    /// How often it is mapped.
    pub mapped: u32,
    /// The handle types that were requested, as the driver gives them.
    pub requested_types: u32,
    /// Whether it was imported rather than created.
    pub imported: bool,
}

/// Memory that somebody holds by a file descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportState {
    /// The memory, as in [`HandleState::memory`].
    pub memory: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where it lies.
    pub place: Place,
}

/// An allocation of `cuMemAlloc`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrdinaryState {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its device.
    pub device: usize,
}

/// Memory of the host that is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredState {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

impl Snapshot {
    /// Whether nothing is left: no address, no memory, no context, no stream, no event, no module.
    pub fn is_empty(&self) -> bool {
        self.holds_no_memory()
            && self.retained_contexts.iter().all(|count| *count == 0)
            && self.context_depth == 0
            && self.streams == 0
            && self.events == 0
            && self.modules == 0
    }

    /// Whether no address and no memory is left, whatever becomes of contexts, streams, events and
    /// modules.
    ///
    /// A member that sleeps still has its addresses: whether its memory is gone, the handles tell. A driver retains a
    /// device's context from its first use to its end, so that a snapshot from before differs from one after.
    pub fn holds_no_memory(&self) -> bool {
        self.reservations.is_empty()
            && self.mappings.is_empty()
            && self.handles.is_empty()
            && self.exports.is_empty()
            && self.ordinary.is_empty()
            && self.registered.is_empty()
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for state in &self.reservations {
            writeln!(f, "reserved {:#x} {}", state.address, Bytes(state.size))?;
        }
        for state in &self.mappings {
            let (address, size, handle) = (state.address, Bytes(state.size), state.handle);
            write!(f, "mapped {address:#x} {size} handle {handle:#x}")?;
            for (place, rights) in &state.rights {
                write!(f, ", {place}: {rights}")?;
            }
            writeln!(f)?;
        }
        for state in &self.handles {
            let origin = if state.imported {
                "imported"
            } else {
                "created"
            };
            writeln!(
                f,
                "handle {:#x} {origin}, memory {} ({} on {}, types {}), count {}, mapped {}",
                state.handle,
                state.memory,
                Bytes(state.size),
                state.place,
                state.requested_types,
                state.count,
                state.mapped
            )?;
        }
        for state in &self.exports {
            let (memory, size, place) = (state.memory, Bytes(state.size), state.place);
            writeln!(f, "exported memory {memory} ({size} on {place})")?;
        }
        for state in &self.ordinary {
            let (address, size, device) = (state.address, Bytes(state.size), state.device);
            writeln!(f, "allocated {address:#x} {size} on device {device}")?;
        }
        for state in &self.registered {
            let (address, size) = (state.address, Bytes(state.size));
            writeln!(f, "registered {address:#x} {size}")?;
        }
        for (device, free) in self.free_on_devices.iter().enumerate() {
            writeln!(f, "free on device {device}: {}", Bytes(*free))?;
        }
        writeln!(f, "free on host: {}", Bytes(self.free_on_host))?;
        for (device, count) in self.retained_contexts.iter().enumerate() {
            writeln!(f, "context of device {device} retained {count}")?;
        }
        writeln!(f, "current contexts of this thread: {}", self.context_depth)?;
        let (streams, events, modules) = (self.streams, self.events, self.modules);
        write!(f, "streams {streams}, events {events}, modules {modules}")
    }
}

/// A size in the largest unit that divides it.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = UNITS
            .iter()
            .find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        match unit {
            Some((shift, name)) => write!(f, "{} {name}", self.0 >> shift),
            None => write!(f, "{} B", self.0),
        }
    }
}
