//! Copies of rows: `cuMemcpy2DAsync`.
//!
//! Assumed from the documentation and not measured: a pitch of 0 is a pitch like any other, a copy from host to host is
//! done in stream order like the others, and of a copy of no bytes only the memory types are checked.

use crate::sys::{CUdevice_attribute, CUmemorytype, CUresult, Call, CUDA_MEMCPY2D};

use super::abi::{In, Raw, Token};
use super::work::{Rows, Side, Spot, Work};
use super::{demand, invalid, refuse, Answer, State};

/// One side as the caller describes it.
struct Described {
    kind: CUmemorytype,
    host: Raw,
    device: u64,
    x: u64,
    y: u64,
    pitch: u64,
}

impl State {
    pub(super) fn cuMemcpy2DAsync_v2(&mut self, copy: In<CUDA_MEMCPY2D>, stream: Token) -> Answer {
        let copy = copy.get()?;
        let (stream, device) = self.working_stream(Call::cuMemcpy2DAsync_v2, stream)?;
        let from = Described {
            kind: copy.srcMemoryType,
            host: Raw::of(copy.srcHost.cast_mut()),
            device: copy.srcDevice,
            x: copy.srcXInBytes as u64,
            y: copy.srcY as u64,
            pitch: copy.srcPitch as u64,
        };
        let to = Described {
            kind: copy.dstMemoryType,
            host: Raw::of(copy.dstHost),
            device: copy.dstDevice,
            x: copy.dstXInBytes as u64,
            y: copy.dstY as u64,
            pitch: copy.dstPitch as u64,
        };
        let (width, count) = (copy.WidthInBytes as u64, copy.Height as u64);
        let bases = (self.base(&to)?, self.base(&from)?);
        if width == 0 || count == 0 {
            return Ok(());
        }
        let rows = Rows {
            to: self.side(device, &to, bases.0, width, count)?,
            from: self.side(device, &from, bases.1, width, count)?,
            width,
            count,
        };
        let call = Call::cuMemcpy2DAsync_v2;
        self.give(call, (stream, device), Work::Rows(rows))
    }

    fn base(&self, side: &Described) -> Answer<Spot> {
        match side.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => Ok(Spot::Host(side.host)),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => Ok(Spot::Device(side.device)),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED if self.knows(side.device) => {
                Ok(Spot::Device(side.device))
            }
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => Ok(Spot::Host(Raw::at(side.device))),
            // No call makes one.
            CUmemorytype::CU_MEMORYTYPE_ARRAY => refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => invalid(),
        }
    }

    /// The rows of a side, if addresses reach to the end of the last.
    fn side(
        &self,
        device: usize,
        side: &Described,
        base: Spot,
        width: u64,
        count: u64,
    ) -> Answer<Side> {
        let &Described { x, y, pitch, .. } = side;
        let most = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH;
        let most = self.config.devices[device].attribute_of(most, device);
        demand(most.is_none_or(|most| pitch <= most as u64))?;
        demand(width.checked_add(x).is_some_and(|least| least <= pitch))?;
        let skipped = y.checked_mul(pitch).and_then(|rows| rows.checked_add(x));
        let rows = (count - 1).checked_mul(pitch);
        let (Some(skipped), Some(rows)) = (skipped, rows) else {
            return invalid();
        };
        let reach = skipped
            .checked_add(rows)
            .and_then(|to| to.checked_add(width));
        let end = reach.and_then(|reach| base.address().checked_add(reach));
        demand(end.is_some())?;
        Ok(Side {
            first: base.behind(skipped),
            pitch,
        })
    }
}
