//! An elastic range against a model that lists granules, blocks and cached blocks one by one: which blocks a commit
//! makes, which ones a decommit takes and what it keeps, what the cache holds, what the bytes are, who may do what, and
//! that what failed changed nothing.
#![no_main]

#[path = "elastic/model.rs"]
mod model;
#[path = "elastic/play.rs"]
mod play;
#[path = "elastic/refused.rs"]
mod refused;
#[path = "elastic/world.rs"]
mod world;

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::{CUresult, Call};
use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use world::{Setting, World};

#[derive(Debug)]
enum Op {
    Commit(u8, u8),
    Decommit(u8, u8),
    /// Once a fence is passed.
    DecommitAfter(u8, u8),
    Split(u8, u8),
    Resize(u8),
    Trim(u8),
    /// A piece of an arena over the range, in sixteenths of a granule and a power of two.
    Allocate(u8, u8),
    /// What the second device may do.
    Policy(u8),
    /// Whether a part is committed; in granules, and bytes of one.
    Ask((u8, u16), (u8, u16)),
    BadRange(u8, u8, u8, u16),
    BadLength(u8, u16),
    /// A fence that is not passed.
    Unready(u8, u8, u8),
}

/// Calls that fail: of which kind, from which one on, how many, and with what.
#[derive(Debug, Clone, Copy, Arbitrary)]
struct Failing {
    kind: u8,
    nth: u8,
    times: u8,
    out_of_memory: bool,
}

#[derive(Debug)]
struct Step {
    op: Op,
    fault: Option<Failing>,
}

#[derive(Debug, Arbitrary)]
struct Program {
    setting: Setting,
    steps: Vec<Step>,
    /// What fails while the range is closed.
    closing: Option<Failing>,
}

/// In few bytes, since inputs are short for long. One step in four has a fault.
impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Step> {
        let kind: u8 = bytes.arbitrary()?;
        let (first, second) = bytes.arbitrary()?;
        let op = match kind % 16 {
            0..=3 => Op::Commit(first, second),
            4 | 5 => Op::Decommit(first, second),
            6 => Op::DecommitAfter(first, second),
            7 | 8 => Op::Split(first, second),
            9 | 10 => Op::Resize(first),
            11 => Op::Trim(first),
            12 | 13 => Op::Allocate(first, second),
            14 => Op::Policy(first),
            _ => match second % 4 {
                0 => Op::Ask((first, bytes.arbitrary()?), bytes.arbitrary()?),
                1 => Op::BadRange(second / 4, first, bytes.arbitrary()?, bytes.arbitrary()?),
                2 => Op::BadLength(first, bytes.arbitrary()?),
                _ => Op::Unready(second / 4, first, bytes.arbitrary()?),
            },
        };
        let fault = match kind / 16 % 4 {
            3 => Some(bytes.arbitrary()?),
            _ => None,
        };
        Ok(Step { op, fault })
    }
}

fuzz_target!(|program: Program| {
    let mut world = World::new(&program.setting);
    world.agree();
    for step in program.steps.into_iter().take(100) {
        world.play(step);
        if !world.undone {
            break;
        }
    }
    if let Some(failing) = program.closing {
        world.sim.inject(failing.fault()).unwrap();
    }
    let World {
        sim,
        driver,
        kv,
        undone,
        ..
    } = world;
    if let Err(unclosed) = kv.close() {
        assert!(program.closing.is_some(), "{unclosed:?}");
        sim.clear_faults();
        unclosed.reservation.into_inner().close().unwrap();
    }
    sim.clear_faults();
    // Addresses that a split needed, and could not give back, are the driver's to keep.
    assert!(driver.quarantined() == 0 || !undone);
    driver.reclaim().unwrap();
    assert!(sim.snapshot().holds_no_memory(), "{:#?}", sim.snapshot());
    assert_eq!(sim.misuses(), []);
});

impl Failing {
    fn fault(self) -> Fault {
        let code = match self.out_of_memory {
            true => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            false => CUresult::CUDA_ERROR_NOT_PERMITTED,
        };
        let nth = u64::from(self.nth);
        // What gives memory back is made to fail as often as all else, for the sake of what undoes.
        let fault = match self.kind % 4 {
            0 => Fault::on(Call::cuMemRelease).nth(1 + nth % 4),
            1 => Fault::on(Call::cuMemUnmap).nth(1 + nth % 4),
            _ => Fault::any_nth(1 + nth % 24),
        };
        let fault = fault.code(code);
        match self.times % 8 {
            0..=4 => fault,
            5 => fault.times(2),
            6 => fault.times(3),
            _ => fault.forever(),
        }
    }
}
