//! Ordinary device memory: `cuMemAlloc`, and how much is left.

use crate::sys::CUresult;

use super::super::place::{Place, Rights};
use super::abi::Out;
use super::store::{Origin, Segment, Store};
use super::{demand, refuse, Answer, Refusal, State};

/// An allocation of `cuMemAlloc`. It belongs to a context and goes with it.
#[derive(Debug)]
pub(super) struct Ordinary {
    /// What was asked for.
    pub(super) size: u64,
    pub(super) device: usize,
    /// Counted together with the [`Physical`](super::allocate::Physical) ones.
    pub(super) number: u64,
    /// What was taken: whole granules.
    taken: u64,
    store: Store,
}

impl Ordinary {
    pub(super) fn segment(&self, base: u64, from: u64, size: u64) -> Segment {
        Segment {
            address: from,
            size,
            pages: self.store.pages(),
            offset: from - base,
        }
    }
}

impl State {
    pub(super) fn cuMemGetInfo_v2(&mut self, free: Out<usize>, total: Out<usize>) -> Answer {
        let device = self.working_device()?;
        self.reap();
        free.put_if_wanted(self.free_bytes(Place::Device(device as i32)) as usize);
        total.put_if_wanted(self.config.devices[device].memory as usize);
        Ok(())
    }

    pub(super) fn cuMemAlloc_v2(&mut self, address: Out<u64>, size: usize) -> Answer {
        address.wanted()?;
        demand(size != 0)?;
        let device = self.working_device()?;
        let granule = self.config.devices[device].minimum as u64;
        let Some(taken) = (size as u64).checked_next_multiple_of(granule) else {
            return refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        };
        let place = Place::Device(device as i32);
        self.reap();
        self.charge(place, taken)?;
        match self.allocate(device, taken) {
            Ok((base, store)) => {
                let size = size as u64;
                self.issued_physicals += 1;
                self.ordinary.insert(
                    base,
                    Ordinary {
                        size,
                        device,
                        number: self.issued_physicals,
                        taken,
                        store,
                    },
                );
                address.put(base)
            }
            Err(refusal) => {
                self.discharge(place, taken);
                Err(refusal)
            }
        }
    }

    /// Waits for the work on the device first, as the driver does.
    pub(super) fn cuMemFree_v2(&mut self, address: u64) -> Answer {
        let Some(device) = self.ordinary.get(&address).map(|memory| memory.device) else {
            return refuse(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        self.working_device()?;
        self.wait_for_device(device)?;
        self.free(address)
    }

    /// Frees what a context leaves behind.
    pub(super) fn clear_ordinary(&mut self, device: usize) {
        let of_device = self.ordinary.iter().filter(|(_, of)| of.device == device);
        let bases: Vec<u64> = of_device.map(|(&base, _)| base).collect();
        for base in bases {
            // What the system will not unmap stays in the books, and a later free tries again.
            let _ = self.free(base);
        }
    }

    pub(super) fn ordinary_at(&self, address: u64) -> Option<(u64, &Ordinary)> {
        let (&base, memory) = self.ordinary.range(..=address).next_back()?;
        (address - base < memory.size).then_some((base, memory))
    }

    fn allocate(&mut self, device: usize, size: u64) -> Answer<(u64, Store)> {
        let place = Place::Device(device as i32);
        let origin = Origin::Device(self.uuid(device));
        let base = self.take_addresses(size, self.granule(), 0)?;
        let store = match self.backend.create(place, origin, size, false) {
            Ok(store) => store,
            Err(refusal) => {
                self.give_addresses(base..base + size);
                return Err(refusal);
            }
        };
        let mapped = self
            .backend
            .map(base, size, &store)
            .and_then(|()| self.backend.protect(base, size, Rights::ReadWrite));
        match mapped {
            Ok(()) => Ok((base, store)),
            Err(refusal) => Err(self.abandon(base, size, store, refusal)),
        }
    }

    /// Undoes an allocation that came half-way, and says why it did not come further.
    fn abandon(&mut self, base: u64, size: u64, store: Store, why: Refusal) -> Refusal {
        self.backend.destroy(store, size);
        if self.backend.unmap(base, size).is_ok() {
            self.give_addresses(base..base + size);
        }
        why
    }

    fn free(&mut self, base: u64) -> Answer {
        let Some(memory) = self.ordinary.get(&base) else {
            return Ok(());
        };
        let taken = memory.taken;
        self.backend.unmap(base, taken)?;
        if let Some(memory) = self.ordinary.remove(&base) {
            self.backend.destroy(memory.store, taken);
            self.discharge(Place::Device(memory.device as i32), taken);
            self.give_addresses(base..base + taken);
        }
        Ok(())
    }
}
