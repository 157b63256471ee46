//! The table of mappings, against an ordered map: many mappings, near each other and far apart.
#![no_main]

use std::collections::BTreeMap;

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::{AllocationProps, Driver, Reservation};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const G: usize = 2 << 20;

/// Where the bits of the table's levels end: 64, 64², 64³ units, and the last unit.
const BORDERS: [usize; 5] = [0, 64, 64 * 64, 64 * 64 * 64, UNITS];

const UNITS: usize = 1 << 19;

#[derive(Debug, Clone, Copy, Arbitrary)]
struct Unit {
    border: u8,
    by: i8,
    far: Option<u32>,
}

impl Unit {
    fn value(self) -> usize {
        let near =
            BORDERS[self.border as usize % BORDERS.len()].saturating_add_signed(self.by.into());
        self.far.map_or(near, |far| far as usize).min(UNITS - 1)
    }
}

#[derive(Debug, Arbitrary)]
enum Op {
    Map(Unit, u8),
    Unmap(Unit),
    UnmapAround(Unit, u8),
    Look(Unit),
}

fuzz_target!(|ops: Vec<Op>| {
    let device = SimDevice::new().memory(1 << 45);
    let sim = Simulation::builder()
        .device(device)
        .ledger_only()
        .build()
        .unwrap();
    let driver = Driver::simulated(&sim).unwrap();
    let props = AllocationProps::on(&driver.device(0).unwrap());
    let mut kv = Reservation::builder(UNITS * G).reserve(&driver).unwrap();
    // Start to end, in units.
    let mut model: BTreeMap<usize, usize> = BTreeMap::new();

    for op in ops {
        match op {
            Op::Map(unit, units) => {
                let start = unit.value();
                let end = (start + units as usize % 70 + 1).min(UNITS);
                let free = model
                    .range(..end)
                    .next_back()
                    .is_none_or(|(_, other)| *other <= start);
                let mapped = kv.map(start * G, (end - start) * G, &props);
                assert_eq!(mapped.is_ok(), free, "{start}..{end}: {mapped:?}");
                if free {
                    model.insert(start, end);
                }
            }
            Op::Unmap(unit) => {
                let found = model
                    .range(..=unit.value())
                    .next_back()
                    .filter(|(_, end)| **end > unit.value());
                let found = found.map(|(start, _)| *start);
                let id = kv.id_at(unit.value() * G);
                assert_eq!(
                    id.as_ref().map(|id| id.offset()),
                    found.map(|start| start * G)
                );
                if let (Some(id), Some(start)) = (id, found) {
                    kv.unmap(id).unwrap();
                    model.remove(&start);
                }
            }
            Op::UnmapAround(unit, units) => {
                let (start, end) = (unit.value(), (unit.value() + units as usize + 1).min(UNITS));
                let inside: Vec<(usize, usize)> = model
                    .range(start..end)
                    .map(|(start, end)| (*start, *end))
                    .collect();
                let mut at = start;
                for (from, to) in &inside {
                    at = if *from == at { *to } else { at };
                }
                let unmapped = kv.unmap_range(start * G, (end - start) * G);
                assert_eq!(unmapped.is_ok(), at == end, "{start}..{end}: {unmapped:?}");
                if at == end {
                    model.retain(|start, _| !(unit.value()..end).contains(start));
                }
            }
            Op::Look(unit) => {
                let (_, found) = (unit, kv.mapping_at(unit.value() * G));
                let wanted = model
                    .range(..=unit.value())
                    .next_back()
                    .filter(|(_, end)| **end > unit.value());
                assert_eq!(
                    found.map(|mapping| (mapping.offset() / G, mapping.range().end / G)),
                    wanted.map(|(start, end)| (*start, *end))
                );
            }
        }
        assert_eq!(kv.mapping_count(), model.len());
    }
    let mapped = kv
        .mappings()
        .map(|mapping| (mapping.offset() / G, mapping.range().end / G));
    assert!(mapped.eq(model.clone()));
    let holes: usize = kv.holes().map(|hole| hole.len()).sum();
    assert_eq!(holes + kv.mapped_bytes(), UNITS * G);
    kv.close().unwrap();
    drop((props, driver));
    assert!(sim.snapshot().is_empty());
});
