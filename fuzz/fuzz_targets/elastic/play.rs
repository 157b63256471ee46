//! The steps of a program, each on the range and on the model.

use std::ops::Range;

use cuda_vmm::{Access, Committed, Error, Fence, Resized, Result};

use crate::model::Model;
use crate::world::World;
use crate::{Op, Step};

/// How a part of the range is committed.
enum Growth {
    Commit,
    Resize,
    /// A piece of so many bytes, aligned to that, at an offset.
    Allocate(usize, usize, usize),
}

/// How a part of the range is decommitted.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    Now,
    After,
    Split,
}

impl World {
    /// So many granules from this one on, one at least, cut at the end of the range. Every second part is small, so that
    /// blocks are cut.
    pub fn part(&self, start: u8, len: u8) -> Range<usize> {
        let size = self.model.committed.len();
        let start = start as usize % size;
        let len = match len % 2 {
            0 => len as usize / 2 % 8,
            _ => len as usize % size,
        };
        start..(start + 1 + len).min(size)
    }

    pub fn play(&mut self, step: Step) {
        let size = self.model.committed.len();
        self.faulty = step.fault.is_some();
        if let Some(failing) = step.fault {
            self.sim.inject(failing.fault()).unwrap();
        }
        let before = self.model.clone();
        let split = matches!(step.op, Op::Split(..));
        match step.op {
            Op::Commit(start, len) => self.commit(before, self.part(start, len), &Growth::Commit),
            Op::Decommit(start, len) => self.decommit(before, self.part(start, len), Loss::Now),
            Op::DecommitAfter(start, len) => {
                self.decommit(before, self.part(start, len), Loss::After);
            }
            Op::Split(start, len) => self.decommit(before, self.part(start, len), Loss::Split),
            Op::Resize(len) => self.resize(before, len as usize % (size + 1)),
            Op::Trim(to) => self.trim(before, to),
            Op::Allocate(size, alignment) => self.allocate(before, size, alignment),
            Op::Policy(access) => self.policy(before, access),
            Op::Ask(start, len) => self.ask(start, len),
            Op::BadRange(which, start, len, odd) => self.bad_range(which, start, len, odd),
            Op::BadLength(len, odd) => self.bad_length(len, odd),
            Op::Unready(which, start, len) => self.unready(which, start, len),
        }
        self.sim.clear_faults();
        if self.undone {
            self.agree();
            self.look();
        } else {
            self.rescue(split);
        }
    }

    fn trim(&mut self, before: Model, to: u8) {
        let had = self.model.cached();
        let to = to as usize % (had + 2);
        self.model.shrink(to);
        match self.kv.trim(to * self.g) {
            Ok(bytes) => assert_eq!(bytes, (had - self.model.cached()) * self.g),
            Err(error) => self.failed(before, &error),
        }
    }

    fn policy(&mut self, before: Model, access: u8) {
        let access = [Access::None, Access::Read, Access::ReadWrite][access as usize % 3];
        match self.kv.set_policy(&self.devices[1], access) {
            Ok(()) => self.other = access,
            Err(error) => self.failed(before, &error),
        }
    }

    fn allocate(&mut self, before: Model, size: u8, alignment: u8) {
        let size = 1 + size as usize * self.g / 16;
        let alignment = 1 << (alignment % 17);
        let start = self.cursor.next_multiple_of(alignment);
        if start + size > self.kv.size() {
            let calls = self.sim.calls();
            let error = self.arena.allocate_in(&mut self.kv, size, alignment);
            let expected = Error::ArenaFull {
                size,
                alignment,
                largest: self.kv.size().saturating_sub(start),
            };
            assert_eq!(format!("{:?}", error.unwrap_err()), format!("{expected:?}"));
            assert_eq!(self.sim.calls(), calls);
            self.arena.reset();
            self.cursor = 0;
            return;
        }
        let beneath =
            |granule: &usize| granule * self.g < start + size && start < (granule + 1) * self.g;
        let granules: Vec<usize> = (0..before.committed.len()).filter(beneath).collect();
        let part = granules[0]..granules[granules.len() - 1] + 1;
        self.commit(before, part, &Growth::Allocate(size, alignment, start));
    }

    /// What was done, where it is told.
    fn grow(&mut self, asked: &Range<usize>, how: &Growth) -> Result<Option<Committed>> {
        match *how {
            Growth::Commit => {
                let (offset, bytes) = (asked.start * self.g, asked.len() * self.g);
                self.kv.commit(offset, bytes).map(Some)
            }
            Growth::Resize => match self.kv.resize(asked.end * self.g)? {
                Resized::Grown(done) => Ok(Some(done)),
                other => panic!("{other:?}"),
            },
            Growth::Allocate(size, alignment, start) => {
                let piece = self.arena.allocate_in(&mut self.kv, size, alignment)?;
                let address = self.kv.base() + start as u64;
                assert_eq!((piece.address(), piece.size()), (address, size));
                self.cursor = start + size;
                Ok(None)
            }
        }
    }

    fn commit(&mut self, before: Model, asked: Range<usize>, how: &Growth) {
        let (bytes, blocks, mapped, from_cache) = self.model.commit(asked.clone());
        let calls = self.sim.calls();
        let done = self.grow(&asked, how);
        if bytes == 0 {
            assert_eq!(self.sim.calls(), calls);
        }
        let fits = before.retained() + before.cached() + mapped - from_cache <= self.memory;
        let fits_without_cache = self.model.retained() <= self.memory;
        match done {
            Ok(done) => {
                if let Some(done) = done {
                    assert_eq!(
                        (done.bytes, done.blocks, done.mapped),
                        (bytes * self.g, blocks, mapped * self.g)
                    );
                }
                // Out of memory, or said to be: the cache is empty then, and all blocks were made anew.
                let anew = done.is_none_or(|done| done.from_cache == 0)
                    && self.kv.cached_bytes() == 0
                    && before.cached() > 0;
                if anew && (self.faulty || self.stuck || !fits) {
                    assert!(fits_without_cache);
                    self.model.cache.clear();
                } else {
                    assert!(fits);
                    let told = done.map_or(from_cache * self.g, |done| done.from_cache);
                    assert_eq!(told, from_cache * self.g);
                }
            }
            Err(error) => {
                let short = !self.stuck && !self.faulty;
                assert!(
                    !short || !fits_without_cache && error.is_out_of_memory(),
                    "{error}"
                );
                if short {
                    self.told(&before, mapped, &error);
                }
                self.failed(before, &error);
            }
        }
    }

    /// An out-of-memory names what was asked for, what was free afterwards, and what the cache held.
    fn told(&self, before: &Model, mapped: usize, error: &Error) {
        let Error::CommitOutOfMemory {
            asked,
            free,
            cached,
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        let left = self.memory + 1 - before.retained();
        assert_eq!(
            (*asked, *free, *cached),
            (
                mapped * self.g,
                Some(left * self.g),
                before.cached() * self.g
            )
        );
    }

    fn decommit(&mut self, before: Model, asked: Range<usize>, how: Loss) {
        let split = how == Loss::Split;
        let expected = self.model.decommit(asked.clone(), split);
        let (offset, bytes) = (asked.start * self.g, asked.len() * self.g);
        let fence = Fence::closure(|_| Ok::<(), Error>(()));
        let done = match how {
            Loss::Now => self.kv.decommit(offset, bytes),
            Loss::After => self.kv.decommit_after(offset, bytes, fence),
            Loss::Split => self.kv.decommit_splitting(offset, bytes, fence),
        };
        match done {
            Ok(done) => self.gone(&before, asked, &done, expected),
            // The split is done, but for a handle that the driver did not take back.
            Err(error @ Error::NotUndone(_)) if split && error.undo_failures().is_empty() => {
                assert!(self.faulty, "{error}");
                self.stuck = true;
            }
            Err(error) => self.failed(before, &error),
        }
        // A split that ran short has emptied the cache of what was there before.
        if split && self.undone && self.kv.cached_bytes() < self.model.cached() * self.g {
            self.sim.clear_faults();
            self.kv.trim(0).unwrap();
            self.model.cache.clear();
        }
    }

    fn resize(&mut self, before: Model, to: usize) {
        let from = before.len();
        if to > from {
            return self.commit(before, from..to, &Growth::Resize);
        }
        if to == from {
            assert_eq!(self.kv.resize(to * self.g).unwrap(), Resized::Unchanged);
            return;
        }
        let done = self.kv.resize(to * self.g);
        if to > 0 && !before.committed[to - 1] {
            let holes = before.committed[..to].iter().rev();
            let hole = holes.take_while(|one| !**one).count();
            let expected = Error::NotCommitted {
                asked: 0..to * self.g,
                gap: (to - hole) * self.g..to * self.g,
            };
            assert_eq!(format!("{:?}", done.unwrap_err()), format!("{expected:?}"));
            return;
        }
        let expected = self.model.decommit(to..from, false);
        match done {
            Ok(Resized::Shrunk(done)) => self.gone(&before, to..from, &done, expected),
            Ok(other) => panic!("{other:?}"),
            Err(error) => self.failed(before, &error),
        }
    }
}
