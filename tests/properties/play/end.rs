//! The end of a reservation.

use std::ptr::null_mut;

use cuda_vmm::sim::Value;
use cuda_vmm::sys::{CUresult, Call, DriverCalls};
use cuda_vmm::{Allocation, CloseError, Code, Error};

use super::gives_up;
use crate::leaks;
use crate::model::{Area, Backing, Mapped, Number};
use crate::operation::{Wait, Which};
use crate::verdict::{failed, word};
use crate::world::World;

impl World {
    pub fn close(&mut self, kv: Which, wait: Wait) -> Option<()> {
        let at = self.kv(kv)?;
        let kv = self.kvs.remove(at);
        let result = match self.fence(wait) {
            None => kv.close(),
            Some(fence) => kv.close_after(fence),
        };
        self.look();
        match (result, gives_up(wait)) {
            (Err(unclosed), Some(error)) => {
                assert_eq!(format!("{:?}", unclosed.error), format!("{error:?}"));
                assert_eq!(self.log, [], "the wait failed before anything was undone");
                assert_eq!((unclosed.further.len(), unclosed.kept.len()), (0, 0));
                self.kvs.insert(at, unclosed.reservation.into_inner());
            }
            (Ok(()), Some(_)) => panic!("the wait failed, and yet it was closed"),
            (Ok(()), None) => {
                self.in_reverse(at);
                self.closed(at);
            }
            (Err(unclosed), None) => self.unclosed(at, *unclosed),
        }
        Some(())
    }

    pub fn close_keeping(&mut self, kv: Which) -> Option<()> {
        let at = self.kv(kv)?;
        let result = self.kvs.remove(at).close_keeping();
        self.look();
        self.in_reverse(at);
        let handed = self.handed_over(&self.model.areas[at]);
        match result {
            Ok(kept) => {
                self.keep(at, kept, &handed);
                self.closed(at);
            }
            Err(mut unclosed) => {
                self.keep(at, std::mem::take(&mut unclosed.kept), &handed);
                self.unclosed(at, *unclosed);
            }
        }
        Some(())
    }

    /// What has a count that nobody else holds and is unmapped, by order of mapping.
    fn handed_over(&self, area: &Area) -> Vec<(usize, Number)> {
        let stays = |offset: &usize| self.failed_at(Call::cuMemUnmap, area.base + *offset as u64);
        let mut order: Vec<_> = area.mapped.iter().collect();
        order.sort_by_key(|(_, mapped)| mapped.number);
        let mut seen = Vec::new();
        let mut handed = Vec::new();
        for (offset, mapped) in order {
            let goes = match mapped.backing {
                Backing::Own => !stays(offset),
                Backing::GivenUp => false,
                // A share goes with the last of its mappings, which is the first that was made.
                Backing::Share(share) => {
                    let first = !seen.contains(&share);
                    seen.push(share);
                    let backs = |mapped: &Mapped| mapped.backing == Backing::Share(share);
                    let mut mine = area.mapped.iter();
                    let held = mine.any(|(offset, mapped)| backs(mapped) && stays(offset));
                    let others = self.model.areas.iter();
                    let others = others.filter(|other| other.number != area.number);
                    let mut theirs = others.flat_map(|other| other.mapped.values());
                    let held = held || self.model.pages.contains(&share) || theirs.any(backs);
                    first && !held
                }
            };
            if goes {
                handed.push((*offset, mapped.memory));
            }
        }
        handed
    }

    fn keep(&mut self, at: usize, kept: Vec<(usize, Allocation)>, handed: &[(usize, Number)]) {
        let told: Vec<_> = kept
            .iter()
            .map(|(offset, page)| (*offset, page.raw()))
            .collect();
        let handle = |memory: &Number| self.model.memories[memory].handle;
        let expected: Vec<_> = handed
            .iter()
            .map(|(offset, memory)| (*offset, handle(memory)))
            .collect();
        assert_eq!(told, expected, "left: handed over; right: the model");
        for ((offset, page), (_, memory)) in kept.into_iter().zip(handed) {
            self.model.areas[at].mapped.remove(&offset);
            self.add_page(page, *memory);
        }
    }

    /// The addresses went last, and nothing had failed.
    fn closed(&mut self, at: usize) {
        assert_eq!(self.failures(), []);
        self.model.areas.remove(at);
        let last = self.log.last().map(|record| record.call);
        assert_eq!(last, Some(Call::cuMemAddressFree));
    }

    /// What was made last is unmapped first, each mapping by itself.
    fn in_reverse(&self, at: usize) {
        let area = &self.model.areas[at];
        let unmaps = self
            .log
            .iter()
            .filter(|record| record.call == Call::cuMemUnmap);
        let numbers = unmaps.map(|record| {
            let address = word(record, "address").expect("it has one");
            area.mapped[&((address - area.base) as usize)].number
        });
        let mut order: Vec<_> = area.mapped.values().map(|mapped| mapped.number).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(
            numbers.collect::<Vec<_>>(),
            order,
            "left: unmapped; right: reverse order"
        );
    }

    /// The error tells every failure, and the reservation is what the driver did not let go.
    fn unclosed(&mut self, at: usize, unclosed: CloseError) {
        assert!(self.disturbed, "{unclosed}: {}", self.calls());
        let errors: Vec<&Error> = std::iter::once(&unclosed.error)
            .chain(&unclosed.further)
            .collect();
        let named: Vec<_> = errors.into_iter().map(failed).collect();
        let failures: Vec<_> = self.failures().into_iter().map(Some).collect();
        assert_eq!(
            named,
            failures,
            "left: the error; right: the log: {}",
            self.calls()
        );
        assert!(!failures.is_empty());
        self.kvs.insert(at, unclosed.reservation.into_inner());

        let begun = |record: &&cuda_vmm::sim::CallRecord| is_teardown(record.call);
        if !self.failed().into_iter().any(|record| begun(&record)) {
            // The wait failed: the closing did not begin.
            return;
        }
        let base = self.model.areas[at].base;
        let stay: Vec<usize> = self.model.areas[at]
            .mapped
            .keys()
            .copied()
            .filter(|offset| self.failed_at(Call::cuMemUnmap, base + *offset as u64))
            .collect();
        // That it is mapped is contradicted by an INVALID_VALUE.
        let invalid = |offset: &&usize| {
            let failure = self.failure_at(Call::cuMemUnmap, base + **offset as u64);
            failure == Some(Code::ERROR_INVALID_VALUE)
        };
        let contradicted: Vec<usize> = stay.iter().filter(invalid).copied().collect();
        let stuck = self.unreleased();
        let area = &mut self.model.areas[at];
        area.mapped.retain(|offset, _| stay.contains(offset));
        for (offset, mapped) in &mut area.mapped {
            mapped.quarantined |= contradicted.contains(offset);
        }
        area.stuck = stuck;
    }

    /// The hook is told of everything that failed, and that is all that is left.
    pub fn drop_reservation(&mut self, kv: Which) -> Option<()> {
        let at = self.kv(kv)?;
        drop(self.kvs.remove(at));
        self.look();
        self.in_reverse(at);
        assert_eq!(
            leaks::take(),
            self.failures(),
            "left: the hook; right: the log"
        );
        let area = self.model.areas.remove(at);
        let unmap_failed = self
            .failures()
            .iter()
            .any(|(call, _)| *call == Call::cuMemUnmap);
        let frees = self
            .log
            .iter()
            .filter(|record| record.call == Call::cuMemAddressFree);
        assert_eq!(
            frees.count(),
            usize::from(!unmap_failed),
            "{}",
            self.calls()
        );
        let free_failed = self.failed_at(Call::cuMemAddressFree, area.base);
        self.make_good();
        if unmap_failed || free_failed {
            self.model.leaked.push((area.base, area.size));
        }
        Some(())
    }

    /// Makes the unmaps and releases that failed once more, so that what `Drop` leaked is not left. They must succeed:
    /// what was leaked is still there, once. Addresses stay leaked, as the crate believes them to be.
    pub fn make_good(&mut self) {
        for record in self.failed() {
            let answer = match record.call {
                Call::cuMemRelease => {
                    let handle = word(record, "handle").expect("it has one");
                    unsafe { self.watch.cuMemRelease(handle) }
                }
                Call::cuMemUnmap => {
                    let address = word(record, "address").expect("it has one");
                    let Some(Value::Size(size)) = record.arg("size") else {
                        panic!("{record} has no size");
                    };
                    unsafe { self.watch.cuMemUnmap(address, *size) }
                }
                Call::cuMemAddressFree => continue,
                other => panic!("a drop does not call {other}"),
            };
            assert_eq!(answer, CUresult::CUDA_SUCCESS, "{record}");
        }
    }

    /// Frees the addresses that were leaked, when nothing is to be reserved any more.
    pub fn free_leaked(&mut self) {
        for (base, size) in self.model.leaked.drain(..) {
            let freed = unsafe { self.watch.cuMemAddressFree(base, size) };
            assert_eq!(freed, CUresult::CUDA_SUCCESS);
        }
    }

    /// Takes off the context that stays current where taking it off failed twice in a step.
    pub fn take_off(&mut self) {
        let failed = self.failures().into_iter();
        let pops = failed.filter(|(call, _)| *call == Call::cuCtxPopCurrent_v2);
        if pops.count() >= 2 {
            let popped = unsafe { self.watch.cuCtxPopCurrent_v2(null_mut()) };
            assert_eq!(popped, CUresult::CUDA_SUCCESS);
        }
    }
}

fn is_teardown(call: Call) -> bool {
    matches!(
        call,
        Call::cuMemUnmap | Call::cuMemRelease | Call::cuMemAddressFree
    )
}
