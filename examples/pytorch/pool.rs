//! The memory of all devices: an elastic range each, divided by a heap, and put to sleep together.
//!
//! Everything is changed through `&mut`: the C border has one lock over it. That lock is held while the driver is
//! called and while a device is waited for, so that nobody is given memory that is about to go. Work on the devices
//! must therefore not wait for a thread that allocates; PyTorch's never does.

use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;

use cuda_vmm::suspend::{Backup, Group, Incomplete, Key, Select, Suspended, Unclosed};
use cuda_vmm::sys::CUresult;
use cuda_vmm::{Access, AllocationProps, Device, Driver, ElasticRange};

use crate::failure::Failure;
use crate::heap::{Heap, Stream};

/// The least memory that is made at a time: copies run at nearly full speed over blocks of this size.
pub const UNIT: usize = 32 << 20;

/// The greatest single handle.
const GREATEST: usize = 1 << 30;

pub struct Pool {
    driver: Driver,
    group: Group,
    devices: BTreeMap<u32, Place>,
    asleep: bool,
}

/// What there is of a device.
struct Place {
    device: Device,
    key: Key<ElasticRange>,
    base: u64,
    heap: Heap,
}

/// What is counted, over all devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Bytes with memory beneath them, used or free, or that will have it again when they are resumed.
    Committed,
    /// Bytes of physical memory.
    Retained,
    /// Bytes given out, rounded up to what pieces are multiples of.
    Used,
}

impl Pool {
    /// Takes no memory.
    pub fn new(driver: &Driver) -> Pool {
        Pool {
            driver: driver.clone(),
            group: Group::new(driver).keep_host_memory(true),
            devices: BTreeMap::new(),
            asleep: false,
        }
    }

    /// A piece for so many bytes, not 0, to be used on a stream of the device.
    pub fn malloc(&mut self, asked: usize, device: u32, stream: Stream) -> Result<u64, Failure> {
        if self.asleep {
            return Err(Failure::Asleep);
        }
        let group = &mut self.group;
        let place = match self.devices.entry(device) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Place::reserve(&self.driver, group, device)?),
        };
        let taken = match place.heap.take(asked, stream) {
            Some(at) => Ok(at),
            None => place.grow(group, asked, stream),
        };
        match taken {
            Ok(at) => Ok(place.base + at as u64),
            Err(failure) if failure.is_shortage() => {
                // What other streams gave back may be taken once they are idle, and what is free as a whole may be
                // made anew elsewhere.
                place.settle()?;
                if let Some(at) = place.heap.take(asked, stream) {
                    return Ok(place.base + at as u64);
                }
                place.decommit_free(group)?;
                let at = place.grow(group, asked, stream)?;
                Ok(place.base + at as u64)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Takes a piece back for which so many bytes were asked. The stream is the one that used it last. No driver call
    /// is made, so that this works asleep, too, and when the process ends.
    pub fn free(
        &mut self,
        address: u64,
        size: usize,
        device: u32,
        stream: Stream,
    ) -> Result<(), Failure> {
        let place = self.devices.get_mut(&device);
        let place = place.ok_or(Failure::Device(device as i32))?;
        // An address below the base becomes an offset that nothing starts at.
        let at = address.wrapping_sub(place.base) as usize;
        let given = place.heap.give(at, size, stream);
        given.map_err(|why| Failure::NotGiven {
            address,
            size,
            device,
            why,
        })
    }

    /// Waits for all devices, decommits what is free in whole units, and gives the number of bytes of their memory that
    /// went back. Host memory that held contents in an earlier sleep goes back to the system.
    pub fn trim(&mut self) -> Result<usize, Failure> {
        if self.asleep {
            return Err(Failure::Asleep);
        }
        let bytes = self.trim_devices()?;
        self.group.trim()?;
        Ok(bytes)
    }

    /// Waits for all devices, gives all physical memory back, and tells how many bytes that were. Addresses stay;
    /// contents are kept on the host, or go.
    ///
    /// After a failure everything is as before, but that free memory may have been trimmed, and contents that were not
    /// to be kept may have gone; unless the failure says that a part is suspended still.
    pub fn suspend(&mut self, backup: Backup) -> Result<usize, Failure> {
        if self.asleep {
            return Err(Failure::AlreadyAsleep);
        }
        let trimmed = self.trim_devices()?;
        self.say_backup(backup)?;
        match self.group.suspend(Select::All) {
            Ok(done) => {
                self.asleep = true;
                Ok(trimmed + done.given_back)
            }
            Err(suspending) => Err(self.half_asleep(suspending)),
        }
    }

    /// Puts memory back where it was. After a failure it can be called again.
    pub fn resume(&mut self) -> Result<(), Failure> {
        if !self.asleep {
            return Err(Failure::Awake);
        }
        self.group.resume(Select::All).map_err(Failure::Resuming)?;
        self.asleep = false;
        Ok(())
    }

    pub fn bytes(&self, count: Count) -> usize {
        let heaps = self.devices.values();
        heaps
            .map(|place| match count {
                Count::Committed => place.heap.backed_bytes(),
                Count::Used => place.heap.used_bytes(),
                // Asleep, there is none.
                Count::Retained => self
                    .group
                    .get(&place.key)
                    .map_or(0, ElasticRange::retained_bytes),
            })
            .sum()
    }

    /// Gives everything back, whoever uses it. A process just ends.
    #[allow(dead_code)] // For tests/torch_allocator.
    pub fn close(self) -> Result<(), Box<Unclosed>> {
        self.group.close()
    }

    fn trim_devices(&mut self) -> Result<usize, Failure> {
        self.devices.values_mut().try_fold(0, |bytes, place| {
            place.settle()?;
            Ok(bytes + place.decommit_free(&mut self.group)?)
        })
    }

    /// A group is told what becomes of contents as a member is added, and here it is chosen each time: members are
    /// taken out and added again, which makes no driver call.
    fn say_backup(&mut self, backup: Backup) -> Result<(), Failure> {
        for (ordinal, place) in &mut self.devices {
            let range = self.group.remove(&place.key)?;
            place.key = add(&mut self.group, range, *ordinal, backup)?;
        }
        Ok(())
    }

    /// Wakes what went to sleep before another member failed to.
    fn half_asleep(&mut self, suspending: Box<Incomplete<Suspended>>) -> Failure {
        let asleep: &[_] = &suspending.done.members;
        match self.group.resume(asleep) {
            Ok(_) => Failure::Suspending(suspending),
            Err(resuming) => {
                self.asleep = true;
                Failure::HalfAsleep {
                    suspending,
                    resuming,
                }
            }
        }
    }
}

impl Place {
    /// Reserves addresses: twice as many as the device has memory, rounded up to a power of two, so that there is a
    /// row of them for a large piece, too, when pieces that stay have cut others short.
    fn reserve(driver: &Driver, group: &mut Group, ordinal: u32) -> Result<Place, Failure> {
        let device = driver.device(ordinal)?;
        let size = (2 * device.total_memory()?.max(UNIT)).next_power_of_two();
        let range = ElasticRange::builder(size, &AllocationProps::on(&device))
            .access(&device, Access::ReadWrite)
            .blocks(UNIT..=GREATEST)
            .reserve()?;
        Ok(Place {
            base: range.base(),
            key: add(group, range, ordinal, Backup::Host)?,
            heap: Heap::new(size, UNIT),
            device,
        })
    }

    /// Commits what a piece of this size lacks, and takes it.
    fn grow(&mut self, group: &mut Group, asked: usize, stream: Stream) -> Result<usize, Failure> {
        let part = self
            .heap
            .wants(asked, stream)
            .ok_or_else(|| self.no_addresses(asked))?;
        let range = group.get_mut(&self.key)?;
        if let Err(error) = range.commit(part.start, part.len()) {
            return Err(match error.is_out_of_memory() {
                true => Failure::OutOfMemory {
                    asked,
                    device: self.device.ordinal(),
                    committed: self.heap.backed_bytes(),
                    used: self.heap.used_bytes(),
                    error,
                },
                false => Failure::Driver(error),
            });
        }
        self.heap.fill(part, stream);
        let taken = self.heap.take(asked, stream);
        taken.ok_or_else(|| self.no_addresses(asked))
    }

    fn no_addresses(&self, asked: usize) -> Failure {
        Failure::NoAddresses {
            asked,
            device: self.device.ordinal(),
            reserved: self.heap.size(),
            used: self.heap.used_bytes(),
        }
    }

    /// Waits for all work of the device, whatever stream it is on: what is free is then free for all.
    ///
    /// Work of PyTorch's streams is not behind the default stream, so that a fence of that one would not do.
    #[allow(unsafe_code)]
    fn settle(&mut self) -> Result<(), Failure> {
        let current = self.device.make_current()?;
        // SAFETY: takes nothing; the device's context is current as long as the guard lives.
        let status = unsafe { self.device.driver().calls_raw().cuCtxSynchronize() };
        drop(current);
        if status != CUresult::CUDA_SUCCESS {
            return Err(Failure::Wait {
                device: self.device.ordinal(),
                code: status.into(),
            });
        }
        self.heap.settle();
        Ok(())
    }

    /// Decommits what is free in whole units, of a device that is idle; gives the bytes of physical memory that went.
    fn decommit_free(&mut self, group: &mut Group) -> Result<usize, Failure> {
        let range = group.get_mut(&self.key)?;
        let mut released = 0;
        for Range { start, end } in self.heap.free_units() {
            released += range.decommit(start, end - start)?.released;
            self.heap.dig(start..end);
        }
        Ok(released)
    }
}

impl Failure {
    /// Whether there may be room once others' memory is given back.
    fn is_shortage(&self) -> bool {
        matches!(
            self,
            Failure::OutOfMemory { .. } | Failure::NoAddresses { .. }
        )
    }
}

fn add(
    group: &mut Group,
    range: ElasticRange,
    ordinal: u32,
    backup: Backup,
) -> Result<Key<ElasticRange>, Failure> {
    let added = group.add(range, format!("device {ordinal}"), backup);
    // Of another driver it would be refused, which it never is.
    added.map_err(|refused| Failure::Driver(refused.error))
}
