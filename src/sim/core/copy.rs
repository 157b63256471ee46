//! Copies, fills and words: checked against the books, then done.

use std::ops::Range;

use crate::sys::Call;

use super::super::misuse::MisuseKind;
use super::super::place::{Place, Rights};
use super::abi::{Raw, Token};
use super::queues::Item;
use super::store::{End, Segment};
use super::work::{Spot, Work};
use super::{demand, invalid, Answer, State};

/// Work whose ends were found.
enum Task {
    Move { to: End, from: End, size: u64 },
    Rows(Vec<Task>),
    Fill { to: End, value: u8, size: u64 },
    Word { to: End, value: u32 },
    Nothing,
}

/// From the host.
fn upload(to: u64, from: Raw, size: usize) -> Work {
    Work::Move {
        to: Spot::Device(to),
        from: Spot::Host(from),
        size: size as u64,
    }
}

/// To the host.
fn download(to: Raw, from: u64, size: usize) -> Work {
    Work::Move {
        to: Spot::Host(to),
        from: Spot::Device(from),
        size: size as u64,
    }
}

/// From one address to another.
fn copy(to: u64, from: u64, size: usize) -> Work {
    Work::Move {
        to: Spot::Device(to),
        from: Spot::Device(from),
        size: size as u64,
    }
}

impl State {
    pub(super) fn cuMemcpyHtoD_v2(&mut self, to: u64, from: Raw, size: usize) -> Answer {
        self.at_once(Call::cuMemcpyHtoD_v2, upload(to, from, size))
    }

    pub(super) fn cuMemcpyDtoH_v2(&mut self, to: Raw, from: u64, size: usize) -> Answer {
        self.at_once(Call::cuMemcpyDtoH_v2, download(to, from, size))
    }

    pub(super) fn cuMemcpyDtoD_v2(&mut self, to: u64, from: u64, size: usize) -> Answer {
        self.at_once(Call::cuMemcpyDtoD_v2, copy(to, from, size))
    }

    pub(super) fn cuMemsetD8_v2(&mut self, to: u64, value: u8, size: usize) -> Answer {
        let size = size as u64;
        self.at_once(Call::cuMemsetD8_v2, Work::Fill { to, value, size })
    }

    pub(super) fn cuMemcpyHtoDAsync_v2(
        &mut self,
        to: u64,
        from: Raw,
        size: usize,
        stream: Token,
    ) -> Answer {
        self.in_order(Call::cuMemcpyHtoDAsync_v2, stream, upload(to, from, size))
    }

    pub(super) fn cuMemcpyDtoHAsync_v2(
        &mut self,
        to: Raw,
        from: u64,
        size: usize,
        stream: Token,
    ) -> Answer {
        self.in_order(Call::cuMemcpyDtoHAsync_v2, stream, download(to, from, size))
    }

    pub(super) fn cuMemcpyDtoDAsync_v2(
        &mut self,
        to: u64,
        from: u64,
        size: usize,
        stream: Token,
    ) -> Answer {
        self.in_order(Call::cuMemcpyDtoDAsync_v2, stream, copy(to, from, size))
    }

    pub(super) fn cuMemsetD8Async(
        &mut self,
        to: u64,
        value: u8,
        size: usize,
        stream: Token,
    ) -> Answer {
        let size = size as u64;
        let work = Work::Fill { to, value, size };
        self.in_order(Call::cuMemsetD8Async, stream, work)
    }

    fn at_once(&mut self, call: Call, work: Work) -> Answer {
        let device = self.working_device()?;
        let task = self.prepare(device, work)?;
        self.survives(call, work)?;
        self.perform(task);
        Ok(())
    }

    fn in_order(&mut self, call: Call, stream: Token, work: Work) -> Answer {
        let (stream, device) = self.working_stream(call, stream)?;
        self.give(call, (stream, device), work)
    }

    /// Checked when it is given to the stream, as the driver does, and again when its turn comes.
    pub(super) fn give(
        &mut self,
        call: Call,
        (stream, device): (Token, usize),
        work: Work,
    ) -> Answer {
        let task = self.prepare(device, work)?;
        self.survives(call, work)?;
        match self.defers(stream) {
            true => self.enqueue(stream, Item::Work(work)),
            false => self.perform(task),
        }
        Ok(())
    }

    /// Does a piece of work whose turn has come, or nothing of it.
    pub(super) fn execute(&mut self, device: usize, work: Work) -> Answer {
        let task = self.prepare(device, work)?;
        self.perform(task);
        Ok(())
    }

    fn perform(&mut self, task: Task) {
        match task {
            Task::Move { to, from, size } => self.backend.copy(&to, &from, size),
            Task::Rows(rows) => rows.into_iter().for_each(|row| self.perform(row)),
            Task::Fill { to, value, size } => match to {
                End::Device(segments) => self.backend.fill(&segments, value),
                End::Host(buffer) => buffer.fill(value, size as usize),
            },
            Task::Word { to, value } => match to {
                End::Device(segments) => self.backend.store(&segments, value),
                End::Host(word) => word.store(value),
            },
            Task::Nothing => {}
        }
    }

    /// Refuses what a real driver does not refuse, but dies of.
    fn survives(&mut self, call: Call, work: Work) -> Answer {
        if let Work::Word { .. } = work {
            // The device writes it itself, wherever it lies.
            return Ok(());
        }
        for (range, needed) in work.ends() {
            let start = range.start;
            if let Some(kind) = self.deadly(range, needed) {
                self.misuse(call, kind, start);
                return invalid();
            }
        }
        Ok(())
    }

    /// Why a real driver would not live to answer. Where the host has rights it works through the host's own mapping,
    /// as the host.
    fn deadly(&self, range: Range<u64>, needed: Rights) -> Option<MisuseKind> {
        let (mut from, mut mappings, mut by_host) = (range.start, 0, false);
        while from < range.end {
            let (base, mapping) = self.mapping_at(from)?;
            let rights = mapping.rights.of_host();
            if rights == Rights::Read && needed > rights {
                return Some(MisuseKind::HostReadOnly);
            }
            by_host |= rights > Rights::None;
            mappings += 1;
            from = base + mapping.size;
        }
        (by_host && mappings > 1).then_some(MisuseKind::OverHostSeam)
    }

    /// Checks all that can be wrong with a piece of work.
    fn prepare(&self, device: usize, work: Work) -> Answer<Task> {
        let size = work.size();
        let end = |spot, needed| match spot {
            Spot::Host(buffer) => self.host_end(buffer, size, needed),
            Spot::Device(address) => self.device_end(device, address, size, needed),
        };
        Ok(match work {
            Work::Rows(_) => {
                let rows = work.pieces().map(|row| self.prepare(device, row));
                Task::Rows(rows.collect::<Answer<_>>()?)
            }
            _ if size == 0 => Task::Nothing,
            Work::Move { to, from, .. } => Task::Move {
                to: end(to, Rights::ReadWrite)?,
                from: end(from, Rights::Read)?,
                size,
            },
            Work::Fill { to, value, .. } => Task::Fill {
                to: end(Spot::Device(to), Rights::ReadWrite)?,
                value,
                size,
            },
            Work::Word { to, value } => Task::Word {
                to: end(Spot::Device(to), Rights::ReadWrite)?,
                value,
            },
        })
    }

    /// What lies behind device addresses: segments, all of them mapped and granted, or registered memory of the host.
    fn device_end(&self, device: usize, address: u64, size: u64, needed: Rights) -> Answer<End> {
        let Some(end) = address.checked_add(size) else {
            return invalid();
        };
        if let Some((base, memory)) = self.ordinary_at(address) {
            demand(end <= base + memory.size)?;
            demand(memory.device == device || self.config.peers(device, memory.device))?;
            return Ok(End::Device(vec![memory.segment(base, address, size)]));
        }
        if self.mapping_at(address).is_none() {
            self.demand_registered(address..end, needed)?;
            return Ok(End::Host(Raw::at(address)));
        }
        let place = Place::Device(device as i32);
        let segments = self.segments(address..end, |mapping| mapping.rights.of(place) >= needed)?;
        Ok(End::Device(segments))
    }

    /// A buffer of the host, which may be memory of ours if the process can touch it.
    fn host_end(&self, buffer: Raw, size: u64, needed: Rights) -> Answer<End> {
        buffer.wanted()?;
        let start = buffer.bits() as u64;
        let Some(end) = start.checked_add(size) else {
            return invalid();
        };
        if self.config.ledger_only || !self.is_ours(start..end) {
            return Ok(End::Host(buffer));
        }
        if let Some((base, memory)) = self.ordinary_at(start) {
            demand(end <= base + memory.size)?;
            return Ok(End::Host(buffer));
        }
        self.segments(start..end, |mapping| mapping.rights.strongest() >= needed)?;
        Ok(End::Host(buffer))
    }

    /// Whether an address is one of device memory, or of registered memory.
    pub(super) fn knows(&self, address: u64) -> bool {
        let next = address.saturating_add(1);
        self.is_ours(address..next) || self.registered_at(address).is_some()
    }

    /// Whether any address of the range is reserved, mapped or allocated here.
    fn is_ours(&self, range: Range<u64>) -> bool {
        let starts_inside = self.reservation_at(range.start).is_some()
            || self.mapping_at(range.start).is_some()
            || self.ordinary_at(range.start).is_some();
        starts_inside
            || self.reservations.range(range.clone()).next().is_some()
            || self.ordinary.range(range).next().is_some()
    }

    /// The mapped segments of a range without a hole, each of which must pass.
    fn segments(
        &self,
        range: Range<u64>,
        passes: impl Fn(&super::map::Mapping) -> bool,
    ) -> Answer<Vec<Segment>> {
        let mut segments = Vec::new();
        let mut from = range.start;
        while from < range.end {
            let Some((base, mapping)) = self.mapping_at(from) else {
                return invalid();
            };
            demand(passes(mapping))?;
            let end = (base + mapping.size).min(range.end);
            let store = &self.physical(mapping.physical)?.store;
            segments.push(Segment {
                address: from,
                size: end - from,
                pages: store.pages(),
                offset: from - base,
            });
            from = end;
        }
        Ok(segments)
    }
}
