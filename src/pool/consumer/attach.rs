//! Attaching to a pool.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stream::Streams;
use super::{Attached, Consumer};
use crate::device::Device;
use crate::fork;
use crate::pool::control::ControlMemory;
use crate::pool::error::PoolError;
use crate::pool::greeting::{self, Admitted, Answer, Unreadable};
use crate::share::SpanImport;
use crate::sync::Mutex;
use crate::wire::{Fetch, Name, Parcel, Peer, Session};

/// How long a producer may take to answer, if nothing is said.
const PATIENCE: Duration = Duration::from_secs(30);

/// How to attach to a pool.
#[must_use = "nothing is attached before `attach`"]
pub struct Attach {
    fetch: Fetch,
    deadline: Option<Instant>,
    rank: usize,
    readers: Vec<Device>,
}

impl Attach {
    /// To the pool that is served under this name, as the consumer with this rank.
    pub fn new(name: &Name, rank: usize) -> Attach {
        Attach {
            fetch: Fetch::new(name),
            deadline: None,
            rank,
            readers: Vec::new(),
        }
    }

    /// Fails at this time. Without it, [`attach`](Self::attach) waits up to 30 seconds for a producer that does not answer.
    pub fn by(mut self, deadline: Instant) -> Attach {
        self.deadline = Some(deadline);
        self
    }

    /// Where no server has the name yet, tries until one has.
    pub fn waiting_for_server(mut self) -> Attach {
        self.fetch = self.fetch.waiting_for_server();
        self
    }

    /// Whose pool it may be; that of this process's user if nothing is said.
    pub fn allow(mut self, allow: impl FnOnce(&Peer) -> bool + 'static) -> Attach {
        self.fetch = self.fetch.allow(allow);
        self
    }

    /// A further device of this process that reads the pool's memory.
    pub fn also_read_by(mut self, device: &Device) -> Attach {
        self.readers.push(device.clone());
        self
    }

    /// Attaches: imports the pool's memory and maps it read-only for the device. Its streams copy.
    ///
    /// # Errors
    ///
    /// [`PoolError::RankOutOfRange`], [`PoolError::RankTaken`], [`PoolError::Closing`],
    /// [`PoolError::ProtocolVersion`], [`PoolError::NotAPool`]; [`PoolError::Wire`] for the connection,
    /// [`PoolError::Memory`] for the import. Nothing is left then, and the rank is free again.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub fn attach(self, device: &Device) -> Result<Consumer, PoolError> {
        let rank = self.rank;
        let asked = u32::try_from(rank).map_err(|_| PoolError::RankOutOfRange {
            rank,
            consumers: super::super::builder::MOST_CONSUMERS,
        })?;
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + PATIENCE);
        let fetch = self.fetch.by(deadline);
        let mut received = fetch.hello(greeting::hello(asked)).receive()?;
        let Parcel { bytes, fds } = std::mem::take(received.parcel_mut());
        let readers = [device].into_iter().chain(&self.readers);
        let attached = understood(&bytes, asked).and_then(|admitted| {
            let (lane, span) = opened(&admitted, fds)?;
            let span = span.attach_read_only(device.driver(), readers)?;
            Ok((admitted, lane, span))
        });
        let (admitted, lane, span) = match attached {
            Ok(attached) => attached,
            Err(error) => {
                received.refuse(&error.to_string());
                return Err(error);
            }
        };
        let size = admitted.size as usize;
        if span.size() < size {
            let reason = format!("the memory has {} bytes of {size}", span.size());
            received.refuse(&reason);
            return Err(PoolError::NotAPool { reason });
        }
        let (_, session): (Parcel, Session) = received.into_session()?;
        let group = admitted.group.start as usize..admitted.group.end as usize;
        Ok(Consumer {
            attached: Arc::new(Attached {
                pool: admitted.pool,
                key: admitted.key,
                rank,
                consumers: admitted.consumers as usize,
                group,
                widest: admitted.widest,
                size,
                streams: Streams::new(device, lane.clone()),
                lane,
                session,
                span: Some(span),
                late: Mutex::default(),
                leases: AtomicUsize::new(0),
                generation: fork::join(),
            }),
        })
    }
}

/// What the producer says, if it lets this consumer in.
fn understood(bytes: &[u8], rank: u32) -> Result<Admitted, PoolError> {
    let version = |theirs| PoolError::ProtocolVersion {
        ours: greeting::VERSION,
        theirs,
    };
    match Answer::decode(bytes, rank) {
        Ok(Answer::Admitted(admitted)) => Ok(admitted),
        Ok(Answer::OutOfRange { rank, consumers }) => Err(PoolError::RankOutOfRange {
            rank: rank as usize,
            consumers: consumers as usize,
        }),
        Ok(Answer::Taken { rank }) => Err(PoolError::RankTaken {
            rank: rank as usize,
        }),
        Ok(Answer::Closing) => Err(PoolError::Closing),
        Ok(Answer::Version { known }) => Err(version(known)),
        Err(Unreadable::Version { found }) => Err(version(found)),
        Err(Unreadable::Form) => Err(PoolError::NotAPool {
            reason: "its description cannot be read".to_owned(),
        }),
    }
}

/// The control memory and the description of the pool's memory, with the descriptors of each.
fn opened(
    admitted: &Admitted,
    fds: Vec<OwnedFd>,
) -> Result<(Arc<ControlMemory>, SpanImport), PoolError> {
    let mut fds = fds.into_iter();
    let Some(lane) = fds.next() else {
        return Err(PoolError::NotAPool {
            reason: "no control memory came with it".to_owned(),
        });
    };
    let lane = ControlMemory::open(&lane, admitted.slots as usize).map_err(|error| {
        PoolError::NotAPool {
            reason: format!("its control memory cannot be used: {error}"),
        }
    })?;
    let span = SpanImport::new(&admitted.span, fds.collect())?;
    Ok((Arc::new(lane), span))
}

impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attach")
            .field("fetch", &self.fetch)
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}
