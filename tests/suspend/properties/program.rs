//! Random programs: what is done to which member, and which driver calls fail.

use cuda_vmm::sys::CUresult;
use cuda_vmm::Access;
use proptest::prelude::*;

/// Granules of a member.
pub const SIZE: usize = 12;
pub const MEMBERS: usize = 3;

pub const CODES: [CUresult; 3] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// A step, and the call that is to fail in it: which, with what code, and whether all after it fail too.
pub type Step = (Op, Option<(u64, usize, bool)>);

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Map {
        member: usize,
        at: usize,
        size: usize,
        kind: Kind,
    },
    Unmap {
        member: usize,
        at: usize,
    },
    Fill {
        member: usize,
        at: usize,
        value: u8,
    },
    Grant {
        member: usize,
        at: usize,
        access: Access,
    },
    Suspend(Whom),
    Resume(Whom),
    Trim,
    Replace {
        member: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Own,
    Releasing,
    Page,
}

#[derive(Debug, Clone, Copy)]
pub enum Whom {
    All,
    Tag(usize),
    Member(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let member = || 0..MEMBERS;
    let kind = prop_oneof![2 => Just(Kind::Own), 1 => Just(Kind::Releasing), 1 => Just(Kind::Page)];
    let access = prop_oneof![
        Just(Access::None),
        Just(Access::Read),
        Just(Access::ReadWrite)
    ];
    let whom = || {
        prop_oneof![
            Just(Whom::All),
            (0..2usize).prop_map(Whom::Tag),
            (0..MEMBERS).prop_map(Whom::Member)
        ]
    };
    prop_oneof![
        4 => (member(), 0..SIZE, 1..4usize, kind)
            .prop_map(|(member, at, size, kind)| Op::Map { member, at, size, kind }),
        1 => (member(), 0..SIZE).prop_map(|(member, at)| Op::Unmap { member, at }),
        4 => (member(), 0..SIZE, 1..255u8).prop_map(|(member, at, value)| Op::Fill { member, at, value }),
        2 => (member(), 0..SIZE, access).prop_map(|(member, at, access)| Op::Grant { member, at, access }),
        4 => whom().prop_map(Op::Suspend),
        4 => whom().prop_map(Op::Resume),
        1 => Just(Op::Trim),
        1 => member().prop_map(|member| Op::Replace { member }),
    ]
}

pub fn program(faults: bool) -> impl Strategy<Value = Vec<Step>> {
    let strike = (1..60u64, 0..CODES.len(), any::<bool>());
    let strike = match faults {
        true => prop::option::weighted(0.4, strike).boxed(),
        false => Just(None).boxed(),
    };
    prop::collection::vec((op(), strike), 1..60)
}
