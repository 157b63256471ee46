//! Sharing memory with other processes.
//!
//! Memory that was created [`shareable_as`](crate::AllocationProps::shareable_as) a POSIX fd or a fabric handle can be
//! exported, and imported elsewhere. One allocation goes as [`Allocation::export_fd`](crate::Allocation::export_fd) and
//! [`Allocation::import_fd`](crate::Allocation::import_fd); a whole span of a reservation, with its holes and mirrors,
//! goes as a [`Descriptor`] with file descriptors beside it:
//!
//! ```
//! # use cuda_vmm::sim::Simulation;
//! use cuda_vmm::share::SpanImport;
//! use cuda_vmm::{Access, AllocationProps, Driver, HandleType, Reservation};
//!
//! # let (here, there) = (Simulation::new(), Simulation::new());
//! # let driver = Driver::simulated(&here)?;
//! # let device = driver.device(0)?;
//! // One process
//! let props = AllocationProps::on(&device).shareable_as(HandleType::PosixFd.into());
//! let mut kv = Reservation::builder(8 << 20)
//!     .access(&device, Access::ReadWrite)
//!     .reserve(&driver)?;
//! kv.map(0, 2 << 20, &props)?;
//! kv.map(4 << 20, 2 << 20, &props)?;
//! kv.write(4 << 20, b"tokens")?;
//! let shared = kv.export_span(0, kv.size(), HandleType::PosixFd, Access::Read)?;
//! // The third part is empty for descriptors; with fabric handles, keep it until every importer has the memory.
//! let (bytes, fds, _) = shared.into_parts();
//!
//! // Another, which got the bytes and the descriptors
//! # let driver = Driver::simulated(&there)?;
//! # let device = driver.device(0)?;
//! let span = SpanImport::new(&bytes, fds)?.attach_read_only(&driver, [&device])?;
//! let mut tokens = [0; 6];
//! span.read(4 << 20, &mut tokens)?;
//! assert_eq!(&tokens, b"tokens");
//! # Ok::<_, cuda_vmm::Error>(())
//! ```
//!
//! The bytes and the descriptors travel by whatever the application has; [`wire`] brings Unix sockets, a server and
//! groups of ranks. A server's client that attaches the span, and tells the server how that went:
//!
//! ```
//! use std::time::{Duration, Instant};
//! # use cuda_vmm::sim::Simulation;
//! use cuda_vmm::share::wire::{fetch, Name, Parcel, Server};
//! use cuda_vmm::share::{ReadOnlySpan, SpanImport};
//! use cuda_vmm::{Device, Result};
//!
//! fn attach(device: &Device, name: &Name) -> Result<ReadOnlySpan> {
//!     let mut received = fetch(name, Instant::now() + Duration::from_secs(5))?;
//!     let Parcel { bytes, fds } = std::mem::take(received.parcel_mut());
//!     let span = SpanImport::new(&bytes, fds)
//!         .and_then(|span| span.attach_read_only(device.driver(), [device]));
//!     match span {
//!         Ok(span) => received.accept().map(|_| span).map_err(Into::into),
//!         Err(error) => {
//!             received.refuse(&error.to_string());
//!             Err(error)
//!         }
//!     }
//! }
//! # use cuda_vmm::{Access, AllocationProps, Driver, HandleType, Reservation};
//! # let driver = Driver::simulated(&Simulation::new())?;
//! # let device = driver.device(0)?;
//! # let props = AllocationProps::on(&device).shareable_as(HandleType::PosixFd.into());
//! # let mut kv = Reservation::builder(2 << 20).access(&device, Access::ReadWrite).reserve(&driver)?;
//! # kv.map(0, 2 << 20, &props)?;
//! # let name = Name::new(format!("spans of {}", std::process::id()));
//!
//! // The other process, which goes on with the server running
//! let shared = kv.export_span(0, kv.size(), HandleType::PosixFd, Access::Read)?;
//! // Of fabric handles the third part would have to be kept for as long as the server runs.
//! let (bytes, fds, _) = shared.into_parts();
//! let server = Server::builder(Parcel::new(bytes, fds)).serve(&name)?;
//! # let there = Driver::simulated(&Simulation::new())?;
//! # drop(attach(&there.device(0)?, &name)?);
//! # assert_eq!(server.stop().served, 1);
//! # Ok::<_, cuda_vmm::Error>(())
//! ```
//!
//! # What holds memory, and what does not
//!
//! - An exported **fd** pins the memory by itself, wherever it is open, and after its maker has gone. It is closed on
//!   exec. An import does not need it: it can be closed then.
//! - A **fabric handle** pins nothing. [`FabricExport`] and [`ExportedSpan`] hold the memory; keep them until every
//!   importer has it.
//! - An import holds the memory like any other allocation, also when its maker has died.
//! - The process that imports is another program: it has been through exec, and loads the driver itself. In a child that
//!   was only forked, after its parent loaded the driver, everything is [`Error::ForkedChild`](crate::Error::ForkedChild).
//! - An import cannot be exported again; its maker shares it with the next process.
//!
//! # Rights
//!
//! What is offered comes with the span, and this crate lets an importer do no more with it. The driver does not know of
//! it: that a process keeps to the offer is its own doing.
//!
//! # Which kind of handle
//!
//! A device's claim to support fabric handles is no permission.
//! [`Device::choose_handle_type`](crate::Device::choose_handle_type) tries: it creates, exports and imports, and keeps
//! each refusal. The processes that share must agree on one kind.
//!
//! Legacy IPC (`cuIpcGetMemHandle`) does not work on memory of this kind: the driver answers INVALID_VALUE.

mod choice;
mod export;
mod import;
mod read_only;
mod source;
mod span;
mod walk;

pub use crate::descriptor::{DecodeError, Descriptor, Home, Piece, SharedAllocation};
pub use crate::handle_type::{FabricHandle, HandleType, Refusal, Unavailable};
pub use crate::identity::AllocationId;
pub use crate::wire;
pub use choice::Choice;
pub use export::FabricExport;
pub use read_only::ReadOnlySpan;
pub use source::{ExportedSpan, Kept, SpanSource};
pub use span::SpanImport;
