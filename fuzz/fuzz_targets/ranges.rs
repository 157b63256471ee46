//! Offsets and sizes that nobody would write, against arithmetic that cannot overflow.
//!
//! Every ranged operation must give the very error that 128-bit arithmetic says, or succeed.
#![no_main]

use std::collections::BTreeMap;
use std::ops::Range;

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::{Access, AllocationProps, Driver, Error, Reservation, What};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const G: usize = 2 << 20;

/// A number near something that matters, or any at all.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Number {
    Granules(u8),
    NearGranule(u8, i8),
    NearPowerOfTwo(u8, i8),
    NearEnd(u16),
    GranulesFromEnd(u8),
    Any(usize),
}

impl Number {
    fn value(self) -> usize {
        match self {
            Number::Granules(count) => count as usize * G,
            Number::NearGranule(count, by) => (count as usize * G).wrapping_add_signed(by.into()),
            Number::NearPowerOfTwo(power, by) => {
                (1usize << (power % 64)).wrapping_add_signed(by.into())
            }
            Number::NearEnd(by) => usize::MAX - by as usize,
            Number::GranulesFromEnd(count) => (count as usize * G).wrapping_neg(),
            Number::Any(value) => value,
        }
    }
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Op {
    Map,
    UnmapRange,
    View,
    SetAccess,
    Read,
    Write,
}

#[derive(Debug, Arbitrary)]
struct Input {
    granules: u8,
    builder: (Number, Number, Number),
    round_up: Number,
    ops: Vec<(Op, Number, Number)>,
}

/// What is mapped: start to end.
type Model = BTreeMap<usize, usize>;

fn within(offset: usize, size: usize, len: usize) -> Result<Range<usize>, Error> {
    let end = offset as u128 + size as u128;
    match () {
        () if size == 0 => Err(Error::ZeroSize { what: What::Size }),
        () if end > usize::MAX as u128 => Err(Error::Overflow { offset, size }),
        () if end > len as u128 => Err(Error::OutOfRange { offset, size, len }),
        () => Ok(offset..end as usize),
    }
}

fn aligned(what: What, value: usize) -> Result<(), Error> {
    match value as u128 % G as u128 {
        0 => Ok(()),
        _ => Err(Error::Misaligned {
            what,
            value,
            granularity: G,
        }),
    }
}

fn vacant(model: &Model, asked: &Range<usize>) -> Result<(), Error> {
    let in_the_way = model
        .iter()
        .find(|(start, end)| **start < asked.end && asked.start < **end);
    match in_the_way {
        Some((start, end)) => Err(Error::Overlap {
            asked: asked.clone(),
            existing: *start..*end,
        }),
        None => Ok(()),
    }
}

/// The first byte of the range that is not mapped, up to the next that is.
fn covered(model: &Model, asked: &Range<usize>, len: usize) -> Result<(), Error> {
    let mut at = asked.start;
    for (start, end) in model {
        if *start <= at && at < *end {
            at = *end;
        }
    }
    if at >= asked.end {
        return Ok(());
    }
    let next = model
        .keys()
        .copied()
        .find(|start| *start > at)
        .unwrap_or(len);
    Err(Error::Hole {
        asked: asked.clone(),
        hole: at..next.min(asked.end),
    })
}

fn whole(model: &Model, asked: &Range<usize>) -> Result<(), Error> {
    let cut = |at: usize| {
        let (start, end) = model.range(..=at).next_back()?;
        (*start < asked.start || *end > asked.end).then_some(*start..*end)
    };
    match cut(asked.start).or(cut(asked.end - 1)) {
        Some(mapping) => Err(Error::PartialMapping {
            asked: asked.clone(),
            mapping,
        }),
        None => Ok(()),
    }
}

fn expected(op: Op, model: &Model, offset: usize, size: usize, len: usize) -> Result<(), Error> {
    let asked = within(offset, size, len)?;
    match op {
        Op::Map => {
            aligned(What::Offset, offset)?;
            aligned(What::Size, size)?;
            vacant(model, &asked)
        }
        Op::View | Op::Read | Op::Write => covered(model, &asked, len),
        Op::UnmapRange | Op::SetAccess => {
            covered(model, &asked, len)?;
            whole(model, &asked)
        }
    }
}

fn check_builder(driver: &Driver, (size, alignment, hint): (Number, Number, Number)) {
    let (size, alignment, hint) = (size.value(), alignment.value(), hint.value() as u64);
    let built = Reservation::builder(size)
        .alignment(alignment)
        .hint(hint)
        .reserve(driver);
    let Ok(kv) = built else {
        return;
    };
    let end = kv.base() as u128 + kv.size() as u128;
    assert!(
        kv.size() == size && size % G == 0 && end <= 1 << 64,
        "{kv:?}"
    );
    assert!(kv.base() as u128 % alignment.max(G) as u128 == 0, "{kv:?}");
    kv.close().unwrap();
}

fuzz_target!(|input: Input| {
    let device = SimDevice::new().memory(1 << 45);
    let sim = Simulation::builder()
        .device(device)
        .ledger_only()
        .build()
        .unwrap();
    let driver = Driver::simulated(&sim).unwrap();
    let device = driver.device(0).unwrap();
    let props = AllocationProps::on(&device);

    let value = input.round_up.value();
    let up = (value as u128).div_ceil(G as u128) * G as u128;
    assert_eq!(
        props.granularity().unwrap().round_up(value),
        usize::try_from(up).ok()
    );
    check_builder(&driver, input.builder);

    let len = (input.granules as usize + 1) * G;
    let mut kv = Reservation::builder(len)
        .access(&device, Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    let mut model = Model::new();
    let mut buffer = vec![0; 4096];
    for (op, offset, size) in input.ops {
        let offset = offset.value();
        let size = match op {
            Op::Read | Op::Write => size.value() % buffer.len(),
            _ => size.value(),
        };
        let before = sim.calls();
        let got = match op {
            Op::Map => kv.map(offset, size, &props).map(drop),
            Op::UnmapRange => kv.unmap_range(offset, size),
            Op::View => kv.view(offset, size).map(|view| {
                assert_eq!(
                    (view.address(), view.size()),
                    (kv.base() + offset as u64, size)
                );
            }),
            Op::SetAccess => kv.set_access(offset, size, &device, Access::ReadWrite),
            Op::Read => kv.read(offset, &mut buffer[..size]),
            Op::Write => kv.write(offset, &buffer[..size]),
        };
        let wanted = expected(op, &model, offset, size, len);
        assert_eq!(
            format!("{got:?}"),
            format!("{wanted:?}"),
            "{op:?} {offset:#x} {size:#x}\n{kv}"
        );
        match (got, op) {
            (Ok(()), Op::Map) => drop(model.insert(offset, offset + size)),
            (Ok(()), Op::UnmapRange) => {
                model.retain(|start, _| !(offset..offset + size).contains(start))
            }
            (Ok(()), _) => {}
            // Refused before the driver was asked anything.
            (Err(_), _) => assert_eq!(sim.calls(), before),
        }
        assert!(kv
            .mappings()
            .map(|mapping| (mapping.offset(), mapping.range().end))
            .eq(model.clone()));
    }
    kv.close().unwrap();
    drop((props, device, driver));
    assert!(sim.snapshot().is_empty());
    assert_eq!(sim.misuses(), []);
});
