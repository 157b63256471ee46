//! Copies and fills: checked against the books, then done.

use std::ops::Range;

use crate::sys::Call;

use super::super::misuse::MisuseKind;
use super::super::place::{Place, Rights};
use super::abi::{Raw, Token};
use super::store::{End, Segment};
use super::{demand, invalid, Answer, State};

/// What a stream can be given to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// From the host.
    Upload { to: u64, from: Raw, size: u64 },
    /// To the host.
    Download { to: Raw, from: u64, size: u64 },
    /// From one address to another.
    Copy { to: u64, from: u64, size: u64 },
    /// The same byte everywhere.
    Fill { to: u64, value: u8, size: u64 },
}

/// Work whose ends were found.
enum Task {
    Move { to: End, from: End, size: u64 },
    Fill { to: Vec<Segment>, value: u8 },
    Nothing,
}

impl Work {
    /// The device addresses it touches.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends().map(|(range, _)| range)
    }

    /// The device addresses it touches, and what it needs to do there.
    fn ends(&self) -> impl Iterator<Item = (Range<u64>, Rights)> {
        let (to, from) = match *self {
            Work::Upload { to, .. } | Work::Fill { to, .. } => (Some(to), None),
            Work::Download { from, .. } => (None, Some(from)),
            Work::Copy { to, from, .. } => (Some(to), Some(from)),
        };
        let size = self.size();
        let end = move |start: u64, needed| (start..start.saturating_add(size), needed);
        let target = to.map(|to| end(to, Rights::ReadWrite));
        let source = from.map(|from| end(from, Rights::Read));
        target.into_iter().chain(source)
    }

    fn size(&self) -> u64 {
        match *self {
            Work::Upload { size, .. }
            | Work::Download { size, .. }
            | Work::Copy { size, .. }
            | Work::Fill { size, .. } => size,
        }
    }
}

impl State {
    pub(super) fn cuMemcpyHtoD_v2(&mut self, to: u64, from: Raw, size: usize) -> Answer {
        let size = size as u64;
        self.at_once(Call::cuMemcpyHtoD_v2, Work::Upload { to, from, size })
    }

    pub(super) fn cuMemcpyDtoH_v2(&mut self, to: Raw, from: u64, size: usize) -> Answer {
        let size = size as u64;
        self.at_once(Call::cuMemcpyDtoH_v2, Work::Download { to, from, size })
    }

    pub(super) fn cuMemcpyDtoD_v2(&mut self, to: u64, from: u64, size: usize) -> Answer {
        let size = size as u64;
        self.at_once(Call::cuMemcpyDtoD_v2, Work::Copy { to, from, size })
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
        let size = size as u64;
        let work = Work::Upload { to, from, size };
        self.in_order(Call::cuMemcpyHtoDAsync_v2, stream, work)
    }

    pub(super) fn cuMemcpyDtoHAsync_v2(
        &mut self,
        to: Raw,
        from: u64,
        size: usize,
        stream: Token,
    ) -> Answer {
        let size = size as u64;
        let work = Work::Download { to, from, size };
        self.in_order(Call::cuMemcpyDtoHAsync_v2, stream, work)
    }

    pub(super) fn cuMemcpyDtoDAsync_v2(
        &mut self,
        to: u64,
        from: u64,
        size: usize,
        stream: Token,
    ) -> Answer {
        let size = size as u64;
        let work = Work::Copy { to, from, size };
        self.in_order(Call::cuMemcpyDtoDAsync_v2, stream, work)
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

    /// Checked when it is given to the stream, as the driver does, and again when its turn comes.
    fn in_order(&mut self, call: Call, stream: Token, work: Work) -> Answer {
        let current = self.working_device()?;
        let stream = self.resolve_stream(call, stream, current)?;
        let device = self.stream_device(stream)?;
        self.healthy(device)?;
        let task = self.prepare(device, work)?;
        self.survives(call, work)?;
        match self.defers(stream) {
            true => self.enqueue(stream, work),
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
            Task::Fill { to, value } => self.backend.fill(&to, value),
            Task::Nothing => {}
        }
    }

    /// Refuses what a real driver does not refuse, but dies of.
    fn survives(&mut self, call: Call, work: Work) -> Answer {
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
        if size == 0 {
            return Ok(Task::Nothing);
        }
        let source = |at| self.device_end(device, at, size, Rights::Read);
        let target = |at| self.device_end(device, at, size, Rights::ReadWrite);
        Ok(match work {
            Work::Upload { to, from, .. } => Task::Move {
                to: End::Device(target(to)?),
                from: self.host_end(from, size, Rights::Read)?,
                size,
            },
            Work::Download { to, from, .. } => Task::Move {
                to: self.host_end(to, size, Rights::ReadWrite)?,
                from: End::Device(source(from)?),
                size,
            },
            Work::Copy { to, from, .. } => Task::Move {
                to: End::Device(target(to)?),
                from: End::Device(source(from)?),
                size,
            },
            Work::Fill { to, value, .. } => Task::Fill {
                to: target(to)?,
                value,
            },
        })
    }

    /// The segments behind device addresses, all of them mapped and granted.
    fn device_end(
        &self,
        device: usize,
        address: u64,
        size: u64,
        needed: Rights,
    ) -> Answer<Vec<Segment>> {
        let Some(end) = address.checked_add(size) else {
            return invalid();
        };
        if let Some((base, memory)) = self.ordinary_at(address) {
            demand(end <= base + memory.size)?;
            demand(memory.device == device || self.config.peers(device, memory.device))?;
            return Ok(vec![memory.segment(base, address, size)]);
        }
        let place = Place::Device(device as i32);
        self.segments(address..end, |mapping| mapping.rights.of(place) >= needed)
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
