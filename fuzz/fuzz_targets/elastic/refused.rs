//! What is refused before any driver call, in which words, and what is committed where.

use std::fmt::Debug;

use cuda_vmm::{ElasticRange, Error, Fence, Result, What};

use crate::world::World;

fn never() -> Fence<'static> {
    Fence::closure(|_| Err("not yet"))
}

impl World {
    /// This very error, and no driver call.
    fn refused<T: Debug>(
        &mut self,
        operation: impl FnOnce(&mut ElasticRange) -> Result<T>,
        expected: &Error,
    ) {
        let calls = self.sim.calls();
        let error = operation(&mut self.kv).unwrap_err();
        assert_eq!(format!("{error:?}"), format!("{expected:?}"));
        assert_eq!(self.sim.calls(), calls);
    }

    pub fn bad_range(&mut self, which: u8, start: u8, len: u8, odd: u16) {
        let (g, size) = (self.g, self.kv.size());
        let start = self.part(start, 0).start * g;
        let odd = 1 + odd as usize % (g - 1);
        let (offset, bytes) = match which % 5 {
            0 => (start, 0),
            1 => (start + g, usize::MAX - start),
            2 => (start, size - start + g * (1 + len as usize)),
            3 if start + 2 * g <= size => (start + odd, g),
            _ => (start, odd),
        };
        let granularity = g;
        let misaligned = |what, value| Error::Misaligned {
            what,
            value,
            granularity,
        };
        let expected = match which % 5 {
            0 => Error::ZeroSize { what: What::Size },
            1 => Error::Overflow {
                offset,
                size: bytes,
            },
            2 => Error::OutOfRange {
                offset,
                size: bytes,
                len: size,
            },
            3 if bytes == g => misaligned(What::Offset, offset),
            _ => misaligned(What::Size, bytes),
        };
        self.refused(|kv| kv.commit(offset, bytes), &expected);
        self.refused(|kv| kv.decommit(offset, bytes), &expected);
        self.refused(|kv| kv.decommit_after(offset, bytes, never()), &expected);
        self.refused(
            |kv| kv.decommit_splitting(offset, bytes, never()),
            &expected,
        );
    }

    /// A length that no granule ends at.
    pub fn bad_length(&mut self, len: u8, odd: u16) {
        let (g, size) = (self.g, self.kv.size());
        let len = self.part(len, 0).start * g + 1 + odd as usize % (g - 1);
        let old = self.model.len() * g;
        let (what, value) = match len < old {
            true => (What::Offset, len),
            false => (What::Size, len - old),
        };
        let expected = Error::Misaligned {
            what,
            value,
            granularity: g,
        };
        self.refused(|kv| kv.resize(len), &expected);
        self.refused(|kv| kv.resize_after(len, never()), &expected);
        let beyond = size + g;
        let expected = Error::OutOfRange {
            offset: old,
            size: beyond - old,
            len: size,
        };
        self.refused(|kv| kv.resize(beyond), &expected);
    }

    /// A fence that is not passed stops whatever would take memory away.
    pub fn unready(&mut self, which: u8, start: u8, len: u8) {
        let asked = self.part(start, len);
        let (offset, bytes) = (asked.start * self.g, asked.len() * self.g);
        let expected = Error::WaitFailed("not yet".into());
        match which % 3 {
            0 => self.refused(|kv| kv.decommit_after(offset, bytes, never()), &expected),
            1 => self.refused(
                |kv| kv.decommit_splitting(offset, bytes, never()),
                &expected,
            ),
            _ => {
                let to = asked.start;
                let ends = to == 0 || self.model.committed[to - 1];
                if to < self.model.len() && ends {
                    self.refused(|kv| kv.resize_after(offset, never()), &expected);
                }
            }
        }
    }

    /// Whether all of a part is committed, and what the first bytes are that are not.
    pub fn ask(&mut self, start: (u8, u16), len: (u8, u16)) {
        let (g, committed) = (self.g, &self.model.committed);
        let start = start.0 as usize % committed.len() * g + start.1 as usize % g;
        let len = 1 + len.0 as usize % committed.len() * g + len.1 as usize % g;
        let end = (start + len).min(self.kv.size());
        let touched = (0..committed.len()).filter(|one| one * g < end && start < (one + 1) * g);
        let gap: Vec<usize> = touched
            .skip_while(|one| committed[*one])
            .take_while(|one| !committed[*one])
            .collect();
        assert_eq!(self.kv.is_committed(start, end - start), gap.is_empty());
        let (Some(first), Some(last)) = (gap.first(), gap.last()) else {
            let view = self.kv.view(start, end - start).unwrap();
            let address = self.kv.base() + start as u64;
            assert_eq!((view.address(), view.size()), (address, end - start));
            return;
        };
        let expected = Error::NotCommitted {
            asked: start..end,
            gap: start.max(first * g)..end.min((last + 1) * g),
        };
        self.refused(|kv| kv.view(start, end - start).map(|_| ()), &expected);
        self.refused(|kv| kv.fill(start, end - start, 1), &expected);
    }
}
