//! The shared feature pool: one process publishes bytes in slices of a bounded memory pool, and other processes open
//! them by tickets.

mod builder;
mod consumer;
mod control;
mod copier;
mod counters;
mod element;
mod entry;
mod error;
mod gate;
mod greeting;
mod layout;
mod ledger;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
mod payload;
mod producer;
mod publisher;
mod publishing;
mod ranks;
mod retired;
mod room;
mod sessions;
mod shared;
mod slots;
mod tally;
mod ticket;

pub use builder::PoolBuilder;
pub use consumer::{Attach, Consumer, Lease, LeasesOpen, StillReading, Ticket};
pub use counters::{ConsumerCounters, Counters};
pub use element::ElementType;
pub use entry::{Scope, Taken};
pub use error::{Exhausted, Holder, PoolError};
pub use layout::{Layout, LayoutError};
pub use payload::{Payload, Source};
pub use producer::{Pool, Unclosed};
pub use publisher::{Published, Publisher, SliceId};
pub use publishing::Publishing;
#[doc(hidden)]
pub use ticket::{decode_ticket, ticket_check};
pub use ticket::{pool_of, Part, PoolId, TicketError};
