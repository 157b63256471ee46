//! The consumers' sessions, on the thread that serves them: who attaches, who is gone, what expires.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use super::control::ControlMemory;
use super::greeting::{read_hello, Admitted, Answer};
use super::lane::Lane;
use super::shared::Shared;
use crate::sync::lock;
use crate::wire::{Parcel, Peer, SessionId, Sessions, WireError};

/// What the thread knows of the consumers.
pub(super) struct Consumers {
    shared: Arc<Shared>,
    /// What describes the pool's memory, and the descriptors that go with it.
    span: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// The consumer of each session; none of one that was refused.
    seats: HashMap<SessionId, Option<Seat>>,
    /// Of clients that were refused, accepted that, and stay.
    idle: Vec<SessionId>,
    next: u64,
}

struct Seat {
    rank: usize,
    /// The consumer has accepted what it was sent.
    is_attached: bool,
}

impl Consumers {
    pub(super) fn new(shared: Arc<Shared>, span: Vec<u8>, fds: Vec<OwnedFd>) -> Consumers {
        Consumers {
            shared,
            span,
            fds,
            seats: HashMap::new(),
            idle: Vec::new(),
            next: 0,
        }
    }

    /// Attaches the consumer that asks for this rank.
    fn admit(&self, rank: u32) -> Result<(Answer, Vec<OwnedFd>), String> {
        let ledger = &self.shared.ledger;
        let refused = |answer| Ok((answer, Vec::new()));
        let consumers = ledger.consumers() as u32;
        if rank >= consumers {
            return refused(Answer::OutOfRange { rank, consumers });
        }
        if self.shared.gate.is_closed() {
            return refused(Answer::Closing);
        }
        let failed = |error: std::io::Error| format!("the producer cannot share memory: {error}");
        let slots = ledger.slot_count();
        let (memory, fd) = ControlMemory::create(slots as usize).map_err(failed)?;
        let mut fds = vec![fd];
        for fd in &self.fds {
            fds.push(fd.try_clone().map_err(failed)?);
        }
        let lane: Lane = Arc::new(memory);
        if !ledger.attach(rank as usize, &lane) {
            return refused(Answer::Taken { rank });
        }
        let group = ledger.group(rank as usize);
        let admitted = Admitted {
            pool: self.shared.id,
            key: self.shared.key,
            consumers,
            slots,
            size: self.shared.size as u64,
            group: group.start as u32..group.end as u32,
            widest: ledger.widest(),
            span: self.span.clone(),
        };
        Ok((Answer::Admitted(admitted), fds))
    }
}

impl Sessions for Consumers {
    fn open(&mut self, peer: &Peer, hello: &[u8]) -> Result<(SessionId, Parcel), String> {
        let (answer, fds) = match read_hello(hello) {
            Ok(rank) => self.admit(rank)?,
            Err(why) => match Answer::to_unreadable(why) {
                Some(answer) => (answer, Vec::new()),
                None => return Err("the hello is not that of a pool's consumer".to_owned()),
            },
        };
        let seat = match (&answer, read_hello(hello)) {
            (Answer::Admitted(_), Ok(rank)) => Some(Seat {
                rank: rank as usize,
                is_attached: false,
            }),
            _ => None,
        };
        if let Some(seat) = &seat {
            let process = u32::try_from(peer.pid()).ok().filter(|pid| *pid != 0);
            self.shared.note_process(seat.rank, process);
        }
        let session = SessionId(self.next);
        self.next += 1;
        self.seats.insert(session, seat);
        Ok((session, Parcel::new(answer.encode(), fds)))
    }

    fn established(&mut self, session: SessionId) {
        match self.seats.get_mut(&session) {
            Some(Some(seat)) => seat.is_attached = true,
            // It has its answer: it takes the place of another client no longer.
            _ => self.idle.push(session),
        }
    }

    fn closed(&mut self, session: SessionId, why: &WireError) {
        let Some(Some(seat)) = self.seats.remove(&session) else {
            return;
        };
        self.shared.note_process(seat.rank, None);
        // Nothing is published any more, so what consumers have open stays readable.
        if matches!(why, WireError::Stopped) {
            return;
        }
        let is_evicted = matches!(why, WireError::EndedByHandler { .. });
        match seat.is_attached || is_evicted {
            true => self.shared.ledger.detach(seat.rank),
            false => self.shared.ledger.withdraw(seat.rank),
        }
    }

    fn tick(&mut self, now: Instant, end: &mut Vec<(SessionId, String)>) -> Option<Instant> {
        let refused = |session| (session, "the consumer was refused".to_owned());
        end.extend(self.idle.drain(..).map(refused));
        let evictions = std::mem::take(&mut *lock(&self.shared.evictions));
        for (rank, reason) in evictions {
            let of_rank = |(session, seat): (&SessionId, &Option<Seat>)| {
                let seat = seat.as_ref()?;
                (seat.rank == rank).then_some(*session)
            };
            if let Some(session) = self.seats.iter().find_map(of_rank) {
                end.push((session, reason));
            }
        }
        let next = self.shared.ledger.expire(self.shared.nanoseconds(now));
        next.and_then(|next| self.shared.instant(next))
    }
}
