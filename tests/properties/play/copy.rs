//! Copies and fills.

use std::ops::Range;

use cuda_vmm::sim::{CallRecord, Value};
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Error, Location};

use crate::contents::{bytes, part, Run};
use crate::model::{right_of, Area, Backing};
use crate::operation::{Which, Window};
use crate::verdict::{Refusal, Verdict};
use crate::world::World;

/// The longest buffer that is made for a range that is refused.
const LONGEST: usize = 64 << 20;

/// What a copy does with a range.
#[derive(Debug)]
struct Need {
    area: usize,
    range: Range<usize>,
    access: Access,
}

impl World {
    pub fn write(&mut self, kv: Which, at: Window, seed: u8) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let (offset, size) = self.model.areas[at_kv].window(at, self.unit);
        let data = written(seed, (size <= LONGEST).then_some(size)?);
        let buffer = bytes(&data);
        let need = self.need(at_kv, offset, size, Access::ReadWrite);
        if need.as_ref().is_ok_and(|need| self.is_ambiguous(need)) {
            return None;
        }
        let expected = need.and_then(|need| self.possible([need]));
        let result = self.kvs[at_kv].write(offset, &buffer);
        let verdict = self.judge(&expected, &result);
        if let Ok([need]) = &expected {
            let moved = self.moved(verdict, Call::cuMemcpyHtoD_v2, &need.range);
            let data = part(&data, 0..moved.len());
            self.model.write(at_kv, &moved, &data);
        }
        Some(())
    }

    pub fn read(&mut self, kv: Which, at: Window) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let (offset, size) = self.model.areas[at_kv].window(at, self.unit);
        let mut buffer = vec![0xEE; (size <= LONGEST).then_some(size)?];
        let need = self.need(at_kv, offset, size, Access::Read);
        let expected = need.and_then(|need| self.possible([need]));
        let result = self.kvs[at_kv].read(offset, &mut buffer);
        let verdict = self.judge(&expected, &result);
        if let (Verdict::Done, Ok([need])) = (verdict, &expected) {
            let there = bytes(&self.model.read(at_kv, &need.range));
            // Byte by byte only where it is wrong.
            if there != buffer {
                let wrong = there.iter().zip(&buffer).position(|(a, b)| a != b);
                let wrong = wrong.map(|at| (offset + at, there[at], buffer[at]));
                panic!("offset, byte that was written, byte that was read: {wrong:?}");
            }
        }
        Some(())
    }

    pub fn fill(&mut self, kv: Which, at: Window, value: u8) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let (offset, size) = self.model.areas[at_kv].window(at, self.unit);
        let need = self.need(at_kv, offset, size, Access::ReadWrite);
        let expected = need.and_then(|need| self.possible([need]));
        let result = self.kvs[at_kv].fill(offset, size, value);
        let verdict = self.judge(&expected, &result);
        if let Ok([need]) = &expected {
            let moved = self.moved(verdict, Call::cuMemsetD8_v2, &need.range);
            self.model.write(at_kv, &moved, &[(moved.len(), value)]);
        }
        Some(())
    }

    pub fn copy_within(&mut self, kv: Which, to: Window, from: Window) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let area = &self.model.areas[at_kv];
        let (to, size) = area.window(to, self.unit);
        let (from, _) = area.window(from, self.unit);
        let needs = self.needs((at_kv, to), (at_kv, from), size);
        let expected = self.copyable(needs)?;
        let result = self.kvs[at_kv].copy_within(to, from, size);
        self.copied(&expected, &result)
    }

    pub fn copy_from(&mut self, kv: Which, to: Window, other: Which, from: Window) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let other = self.busy(other).filter(|other| *other != at_kv)?;
        let (to, size) = self.model.areas[at_kv].window(to, self.unit);
        let (from, _) = self.model.areas[other].window(from, self.unit);
        let needs = self.needs((at_kv, to), (other, from), size);
        let expected = self.copyable(needs)?;
        let (low, high) = self.kvs.split_at_mut(at_kv.max(other));
        let (target, source) = match at_kv < other {
            true => (&mut low[at_kv], &high[0]),
            false => (&mut high[0], &low[other]),
        };
        let result = target.copy_from(to, source, from, size);
        self.copied(&expected, &result)
    }

    fn copied(
        &mut self,
        expected: &Result<[Need; 2], Refusal>,
        result: &Result<(), Error>,
    ) -> Option<()> {
        let verdict = self.judge(expected, result);
        if let Ok([to, from]) = expected {
            let moved = self.moved(verdict, Call::cuMemcpyDtoD_v2, &to.range);
            let source = from.range.start..from.range.start + moved.len();
            let contents = self.model.read(from.area, &source);
            self.model.write(to.area, &moved, &contents);
        }
        Some(())
    }

    pub fn view(&mut self, kv: Which, at: Window) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let area = &self.model.areas[at_kv];
        let (offset, size) = area.window(at, self.unit);
        let expected = area.mapped_throughout(offset, size).map_err(Refusal::Check);
        let result = self.kvs[at_kv].view(offset, size);
        let told = result.map(|view| (view.address(), view.size()));
        if self.judge(&expected, &told) == Verdict::Done {
            let address = self.model.areas[at_kv].base + offset as u64;
            assert_eq!(told.expect("judged"), (address, size));
        }
        Some(())
    }

    /// The part of a range that was written, in pieces from its start: a failure behind a piece does not bring the old
    /// bytes back.
    fn moved(&self, verdict: Verdict, call: Call, range: &Range<usize>) -> Range<usize> {
        let size = |record: &CallRecord| match record.arg("size") {
            Some(Value::Size(size)) => *size,
            other => panic!("{record} has the size {other:?}"),
        };
        match verdict {
            Verdict::Done => range.clone(),
            _ => range.start..range.start + self.succeeded(call).map(size).sum::<usize>(),
        }
    }

    fn needs(
        &self,
        to: (usize, usize),
        from: (usize, usize),
        size: usize,
    ) -> Result<[Need; 2], Refusal> {
        let target = self.need(to.0, to.1, size, Access::ReadWrite)?;
        Ok([target, self.need(from.0, from.1, size, Access::Read)?])
    }

    /// Whether different bytes would be written to the same memory at once: which of them stay, nobody says.
    fn is_ambiguous(&self, need: &Need) -> bool {
        self.model.repeats(need.area, &need.range)
    }

    /// Whether the copy is possible; `None` if nobody can say what comes of it: it writes what it reads, or one byte
    /// twice, by way of mirrors of which the crate cannot know.
    fn copyable(&self, needs: Result<[Need; 2], Refusal>) -> Option<Result<[Need; 2], Refusal>> {
        let Ok([to, from]) = needs else {
            return Some(needs);
        };
        let (to_place, from_place) = ((to.area, &to.range), (from.area, &from.range));
        let distance = to.range.start.abs_diff(from.range.start);
        let overlap = to.area == from.area && distance < to.range.len();
        if overlap || self.model.alias(to_place, from_place, is_known) {
            let (to, from) = (to.range, from.range);
            return Some(Err(Error::OverlappingCopy { to, from }.into()));
        }
        if self.model.alias(to_place, from_place, |_, _| true) || self.is_ambiguous(&to) {
            return None;
        }
        Some(self.possible([to, from]))
    }

    fn need(&self, at: usize, offset: usize, size: usize, access: Access) -> Result<Need, Refusal> {
        let area: &Area = &self.model.areas[at];
        let range = area.mapped_throughout(offset, size)?;
        for (offset, mapped) in area.in_range(&range) {
            if mapped.quarantined {
                let mapping = offset..offset + mapped.size;
                return Err(Error::Quarantined { mapping }.into());
            }
        }
        for (offset, mapped) in area.in_range(&range) {
            let of_host = mapped.noted.iter().filter(|(who, _)| who.is_host());
            let by_host = of_host.map(|(_, access)| *access).max();
            if access.writes() && by_host == Some(Access::Read) {
                let mapping = offset..offset + mapped.size;
                return Err(Error::HostReadOnly { mapping }.into());
            }
        }
        Ok(Need {
            area: at,
            range,
            access,
        })
    }

    /// Whether one device may do all of it.
    fn possible<const N: usize>(&self, needs: [Need; N]) -> Result<[Need; N], Refusal> {
        let devices = || self.devices.iter().map(Location::from);
        let may = |who: Location, need: &Need| {
            let mut mapped = self.model.areas[need.area].in_range(&need.range);
            mapped.all(|(_, mapped)| right_of(&mapped.noted, who) >= need.access)
        };
        if devices().any(|who| needs.iter().all(|need| may(who, need))) {
            return Ok(needs);
        }
        for need in &needs {
            if !devices().any(|who| may(who, need)) {
                let verb = match need.access {
                    Access::ReadWrite => "write",
                    _ => "read",
                };
                let range = need.range.clone();
                return Err(Error::NoAccess { range, verb }.into());
            }
        }
        let range = |at: usize| needs[at].range.clone();
        let (to, from) = (range(0), range(N - 1));
        Err(Error::NoCommonDevice { to, from }.into())
    }
}

/// Whether the crate can tell that two mappings are of the same memory: by a handle that both still hold.
fn is_known(one: Backing, two: Backing) -> bool {
    let held = one != Backing::GivenUp && two != Backing::GivenUp;
    let shared = |backing: &Backing| matches!(backing, Backing::Share(_));
    held && [one, two].iter().any(shared)
}

/// Bytes that tell where they stand: a few hundred runs at most, so that a model of long ranges is still fast.
fn written(seed: u8, size: usize) -> Vec<Run> {
    let length = 13.max(size / 256 + 1);
    let lengths = (0..size).step_by(length).map(|at| length.min(size - at));
    let values = (0u8..=255).map(|value| seed.wrapping_add(value));
    lengths.zip(values.cycle()).collect()
}
