//! Addresses: reserved and given back.

use std::ops::Range;

use crate::sys::CUresult;

use super::abi::Out;
use super::{demand, refuse, Answer, State};

/// What a hint must be a multiple of, besides the granularity.
const PAGE: u64 = 4096;

/// Where the addresses of a process end: 128 TiB on x86-64.
const END: u64 = 1 << 47;

/// An alignment from which on no address is found: from here to the end there is but one multiple of it besides 0.
const TOO_FAR_APART: u64 = 1 << 46;

/// How many granules stay free on either side of a range, unless a hint asks for less: a mapping may run over the end
/// of its reservation, and should not meet a neighbour at once.
const GAP: u64 = 16;

impl State {
    pub(super) fn cuMemAddressReserve(
        &mut self,
        address: Out<u64>,
        size: usize,
        alignment: usize,
        hint: u64,
        flags: u64,
    ) -> Answer {
        address.wanted()?;
        let (size, alignment) = (size as u64, alignment as u64);
        let granule = self.granule();
        demand(flags == 0)?;
        demand(size != 0 && size % granule == 0)?;
        demand(alignment == 0 || alignment.is_power_of_two() && alignment < 1 << 63)?;
        demand(hint % PAGE == 0 && hint % granule == 0)?;
        let alignment = alignment.max(granule);
        demand(hint % alignment == 0)?;
        if hint >= END || alignment >= TOO_FAR_APART {
            return refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let base = self.take_addresses(size, alignment, hint)?;
        self.reservations.insert(base, size);
        address.put(base)
    }

    /// Takes exactly what was reserved, and only when nothing is mapped in it.
    pub(super) fn cuMemAddressFree(&mut self, address: u64, size: usize) -> Answer {
        let size = size as u64;
        demand(size != 0 && self.reservations.get(&address) == Some(&size))?;
        demand(self.first_mapping_in(address..address + size).is_none())?;
        self.reservations.remove(&address);
        self.give_addresses(address..address + size);
        Ok(())
    }

    /// Addresses for a reservation or an ordinary allocation: at the hint if it is free, or anywhere.
    pub(super) fn take_addresses(&mut self, size: u64, alignment: u64, hint: u64) -> Answer<u64> {
        let left = self.config.address_space - self.reserved_bytes;
        if size > left {
            return refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let hinted = hint != 0 && hint % alignment == 0 && self.take_exactly(hint, size);
        let base = if hinted {
            Some(hint)
        } else {
            self.take_anywhere(size, alignment)
        };
        let Some(base) = base else {
            return refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        };
        self.reserved_bytes += size;
        Ok(base)
    }

    pub(super) fn give_addresses(&mut self, range: Range<u64>) {
        self.reserved_bytes -= range.end - range.start;
        self.give_back(range);
    }

    /// Makes addresses free, and hands arenas back that were got for one large reservation.
    pub(super) fn give_back(&mut self, range: Range<u64>) {
        let start = range.start;
        self.space.give(range);
        self.trim(start);
    }

    fn trim(&mut self, address: u64) {
        let Some(free) = self.space.around(address) else {
            return;
        };
        for gone in self.backend.shrink(&free) {
            self.space.take(gone);
        }
    }

    fn take_exactly(&mut self, start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size) else {
            return false;
        };
        if !self.claim(start..end) {
            return false;
        }
        let taken = self.space.take(start..end);
        if !taken {
            // Part of it is another reservation's: the rest was claimed in vain.
            self.trim(start);
            self.trim(end - 1);
        }
        taken
    }

    fn take_anywhere(&mut self, size: u64, alignment: u64) -> Option<u64> {
        let gap = GAP * self.granule();
        if let Some(base) = self.space.place(size, alignment, gap) {
            return Some(base);
        }
        let bytes = size.checked_add(alignment)?.checked_add(2 * gap)?;
        let arena = self.backend.grow(bytes)?;
        self.space.give(arena);
        self.space.place(size, alignment, gap)
    }

    /// Makes all addresses of a range ours, as far as nobody else of the process has them.
    pub(super) fn claim(&mut self, range: Range<u64>) -> bool {
        let Some(pieces) = self.backend.claim(range) else {
            return false;
        };
        for piece in pieces {
            self.space.give(piece);
        }
        true
    }

    /// The reservation an address lies in.
    pub(super) fn reservation_at(&self, address: u64) -> Option<Range<u64>> {
        let (&base, &size) = self.reservations.range(..=address).next_back()?;
        (address - base < size).then(|| base..base + size)
    }
}
