//! Random programs: what they do, over how many granules, and which driver calls fail.

use cuda_vmm::sys::CUresult;
use cuda_vmm::{Access, Contents};
use proptest::prelude::*;

pub const GRANULES: usize = 64;

#[derive(Debug, Clone)]
pub enum Operation {
    Commit(usize, usize),
    Decommit(usize, usize),
    Split(usize, usize),
    Resize(usize),
    Trim(usize),
    Grant(Access),
}

#[derive(Debug, Clone)]
pub struct Step {
    pub operation: Operation,
    /// Which of its driver calls fails, and with what.
    pub fault: Option<(u64, CUresult)>,
}

#[derive(Debug, Clone)]
pub struct Program {
    pub least: u32,
    pub more: u32,
    pub cache: usize,
    pub contents: Contents,
    pub steps: Vec<Step>,
}

fn part() -> impl Strategy<Value = (usize, usize)> {
    (
        0..GRANULES,
        prop_oneof![3 => 1usize..4, 2 => 1usize..16, 1 => 1usize..GRANULES],
    )
        .prop_map(|(start, size)| (start, size.min(GRANULES - start)))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => part().prop_map(|(start, size)| Operation::Commit(start, size)),
        5 => part().prop_map(|(start, size)| Operation::Decommit(start, size)),
        3 => part().prop_map(|(start, size)| Operation::Split(start, size)),
        2 => (0..=GRANULES).prop_map(Operation::Resize),
        1 => (0usize..8).prop_map(Operation::Trim),
        1 => prop_oneof![Just(Access::None), Just(Access::Read), Just(Access::ReadWrite)]
            .prop_map(Operation::Grant),
    ]
}

pub fn program(faults: bool) -> impl Strategy<Value = Program> {
    let code = prop_oneof![
        Just(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
        Just(CUresult::CUDA_ERROR_UNKNOWN),
        Just(CUresult::CUDA_ERROR_NOT_PERMITTED),
    ];
    let fault = match faults {
        true => prop_oneof![2 => Just(None), 1 => (1u64..12, code).prop_map(Some)].boxed(),
        false => Just(None).boxed(),
    };
    let step = (operation(), fault).prop_map(|(operation, fault)| Step { operation, fault });
    let contents = prop_oneof![
        Just(Contents::Unspecified),
        Just(Contents::Zeroed),
        Just(Contents::ZeroedUnlessFresh)
    ];
    (
        0u32..4,
        0u32..4,
        0usize..24,
        contents,
        prop::collection::vec(step, 1..40),
    )
        .prop_map(|(least, more, cache, contents, steps)| Program {
            least,
            more,
            cache,
            contents,
            steps,
        })
}
