//! Parcels of bytes and open descriptors, passed between processes of one machine.
//!
//! The transport knows nothing of memory: a [`Parcel`] is bytes and descriptors. Whoever sends one learns in bounded
//! time what became of it at the other end.
//!
//! | to | use |
//! |---|---|
//! | pass one parcel over a socket of your own | [`send_parcel`], [`receive_parcel`], [`pair`] |
//! | hand one parcel to any number of processes | [`Server::builder`], [`Fetch`], [`fetch`] |
//! | give each process a parcel of its own, and learn when the process is gone | [`Server::sessions`], [`Sessions`], [`Fetch::hello`], [`Session`] |
//! | exchange parcels between all of several processes | [`Ranks`] |
//!
//! A conversation is: announcement, consent, pieces with their descriptors, answer. A session begins with the client's
//! hello and goes on after the answer until either end closes the connection. No descriptor moves before the
//! receiver has seen how many there are, and from which host, and has consented.
//!
//! # Trust
//!
//! Nothing that a peer sends is believed: lengths, counts and order are checked, reasons are made fit for a terminal,
//! and every descriptor that comes is owned, and closed when the rest is not in order. Descriptors travel through
//! SCM_RIGHTS alone, marked close-on-exec as they arrive.

mod address;
mod connect;
mod error;
#[cfg(not(feature = "sim"))]
mod faults;
#[cfg(feature = "sim")]
pub mod faults;
mod fetch;
mod frame;
mod host;
mod incoming;
mod link;
mod listener;
mod outgoing;
mod parcel;
mod peer;
mod ranks;
mod reason;
mod server;
mod session;
mod session_id;
mod socket_kind;
mod syscalls;
mod talk;
mod wait;

pub use address::Name;
pub use error::{Step, WireError};
pub use fetch::{fetch, Fetch};
pub use frame::{decode_message, FrameError};
pub use host::HostId;
pub use parcel::{Limits, Parcel};
pub use peer::Peer;
pub use ranks::{Ranks, RanksError, Round, RoundKind};
pub use server::{Refusal, Server, ServerBuilder, ServerReport, Sessions, Waker};
pub use session::Session;
pub use session_id::SessionId;
pub use socket_kind::SocketKind;
pub use talk::{pair, receive_parcel, send_parcel, Received};
