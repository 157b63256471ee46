//! Contents to the host: all members' before any memory goes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::host::{Block, HostCopy, Piece};
use super::lane::Lane;
use super::member::Backup;
use super::touching::{touching, Touching};
use super::Group;
use crate::access::Access;
use crate::device::Device;
use crate::driver::Calls;
use crate::error::{Error, Result};
use crate::reservation::Reservation;

/// A member's contents on the host, and what has to be undone if the member stays.
pub(super) struct Outgoing {
    pub(super) copy: HostCopy,
    /// What a device was let read for the copy.
    granted: Vec<(Range<usize>, u32)>,
}

impl Group {
    /// Copies the contents of those of these members that are to keep them, or after a failure of none.
    pub(super) fn copy_out(&mut self, numbers: &[u64]) -> Result<BTreeMap<u64, Outgoing>> {
        let mut outgoing = BTreeMap::new();
        for number in numbers {
            if !self.keeps(*number) {
                continue;
            }
            match self.prepare(*number) {
                Ok(one) => drop(outgoing.insert(*number, one)),
                Err(error) => return Err(self.take_back(outgoing, error)),
            }
        }
        match self.run_copies(&outgoing) {
            Ok(()) => Ok(outgoing),
            Err(error) => Err(self.take_back(outgoing, error)),
        }
    }

    fn keeps(&self, number: u64) -> bool {
        let slot = self.slots.get(&number);
        slot.is_some_and(|slot| slot.backup == Backup::Host)
    }

    /// Undoes what was done for copies that are not needed: the members stay as they are.
    pub(super) fn take_back(&mut self, outgoing: BTreeMap<u64, Outgoing>, error: Error) -> Error {
        let mut undo = Vec::new();
        for (number, one) in outgoing.into_iter().rev() {
            if let Some(member) = self.member(number) {
                undo.extend(member.forbid_copiers(one.granted));
            }
            self.pool.put_back(one.copy.blocks);
        }
        error.with_undo(undo)
    }

    fn prepare(&mut self, number: u64) -> Result<Outgoing> {
        let size = self.member(number).map_or(0, Reservation::own_bytes);
        let copy = self.pool.take(size)?;
        let member = self.member(number);
        match member.map_or(Ok(Vec::new()), Reservation::let_copiers_read) {
            Ok(granted) => Ok(Outgoing { copy, granted }),
            Err(error) => {
                self.pool.put_back(copy.blocks);
                Err(error)
            }
        }
    }

    /// Touches and registers what is new of the host's memory, block by block, and copies to each block while the next
    /// ones are being made; device by device.
    fn run_copies(&self, outgoing: &BTreeMap<u64, Outgoing>) -> Result<()> {
        let mut work: Vec<(&Block, Vec<Piece>)> = Vec::new();
        for (number, one) in outgoing {
            let Some(member) = self.member(*number) else {
                continue;
            };
            let segments = member.segments(0..member.size(), Access::Read);
            let pieces = one.copy.cut(0, &segments);
            for (index, block) in one.copy.blocks.iter().enumerate() {
                let in_it = pieces.iter().filter(|piece| piece.block == index);
                work.push((block, in_it.copied().collect()));
            }
        }
        let devices: BTreeSet<u32> = work
            .iter()
            .flat_map(|(_, pieces)| pieces.iter().map(|piece| piece.segment.device))
            .collect();
        if devices.is_empty() {
            return Ok(());
        }
        let fresh = work.iter().filter(|(block, _)| block.fresh);
        let pages = fresh.filter_map(|(block, _)| block.pages()).collect();
        touching(pages, |touched| {
            for ordinal in devices {
                let device = self.driver.device(ordinal)?;
                self.driver.with_context(device.raw(), |calls| {
                    self.on_device(calls, &device, &work, touched)
                })?;
            }
            Ok(())
        })
    }

    /// What a device has to copy. After a failure nothing is copied any more.
    fn on_device(
        &self,
        calls: &Calls,
        device: &Device,
        work: &[(&Block, Vec<Piece>)],
        touched: &Touching<'_>,
    ) -> Result<()> {
        let lane = Lane::open(calls)?;
        let copied = self.enqueue_all(calls, device, work, touched, &lane);
        let ended = lane.end();
        let failures = copied.err().into_iter().chain(ended.err());
        Error::first_of(failures.collect())
    }

    fn enqueue_all(
        &self,
        calls: &Calls,
        device: &Device,
        work: &[(&Block, Vec<Piece>)],
        touched: &Touching<'_>,
        lane: &Lane<'_>,
    ) -> Result<()> {
        let mut new = 0;
        for (block, pieces) in work {
            let index = new;
            new += usize::from(block.fresh);
            let mut pieces = pieces
                .iter()
                .filter(|piece| piece.segment.device == device.ordinal())
                .peekable();
            let Some(pages) = block.pages().filter(|_| pieces.peek().is_some()) else {
                continue;
            };
            if block.fresh {
                touched.wait(index);
            }
            match block.register(calls, device.raw()) {
                Err(_) if self.unregistered => {}
                registered => registered?,
            }
            for piece in pieces {
                let segment = piece.segment;
                let to = (pages, piece.at);
                calls.enqueue_to_host(to, segment.address, segment.size, lane.stream())?;
            }
        }
        Ok(())
    }
}
