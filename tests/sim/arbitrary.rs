//! Whatever is passed, a call answers: it does not panic, and what it refuses it leaves alone.

use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::from_mut;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use cuda_vmm::sys::*;

use crate::rig::*;

/// One call's worth of numbers.
#[derive(Debug, Clone)]
struct Args {
    call: usize,
    address: Place,
    hint: Place,
    size: u64,
    other: u64,
    flags: u64,
    handle: usize,
    kind: u32,
    id: i32,
    types: u32,
}

/// An address: near the first reservation, or anywhere.
#[derive(Debug, Clone)]
enum Place {
    Near(i64),
    Anywhere(u64),
}

impl Place {
    fn from(&self, base: u64) -> u64 {
        match *self {
            Place::Near(distance) => base.wrapping_add_signed(distance),
            Place::Anywhere(address) => address,
        }
    }
}

fn number() -> impl Strategy<Value = u64> {
    const G64: u64 = G as u64;
    let edges = [
        0,
        1,
        4096,
        G64 - 1,
        G64,
        2 * G64,
        3 * G64,
        16 * G64,
        1 << 32,
        1 << 46,
        1 << 47,
        1 << 63,
        u64::MAX,
        u64::MAX - G64 + 1,
        u64::MAX - 4095,
    ];
    prop_oneof![4 => select(edges.to_vec()), 1 => any::<u64>()]
}

fn place() -> impl Strategy<Value = Place> {
    let granules = (-2i64..20).prop_map(|granules| Place::Near(granules * G as i64));
    let bytes = (-9i64..9).prop_map(Place::Near);
    prop_oneof![6 => granules, 1 => bytes, 2 => number().prop_map(Place::Anywhere)]
}

fn args() -> impl Strategy<Value = Args> {
    let small = prop_oneof![5 => Just(0u64), 1 => 1u64..9, 1 => number()];
    (
        (0usize..15, place(), place()),
        (number(), small.clone(), small),
        (0usize..6, 0u32..6, -2i32..3, 0u32..40),
    )
        .prop_map(
            |((call, address, hint), (size, other, flags), (handle, kind, id, types))| Args {
                call,
                address,
                hint,
                size,
                other,
                flags,
                handle,
                kind,
                id,
                types,
            },
        )
}

struct Run {
    rig: Rig,
    base: u64,
    handles: Vec<u64>,
}

impl Run {
    fn new(rig: Rig) -> Self {
        let (base, handle) = rig.block(2);
        Run {
            rig,
            base,
            handles: vec![handle],
        }
    }

    /// Makes the call; what it answers.
    fn call(&mut self, args: &Args) -> CUresult {
        let Args {
            size, other, flags, ..
        } = *args;
        let (address, hint) = (args.address.from(self.base), args.hint.from(self.base));
        let (size, other) = (size as usize, other as usize);
        let handle = self.handles.get(args.handle).map_or(0, |handle| *handle);
        let sim = &self.rig.0;
        let location = CUmemLocation {
            type_: CUmemLocationType(args.kind),
            id: args.id,
        };
        let props = CUmemAllocationProp {
            type_: CUmemAllocationType(1 + flags as u32 % 2),
            location,
            requestedHandleTypes: CUmemAllocationHandleType(args.types),
            ..Default::default()
        };
        let grant = CUmemAccessDesc {
            location,
            flags: CUmemAccess_flags(args.types % 5),
        };
        let (mut word, mut length, mut fd) = (0u64, 0usize, -1i32);
        let mut bytes = [0u8; 64];
        let code = unsafe {
            match args.call {
                0 => sim.cuMemAddressReserve(&mut word, size, other, hint, flags),
                1 => sim.cuMemAddressFree(address, size),
                2 => sim.cuMemCreate(&mut word, size, &props, flags),
                3 => sim.cuMemRelease(handle),
                4 => sim.cuMemMap(address, size, other, handle, flags),
                5 => sim.cuMemUnmap(address, size),
                6 => sim.cuMemSetAccess(address, size, &grant, other.min(1)),
                7 => sim.cuMemGetAccess(&mut word, &location, address),
                8 => sim.cuMemRetainAllocationHandle(&mut word, address as *mut _),
                9 => sim.cuMemGetAddressRange_v2(&mut word, &mut length, address),
                10 => {
                    let attribute = CUpointer_attribute(args.types);
                    sim.cuPointerGetAttribute(from_mut(&mut bytes).cast(), attribute, address)
                }
                11 => {
                    let kind = CUmemRangeHandleType(args.kind);
                    let to = from_mut(&mut fd).cast();
                    sim.cuMemGetHandleForAddressRange(to, address, size, kind, flags)
                }
                12 => sim.cuMemsetD8_v2(address, 1, size.min(4 * G)),
                13 => sim.cuMemcpyDtoD_v2(address, hint, size),
                _ => sim.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, size.min(64)),
            }
        };
        let done = code == CUresult::CUDA_SUCCESS;
        match args.call {
            2 | 8 if done => self.handles.push(word),
            // Dropped at once: an open descriptor would show in the snapshots.
            11 if done => drop(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => {}
        }
        code
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: if cfg!(miri) { 4 } else { 256 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_refused_call_changes_nothing(calls in vec(args(), 1..40)) {
        for rig in Rig::both() {
            let mut run = Run::new(rig);
            for args in &calls {
                let before = run.rig.snapshot();
                let code = run.call(args);
                if code != CUresult::CUDA_SUCCESS {
                    prop_assert_eq!(run.rig.snapshot(), before, "{:?}", args);
                }
            }
        }
    }
}
