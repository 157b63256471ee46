//! CUDA virtual memory management for systems code.
#![deny(unsafe_code)]

mod access;
mod allocation;
mod code;
mod context;
mod device;
mod driver;
mod error;
mod fence;
mod location;
mod mapping;
mod props;
mod range;
mod report;
mod reservation;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sys;

pub use access::Access;
pub use allocation::{Allocation, Origin, ReleaseError};
pub use code::Code;
pub use context::CurrentContext;
pub use device::{Capabilities, Device};
pub use driver::Driver;
pub use error::{Attempt, DriverFailure, Error, NotUndone, Result, What};
pub use fence::Fence;
pub use location::Location;
pub use mapping::{BackingKind, Mapping, MappingId};
pub use props::{AllocationProps, Granularity, HandleTypes};
pub use report::{reset_leak_hook, set_leak_hook, Leak};
pub use reservation::{CloseError, Closing, Elements, Reservation, ReservationBuilder, View};
