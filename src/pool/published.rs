//! The last step of a publish: slices whose copies are done go live, and have tickets.

use std::fmt;

use super::error::PoolError;
use super::ledger::NoConsumer;
use super::payload::Plan;
use super::shared::{Inside, Shared};
use super::slots::SlotRef;
use super::ticket::{self, PoolId, TicketData};

/// Names one published slice, for [`Publisher::cancel`](super::Publisher::cancel).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SliceId {
    pub(super) pool: PoolId,
    pub(super) at: SlotRef,
}

/// A published slice: the ticket to send, and its id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "consumers open the slice by its ticket; without that the slice is held until it expires or is cancelled"]
pub struct Published {
    id: SliceId,
    ticket: Vec<u8>,
}

impl fmt::Display for SliceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlotRef { slot, generation } = self.at;
        write!(f, "slice {slot} generation {generation}")
    }
}

impl Published {
    /// Names the slice for a cancel.
    pub fn id(&self) -> SliceId {
        self.id
    }

    /// The ticket, for every consumer alike. It travels by any transport.
    pub fn ticket(&self) -> &[u8] {
        &self.ticket
    }

    /// The ticket.
    pub fn into_ticket(self) -> Vec<u8> {
        self.ticket
    }
}

/// A slice that has room, and the place of each part in it.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) at: SlotRef,
    pub(super) offset: u64,
    pub(super) plan: Plan,
}

/// Publishes slices whose copies are done, all or none.
pub(super) fn publish(inside: &Inside, slices: Vec<Filled>) -> Result<Vec<Published>, PoolError> {
    let shared = inside.shared();
    let now = shared.now();
    for (index, slice) in slices.iter().enumerate() {
        let expires = match slice.plan.expires {
            Some(time) => now.saturating_add(time.as_nanos().try_into().unwrap_or(u64::MAX)),
            None => 0,
        };
        match shared.ledger.publish(slice.at, now, expires) {
            Ok(true) => shared.wake(),
            Ok(false) => {}
            Err(NoConsumer) => {
                // Nobody is there to hold those that were published before it.
                let (before, others) = slices.split_at(index);
                for slice in before {
                    shared.ledger.cancel(slice.at);
                }
                for slice in others {
                    shared.ledger.abandon(slice.at);
                }
                return Err(PoolError::NoConsumer {
                    consumers: shared.ledger.consumers(),
                });
            }
        }
    }
    Ok(slices
        .into_iter()
        .map(|slice| published(shared, slice))
        .collect())
}

fn published(shared: &Shared, slice: Filled) -> Published {
    let Filled { at, offset, plan } = slice;
    let ticket = TicketData {
        pool: shared.id,
        slot: at.slot,
        generation: at.generation,
        offset,
        length: plan.length as u64,
        parts: plan.parts,
    };
    Published {
        id: SliceId {
            pool: shared.id,
            at,
        },
        ticket: ticket::encode(&ticket, &shared.key),
    }
}
