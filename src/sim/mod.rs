//! A simulated CUDA driver with real memory, for machines without a GPU.
//!
//! [`Simulation`] implements [`DriverCalls`], so it stands wherever the driver library stands. An allocation is a
//! memfd, a reservation is an address range of the process, a mapping is the one mapped into the other, an exported
//! handle is a file descriptor that another process can import. What a real driver was measured to answer and to do
//! (driver 580.159 on an H200) it answers and does, the surprises included: a mapping may run over the end of its
//! reservation, unmapping nothing succeeds, and of a range with a hole only what lies before the hole is granted.
//!
//! Around it stands an [`Interposer`], which can make any call fail and records every one; it can wrap a real driver as
//! well. [`Simulation::snapshot`] gives all the driver knows as one value that compares, and [`Simulation::misuses`]
//! what it must never be handed: handles that a real driver follows as pointers, and counts that were given back before.
//!
//! ```
//! use cuda_vmm::sim::{Fault, Simulation};
//! use cuda_vmm::sys::{Call, CUresult, DriverCalls};
//!
//! let sim = Simulation::new();
//! // SAFETY: the calls take no pointer but `address`, which lives long enough.
//! unsafe {
//!     assert_eq!(sim.cuInit(0), CUresult::CUDA_SUCCESS);
//!     sim.inject(Fault::on(Call::cuMemAddressReserve).code(CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
//!     let mut address = 0;
//!     let refused = sim.cuMemAddressReserve(&mut address, 2 << 20, 0, 0, 0);
//!     assert_eq!(refused, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
//! }
//! assert!(sim.snapshot().is_empty());
//! # Ok::<(), cuda_vmm::sim::FaultError>(())
//! ```
//!
//! # Where it differs from a real driver
//!
//! | here | there |
//! |---|---|
//! | time is not simulated: work is done when it is enqueued, unless its stream is [held](Simulation::hold_stream) | work takes as long as it takes |
//! | a held stream holds back nothing but itself and what waits for its events, and a synchronous copy waits for no stream | the default stream orders the others |
//! | a function of the host is called by the thread that brings the stream to it, before that thread's call returns | by a thread of the driver's |
//! | every driver call that a function of the host makes is `NOT_PERMITTED` | documented, but not guaranteed |
//! | a stream that waits for an event of a context that is lost goes on, if its own context is not | not measured |
//! | words, rows and device pointers are refused as documented; of words also those to addresses that the device may not write | not measured |
//! | of kernels only the one that `pool` copies with is known, by the name of its entry; any other image is `JIT_COMPILER_NOT_FOUND`, and a launch with `extra` is `NOT_SUPPORTED` | the compiler and the device run any |
//! | a launch copies piece by piece, and loses its context at the first address that the device may not reach | in no order |
//! | what was launched runs on when its module is unloaded | not measured |
//! | an exportable allocation uses a file descriptor, and so does an import from another process: when the process has no more, a create is `OUT_OF_MEMORY` | neither does |
//! | an exported descriptor reads `/memfd:cuda-vmm-sim:...` in `/proc/self/fd` | `/dev/nvidiactl` |
//! | a dma-buf descriptor is the memory's own, and imports like an exported one | it is a dma-buf |
//! | under valgrind or a resource limit fewer than 2^46 bytes can be reserved; thread sanitizer ends a process that reserves them or passes a far hint | no such tools |
//! | a process has at most `vm.max_map_count` (65,530) mappings; more are `OUT_OF_MEMORY` unless [ledger-only](SimulationBuilder::ledger_only) | no such limit |
//! | the CPU can touch device memory through a granted mapping, with the strongest right of any place | only host memory that the host was granted |
//! | a mapping over the end of a reservation is refused where something else of the process lies | it succeeds |
//! | a made-up or stale handle is `INVALID_HANDLE`, and a [`Misuse`] | the process dies, or worse |
//! | a copy or a fill from one mapping into the next where the host has rights, or a write where it may only read, is `INVALID_VALUE`, and a [`Misuse`] | the process dies |
//! | memory imported from another simulation is on its account, and counts nothing here | the device is one |
//! | a fabric handle reaches the processes of this machine | it reaches the nodes of the fabric |
//! | a reset or release to zero of the primary context cures a sticky error | it may not |
//! | a device's name is refused a room of 0 bytes or less | it is taken for a boundless room, and written outside it |
//! | of several descriptors, each mapping gets all before the next mapping gets any; which counts when one is `NOT_SUPPORTED` | each order alone was measured to end the call and to keep what was granted, not both together |
//! | an alignment of 2^46 bytes and more is `OUT_OF_MEMORY` | so measured at 2^46 and 2^47; between 2^36 and 2^46 not measured |
//! | registering host memory that overlaps registered memory is `HOST_MEMORY_ALREADY_REGISTERED`, unregistering what is not registered `HOST_MEMORY_NOT_REGISTERED`; registrations go with their context | as documented; not measured |
//! | granting a device access to memory of a device that is not its peer is `INVALID_DEVICE` | not measured, but reported (pytorch/pytorch#174030) |
//!
//! # Safety
//!
//! The calls are handed on to the interposer as they came.
#![allow(unsafe_code)]

mod builder;
mod core;
mod device;
mod fault;
mod interposer;
mod log;
mod misuse;
mod place;
mod snapshot;

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::sync::Arc;

use crate::sys::{
    for_each_call, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUhostFn, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemRangeHandleType,
    CUmodule, CUpointer_attribute, CUresult, CUstream, CUuuid, Call, DriverCalls, CUDA_MEMCPY2D,
};

pub use builder::{ConfigError, SimulationBuilder};
pub use device::SimDevice;
pub use fault::{Fault, FaultError};
pub use interposer::Interposer;
pub use log::{Arg, CallRecord, LogMode, Value};
pub use misuse::{Misuse, MisuseKind};
pub use place::{Place, Rights};
pub use snapshot::{
    ExportState, HandleState, MappingState, OrdinaryState, RegisteredState, ReservationState,
    Snapshot,
};

use self::core::Core;

/// A simulated driver. Clones are the same driver.
#[derive(Clone)]
pub struct Simulation {
    interposer: Arc<Interposer>,
    core: Arc<Core>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulation {
    /// A driver with one H200, one NUMA node on the host, and no IMEX channel.
    pub fn new() -> Self {
        Self::from_config(SimulationBuilder::default().numbered())
    }

    /// A driver made to measure.
    pub fn builder() -> SimulationBuilder {
        SimulationBuilder::default()
    }

    fn from_config(config: SimulationBuilder) -> Self {
        let mode = config.log;
        let core = Arc::new(Core::new(config));
        let inner: Arc<dyn DriverCalls> = Arc::clone(&core) as _;
        Simulation {
            interposer: Arc::new(Interposer::unwatched(inner, mode)),
            core,
        }
    }

    /// Makes calls fail, from now on.
    ///
    /// # Errors
    ///
    /// A fault that could never strike is refused, with the reason.
    pub fn inject(&self, fault: Fault) -> Result<(), FaultError> {
        self.interposer.inject(fault)
    }

    /// Forgets every fault that has yet to strike.
    pub fn clear_faults(&self) {
        self.interposer.clear_faults();
    }

    /// The faults that have yet to strike, oldest first.
    pub fn pending_faults(&self) -> Vec<Fault> {
        self.interposer.pending_faults()
    }

    /// The recorded calls, oldest first.
    pub fn log(&self) -> Vec<CallRecord> {
        self.interposer.log()
    }

    /// Forgets the recorded calls. The counters go on.
    pub fn clear_log(&self) {
        self.interposer.clear_log();
    }

    /// How often the call was made, failed or not, recorded or not.
    pub fn calls_of(&self, call: Call) -> u64 {
        self.interposer.calls_of(call)
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.interposer.calls()
    }

    /// All driver-visible state.
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// The calls that were handed what they must never be handed, oldest first: what a real driver dies of, or refuses
    /// only as long as the handle is no other allocation's.
    pub fn misuses(&self) -> Vec<Misuse> {
        self.core.misuses()
    }

    /// Forgets the misuses.
    pub fn clear_misuses(&self) {
        self.core.clear_misuses();
    }

    /// Breaks the device's primary context, as a fault of a kernel does: everything that needs the context answers
    /// `ILLEGAL_ADDRESS` from now on, and what manages memory goes on. `false` if there is no such device.
    #[must_use = "where it is `false`, nothing is broken"]
    pub fn poison(&self, device: usize) -> bool {
        self.core.poison(device)
    }

    /// Ends the driver, as the end of the process does: every call answers `DEINITIALIZED` from now on.
    pub fn deinitialize(&self) {
        self.core.deinitialize();
    }

    /// Holds a stream: what is enqueued on it stays pending, and so does what other streams do behind a wait for its events.
    /// Null is the default stream of the current context. `false` if there is no such stream.
    ///
    /// Memory that pending work touches can be unmapped, at once; the work then fails and its context is lost.
    #[must_use = "where it is `false`, nothing is held"]
    pub fn hold_stream(&self, stream: CUstream) -> bool {
        self.core.hold_stream(stream)
    }

    /// Lets a held stream run: its pending work is done when this returns, and that of streams that waited for it, unless
    /// they are held or wait for something else. Functions of the host are called by the calling thread. `false` if there is
    /// no such stream.
    #[must_use = "where it is `false`, nothing was released"]
    pub fn release_stream(&self, stream: CUstream) -> bool {
        self.core.release_stream(stream)
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("calls", &self.calls())
            .finish_non_exhaustive()
    }
}

macro_rules! hand_on {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        // SAFETY: what holds of the interposer around the core holds of this.
        unsafe impl DriverCalls for Simulation {
            fn provides(&self, call: Call) -> bool {
                self.interposer.provides(call)
            }

            $(
                #[inline]
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    // SAFETY: the arguments are the caller's own.
                    unsafe { self.interposer.$name($($arg),*) }
                }
            )*
        }
    };
}
for_each_call!(hand_on);
