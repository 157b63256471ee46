//! The shared feature pool: one process publishes bytes in slices of a bounded memory pool, other processes read them in
//! place or copy them out, and acknowledge. The producer reuses a slice after all consumers have acknowledged it.
//!
//! ```
//! # use std::time::{Duration, Instant};
//! # use cuda_vmm::sim::Simulation;
//! use cuda_vmm::pool::{Consumer, ElementType, Layout, Payload, Pool, Source};
//! use cuda_vmm::wire::Name;
//! # use cuda_vmm::{Access, AllocationProps, Driver, Reservation};
//!
//! # let (here, there) = (Simulation::new(), Simulation::new());
//! # let driver = Driver::simulated(&here)?;
//! # let device = driver.device(0)?;
//! # let name = Name::new(format!("features of {}", std::process::id()));
//! // The producer: 64 MiB for 1 consumer
//! let pool = Pool::builder(&device, 64 << 20, 1).serve(&name)?;
//! let publisher = pool.publisher();
//! let payload = Payload::tensor(
//!     Source::host(&[7; 24]),
//!     Layout::new(ElementType::F32, &[2, 3])?,
//! )
//! .expires_in(Duration::from_secs(30));
//! let published = publisher.publish(&payload)?;
//! let ticket = published.ticket(); // 60 bytes and more, sent by any transport
//!
//! // The consumer, in another process
//! # let driver = Driver::simulated(&there)?;
//! # let device = driver.device(0)?;
//! # let mut features = Reservation::builder(2 << 20).access(&device, Access::ReadWrite).reserve(&driver)?;
//! # features.map(0, 2 << 20, &AllocationProps::on(&device))?;
//! let consumer = Consumer::attach(&device, &name, 0)?; // once
//! let lease = consumer.open(ticket)?;
//! assert_eq!(lease.parts()[0].layout().shape(), [2, 3]);
//! lease.copy_to(0, &mut features, 0)?.finish()?; // copied, and acknowledged
//!
//! // The producer
//! let counters = pool.close(Instant::now() + Duration::from_secs(5))?;
//! assert_eq!((counters.published, counters.acknowledged), (1, 1));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # A slice
//!
//! A *payload* is published into a *slice*, a range of the pool. A slice starts at a multiple of 256 bytes; the pool takes
//! the smallest free piece that fits. It holds one *part* or several packed ones, each with an element type and a shape.
//! A *ticket* names the slice. All consumers get the same ticket, and any transport can carry it. A process can forward
//! it without opening it. A consumer refuses a ticket with a changed byte.
//!
//! From the publish on, each consumer has a *hold* on the slice, which keeps the slice from reuse. A hold ends exactly
//! once:
//!
//! | the hold ends | when | the ticket then says |
//! |---|---|---|
//! | acknowledged | the consumer acknowledges or drops the lease, or drops the unopened ticket | [`PoolError::AlreadyAcknowledged`] |
//! | covered | another consumer acknowledges for its [group](Scope::Group) or for [all](Scope::All), and this one has not opened it | [`PoolError::TakenBack`] |
//! | expired | the deadline of the payload passes, and the consumer has not opened it | [`PoolError::TakenBack`] |
//! | cancelled | the producer [cancels](Publisher::cancel) it, and the consumer has not opened it | [`PoolError::TakenBack`] |
//! | reclaimed | the consumer's connection ends: it closed, died or was [evicted](Pool::evict) | [`PoolError::NotPublished`] to a successor with its rank |
//!
//! When the last hold ends, the slice is free. The pool does not reuse a slice while a connected consumer has it open. It
//! waits for a consumer that has never attached: give a deadline ([`Payload::expires_in`]), or such a consumer can fill
//! the pool. It does not wait for one that has disconnected, until that one attaches again.
//!
//! # When bytes are read and written
//!
//! - The producer's copies are done before the ticket exists. They wait for earlier work on the legacy default stream.
//!   [`Publisher::on_stream`] names another stream; [`Publisher::with_ready_sources`] waits for nothing.
//! - The consumer's acknowledgement is seen by the producer after the copies that were enqueued through the lease. The
//!   consumer's GPU writes it in stream order, or a host function does where the device cannot; a lease without copies
//!   under way is acknowledged by the CPU. For kernels that read in place, say what they run on:
//!   [`Lease::on_stream`], [`Lease::acknowledge_after`].
//! - After a failed wait for a copy the pool quarantines that one slice and counts it. Later publishes and
//!   [`Pool::close`] wait for its copy again.
//!
//! # What runs where
//!
//! Where a call of the publisher copies at least four small parts from device memory (32 KiB at most), one kernel launch
//! makes these copies: enqueued one by one they take the driver longer than the device. The first such call loads the
//! kernel, which the driver compiles for the device. Where it cannot, the parts are copied one by one. The kernel reads a
//! [view](Source::view) only where the rights of its mappings let the pool's device read it; any other view is left to a
//! copy that the driver checks.
//!
//! Acknowledgements are words in host memory that both processes share, one for each slice and session, tagged with the
//! slice's generation. The producer frees slices by reading them as it needs room: no driver call, no thread that polls.
//! One thread serves attaching consumers, notices connections that end, and takes back what expires; it sleeps
//! otherwise. Opening a ticket is one atomic exchange on such a word and one system call. A consumer makes no context before its
//! first copy, and none on the producer's device unless that is its own.
//!
//! # Trust
//!
//! A consumer maps the pool read-only. It writes to control words of its own session alone: a consumer that misbehaves
//! can keep what it holds, and can do no more than acknowledge for others as far as the producer
//! [allows](PoolBuilder::widest_scope). Which processes may attach is the producer's [choice](PoolBuilder::allow).
//! Tickets, greetings and control words are checked before they are used.
//!
//! # One machine, several machines
//!
//! Control words are shared memory, so producer and consumers run on one machine. The pool's memory can be shared by
//! fabric handles too ([`PoolBuilder::handle_type`]).

mod builder;
mod consumer;
mod control;
mod copier;
mod counters;
mod element;
mod entry;
mod error;
mod gate;
mod gather;
mod greeting;
mod lane;
mod layout;
mod ledger;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
mod payload;
mod producer;
mod published;
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
#[cfg(all(test, not(loom), not(shuttle), feature = "sim"))]
mod unlocked;

pub use builder::PoolBuilder;
pub use consumer::{Attach, Consumer, Lease, LeasesOpen, StillReading, Ticket};
pub use counters::{ConsumerCounters, Counters};
pub use element::ElementType;
pub use entry::{Scope, Taken};
pub use error::{Exhausted, Holder, PoolError};
#[doc(hidden)]
pub use greeting::read_greeting;
pub use layout::{Layout, LayoutError};
pub use payload::{Payload, Source};
pub use producer::{Pool, Unclosed};
pub use published::{Published, SliceId};
pub use publisher::Publisher;
pub use publishing::Publishing;
#[doc(hidden)]
pub use ticket::{decode_ticket, ticket_check};
pub use ticket::{pool_of, Part, PoolId, TicketError};
