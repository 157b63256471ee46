//! The shared feature pool: one process publishes bytes in slices of a bounded memory pool, and other processes open
//! them by tickets.

mod element;
mod layout;
// The rest of the pool uses what is not public in it.
#[allow(dead_code)]
mod ticket;

pub use element::ElementType;
pub use layout::{Layout, LayoutError};
#[doc(hidden)]
pub use ticket::{decode_ticket, ticket_check};
pub use ticket::{pool_of, Part, PoolId, TicketError};
