//! The two modes are one driver: whatever is called, both give the same answers, bytes and books.

use proptest::collection::vec;
use proptest::prelude::*;

use cuda_vmm::sim::Snapshot;
use cuda_vmm::sys::DriverCalls;

use crate::rig::*;

const RESERVED: usize = 6;

#[derive(Debug, Clone)]
enum Step {
    Create(usize),
    Release(usize),
    Map { at: usize, handle: usize },
    Unmap { at: usize, size: usize },
    Access { at: usize, size: usize, flags: u32 },
    Fill { from: usize, size: usize, value: u8 },
    Write { from: usize, bytes: Vec<u8> },
    Read { from: usize },
    Retain(usize),
    Free,
    Reserve,
}

/// Steps in granules, around the two reservations that a run begins with and the ends of both.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0..RESERVED + 2;
    let bytes = 0..(RESERVED + 1) * G;
    let step = prop_oneof![
        3 => (1usize..4).prop_map(Step::Create),
        1 => (0usize..8).prop_map(Step::Release),
        4 => (at.clone(), 0usize..8).prop_map(|(at, handle)| Step::Map { at, handle }),
        2 => (at.clone(), 1usize..4).prop_map(|(at, size)| Step::Unmap { at, size }),
        4 => (at.clone(), 1usize..4, 0u32..4)
            .prop_map(|(at, size, flags)| Step::Access { at, size, flags }),
        2 => (bytes.clone(), 1..2 * G, any::<u8>())
            .prop_map(|(from, size, value)| Step::Fill { from, size, value }),
        2 => (bytes.clone(), vec(any::<u8>(), 1..40))
            .prop_map(|(from, bytes)| Step::Write { from, bytes }),
        2 => bytes.prop_map(|from| Step::Read { from }),
        1 => at.prop_map(Step::Retain),
        1 => Just(Step::Free),
        1 => Just(Step::Reserve),
    ];
    vec(step, 1..60)
}

struct Run {
    rig: Rig,
    base: u64,
    handles: Vec<u64>,
}

impl Run {
    fn new(rig: Rig) -> Self {
        let base = rig.reserve(RESERVED * G).unwrap();
        Run {
            rig,
            base,
            handles: Vec::new(),
        }
    }

    fn handle(&self, index: usize) -> (u64, usize) {
        let handle = self.handles.get(index).copied().unwrap_or(0);
        let known = self.rig.snapshot().handles;
        let size = known.iter().find(|of| of.handle == handle);
        (handle, size.map_or(G, |of| of.size as usize))
    }

    /// What the step came to: the answer, and what was read or where it was put.
    fn step(&mut self, step: &Step) -> Result<Vec<u8>> {
        let rig = &self.rig;
        let granule = |at: usize| self.base + (at * G) as u64;
        let byte = |from: usize| self.base + from as u64;
        let relative = |address: u64| address.wrapping_sub(self.base).to_ne_bytes().to_vec();
        let done = |()| Vec::new();
        match *step {
            Step::Create(size) => {
                let handle = rig.create_with(size * G, &props(0))?;
                self.handles.push(handle);
                Ok(handle.to_ne_bytes().to_vec())
            }
            Step::Release(index) => rig.release(self.handle(index).0).map(done),
            Step::Map { at, handle } => {
                let (handle, size) = self.handle(handle);
                rig.map(granule(at), size, handle).map(done)
            }
            Step::Unmap { at, size } => rig.unmap(granule(at), size * G).map(done),
            Step::Access { at, size, flags } => rig.access(granule(at), size * G, flags).map(done),
            Step::Fill { from, size, value } => rig.fill(byte(from), value, size).map(done),
            Step::Write { from, ref bytes } => rig.write(byte(from), bytes).map(done),
            Step::Read { from } => rig.read(byte(from), 64),
            Step::Retain(at) => {
                let mut handle = 0;
                let address = granule(at) as *mut std::ffi::c_void;
                let code = unsafe { rig.0.cuMemRetainAllocationHandle(&mut handle, address) };
                check(code).map(|()| handle.to_ne_bytes().to_vec())
            }
            Step::Free => rig.address_free(self.base, RESERVED * G).map(done),
            Step::Reserve => rig.reserve_at(RESERVED * G, self.base).map(relative),
        }
    }

    /// The books, with addresses counted from the first reservation.
    fn books(&self) -> Snapshot {
        let mut books = self.rig.snapshot();
        for reservation in &mut books.reservations {
            reservation.address = reservation.address.wrapping_sub(self.base);
        }
        for mapping in &mut books.mappings {
            mapping.address = mapping.address.wrapping_sub(self.base);
        }
        books
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 192,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memfd")]
    fn both_modes_agree(steps in steps()) {
        let mut memory = Run::new(Rig::new());
        let mut ledger = Run::new(Rig::ledger_only());
        for step in &steps {
            prop_assert_eq!(memory.step(step), ledger.step(step), "{:?}", step);
        }
        prop_assert_eq!(memory.books(), ledger.books());
        prop_assert_eq!(memory.rig.0.misuses(), ledger.rig.0.misuses());
    }
}
