//! CUDA virtual memory management for systems code: reserve addresses, create physical memory, map it, grant access,
//! give it back.
//!
//! This is for code that embeds the CUDA driver and places memory itself: inference engines, caches, allocators, memory
//! services. A range of addresses is reserved once and stays; memory comes and goes beneath it.
//!
//! ```
//! # use cuda_vmm::sim::Simulation;
//! use cuda_vmm::{Access, AllocationProps, Driver, Reservation};
//!
//! # let sim = Simulation::new();
//! # /*
//! let driver = Driver::load()?;
//! # */
//! # let driver = Driver::simulated(&sim)?;
//! let device = driver.device(0)?;
//! let props = AllocationProps::on(&device);
//! let chunk = props.granularity()?.recommended();
//!
//! let mut kv = Reservation::builder(64 << 30)
//!     .access(&device, Access::ReadWrite)
//!     .reserve(&driver)?;
//! let block = kv.map(0, chunk, &props)?;
//! kv.write(0, b"tokens")?;
//!
//! let mut back = [0; 6];
//! kv.read(0, &mut back)?;
//! assert_eq!(&back, b"tokens");
//!
//! kv.unmap(block)?;
//! kv.close()?;
//! # assert!(sim.snapshot().holds_no_memory());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Sizes and offsets are bytes, everywhere. Sizes are multiples of the [`Granularity`] of the memory in question.
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | the driver: loading it, its devices, what it would not take back | [`Driver`] |
//! | what a device says it can do | [`Device`], [`Capabilities`] |
//! | which memory to create, and in what multiples | [`AllocationProps`], [`Granularity`], [`HandleTypes`] |
//! | physical memory, mapped or not | [`Allocation`] |
//! | a range of addresses and all that is done in it | [`Reservation`], [`ReservationBuilder`] |
//! | a range that grows and shrinks in place, and what that costs | [`ElasticRange`], [`ElasticRangeBuilder`], [`Contents`] |
//! | pieces of any size, handed out one behind the other | [`arena`] |
//! | one mapping, and its name | [`Mapping`], [`MappingId`] |
//! | who may do what | [`Access`], [`Location`] |
//! | address and length for kernels and other libraries | [`View`], [`Elements`] |
//! | what to wait for before memory goes | [`Fence`], [`Closing`] |
//! | memory that goes while nobody needs it, and comes back at the same addresses | [`suspend`] |
//! | memory of other processes, or for them; whole spans; memory that other code mapped | [`share`], [`HandleType`] |
//! | tensors that one process publishes to consumers in other processes | [`pool`] |
//! | errors | [`Error`], [`Code`], [`CloseError`], [`StillHeld`], [`ReleaseError`] |
//! | parcels of bytes and descriptors between processes, memory or not | [`wire`] |
//! | what `Drop` could not undo | [`set_leak_hook`], [`Leak`] |
//! | raw declarations, the loader, how the build finds `cuda.h` | [`sys`] |
#![cfg_attr(
    feature = "sim",
    doc = "| a driver for machines without a GPU, and for tests | [`sim`] |"
)]
#![cfg_attr(
    not(feature = "sim"),
    doc = "| a driver for machines without a GPU, and for tests | the feature `sim` |"
)]
//!
//! # Who owns what
//!
//! 1. An [`Allocation`] is one physical handle with one count, neither copied nor cloned, and released exactly once.
//! 2. A [`Reservation`] is one range of addresses, freed as it was reserved, and only when nothing is mapped in it.
//! 3. A [`Mapping`] lives in a reservation and owns what backs it: a handle of its own, or a share of the caller's
//!    allocation, which may then be dropped. When it goes it unmaps, then releases. Mappings go in reverse order of
//!    their making.
//! 4. [`Reservation::close`] is the ordinary end. It consumes the reservation; if the driver refuses something, the
//!    error holds the reservation with exactly what is still mapped. [`Reservation::close_keeping`] hands the
//!    allocations over instead of releasing them.
//! 5. `Drop` does the same work and never panics. It never frees addresses under a live mapping: what it cannot undo it
//!    leaks on purpose and reports. In a forked child, and when the driver has shut down before it, it is silent.
//! 6. An operation that fails has changed nothing. If undoing it fails too, the error is [`Error::NotUndone`], and what
//!    is left stays owned by the reservation, or by the driver ([`Driver::reclaim`]).
//!
//! # Errors that hand something back
//!
//! Most operations answer [`Error`]. Those that took something, or did a part, give it back with the error, boxed:
//!
//! | operation | error | what is in it |
//! |---|---|---|
//! | `close`, `close_after`, `close_keeping`, [`Closing::join`] | [`CloseError`] | the reservation, with what is still mapped |
//! | [`Allocation::release`] | [`ReleaseError`] | the allocation |
//! | [`Group::suspend`](suspend::Group::suspend), [`suspend_after`](suspend::Group::suspend_after), [`resume`](suspend::Group::resume) | [`Incomplete`](suspend::Incomplete) | which members are done and which are left |
//! | [`Group::add`](suspend::Group::add) | [`NotAdded`](suspend::NotAdded) | the member |
//! | [`Group::close`](suspend::Group::close) | [`Unclosed`](suspend::Unclosed) | the group, with what is left |
//!
//! All of them are `std` errors, so that `?` works where the error is a `Box<dyn std::error::Error>`. In a function
//! that returns [`Result<T>`](Result), `?` turns an `Incomplete` into its [`Error`]; of the others, take the field
//! `error`, or what `into_error` gives where there is one, once what was handed back is taken care of: dropping it is to
//! give up on it.
//!
//! # Work in flight
//!
//! Neither [`unmap`](Reservation::unmap), nor [`close`](Reservation::close), nor `Drop` waits for work that uses the
//! memory. The driver unmaps at once; a kernel or a copy that still runs on the range then fails with ILLEGAL_ADDRESS
//! (700), and its context is lost for everything but memory management. So wait first:
//! [`unmap_after`](Reservation::unmap_after), [`close_after`](Reservation::close_after) and
//! [`close_in_background`](Reservation::close_in_background) take a [`Fence`] (a stream, an event or a closure, with a
//! deadline if wanted), and leave everything mapped and owned if the wait fails. The crate's own copies and fills are
//! done when they return.
//!
//! # Threads
//!
//! | | `Send` | `Sync` | why |
//! |---|---|---|---|
//! | [`Driver`], [`Device`], [`AllocationProps`] | yes | yes | the driver lets every thread make every call; what is cached has locks of its own |
//! | [`Allocation`], [`Mapping`], [`Reservation`], [`ElasticRange`], [`Closing`], [`suspend::Group`] | yes | yes | they own handles and addresses, which belong to the process; what changes them takes `&mut` or consumes them |
//! | [`View`], [`Elements`] | yes | yes | they borrow the reservation, and hold an address without following it |
//! | [`Fence`] | yes | no | it is waited for once, by whoever has it; its closure is [`FnOnce`] |
//! | [`CurrentContext`] | no | no | a context is current on one thread, and is popped from that thread's stack |
//! | ids, properties, rights, arenas, errors, leaks | yes | yes | plain data; an [`Error`] can be boxed as `dyn Error + Send + Sync` |
//!
//! Threads with reservations of their own share a driver without further ado; a reservation that several change stands
//! behind a lock of yours. Several threads do not make the driver faster: it has one lock for all of its calls.
//!
//! No lock of this crate is held over a driver call, nor while a closure of yours runs or is dropped (a fence's, a leak
//! hook): either may use the crate.
//!
//! # Speed
//!
//! The driver's cost is by the handle, not by the byte: few large mappings are cheaper to make, to give back and to
//! copy over than many small ones; an [`ElasticRange`] makes the largest that fit. Keep a context of the device alive,
//! the application's own or one from [`Device::make_current`]: with none in the process the driver takes some 950 µs to
//! grant access and 770 µs to unmap 2 MiB, instead of 27 and 17 (H200, driver 580.159).
//!
//! # Other code at the same memory
//!
//! | to | use |
//! |---|---|
//! | pass an address to kernels, NCCL, another crate | [`View::address`] (a `CUdeviceptr`), for as long as the view borrows |
//! | take an allocation at an address that other code mapped | [`Allocation::retain`]; [`Driver::is_vmm`] asks whether there is one |
//! | take a raw handle over, or give one away | [`Allocation::from_raw`] (unsafe: you vouch for it), [`Allocation::into_raw`] |
//! | make a call that this crate does not wrap | [`Driver::calls_raw`], with [`Allocation::raw`]; unsafe as in C |
//! | make a call that needs a context | [`Device::make_current`], and the call while the guard lives |
//! | put something between this crate and the driver | an implementation of [`sys::DriverCalls`], and [`Driver::from_calls`] |
//!
//! The crate uses the devices' primary contexts, as the CUDA runtime does, and leaves current whatever was current.
//!
//! # What it does not do
//!
//! - It does not wait for work in flight unasked (above).
//! - It is no `malloc`: memory comes in the granularity, and an [`arena`] over it reuses nothing before it is reset.
//! - It never hands out a `&[u8]` of device memory: the device writes to it too.
//! - It wraps no kernels, streams, events, multicast objects or managed memory; some of the raw calls are in [`sys`].
//! - It links nothing: `libcuda` is opened by [`Driver::load`], and its absence is [`Error::DriverNotFound`].
//! - It does not build for anything but 64-bit Linux.
#![deny(unsafe_code)]

mod access;
mod allocation;
pub mod arena;
mod bytes;
mod code;
mod context;
mod descriptor;
mod device;
mod driver;
mod elastic;
mod error;
mod fence;
mod fork;
mod handle;
mod handle_type;
mod identity;
mod location;
mod mapping;
mod pages;
#[cfg(all(test, shuttle, feature = "sim"))]
mod permuted;
pub mod pool;
mod props;
mod range;
mod recipe;
mod report;
mod reservation;
pub mod share;
#[cfg(feature = "sim")]
pub mod sim;
mod space;
pub mod suspend;
mod sync;
pub mod sys;
#[cfg(all(test, not(shuttle), feature = "sim"))]
mod unlocked;
pub mod wire;

pub use access::Access;
pub use allocation::{Allocation, ReleaseError};
pub use code::Code;
pub use context::CurrentContext;
pub use device::{Capabilities, Device};
pub use driver::Driver;
pub use elastic::{Committed, Contents, Decommitted, ElasticRange, ElasticRangeBuilder, Resized};
pub use error::{Attempt, BadFd, DriverFailure, Error, NotUndone, Result, What};
pub use fence::Fence;
pub use handle::Origin;
pub use handle_type::{FabricHandle, HandleType};
pub use identity::AllocationId;
pub use location::Location;
pub use mapping::{BackingKind, Mapping, MappingId};
pub use props::AllocationProps;
pub use recipe::{Granularity, HandleTypes};
pub use report::{reset_leak_hook, set_leak_hook, Leak};
pub use reservation::{
    CloseError, Closing, Elements, Reservation, ReservationBuilder, StillHeld, View,
};

/// The README's examples, compiled and run with the documentation tests.
#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../README.md")]
struct Readme;
