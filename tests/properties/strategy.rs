//! Random programs.

use cuda_vmm::Access;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::operation::*;

/// The longest program.
pub const LONGEST: usize = 250;

/// Programs without or with refusals of the driver.
pub fn program(faults: bool) -> BoxedStrategy<Vec<Step>> {
    match faults {
        true => vec(step(strikes().boxed()), 1..=LONGEST).boxed(),
        false => vec(step(Just(Vec::new()).boxed()), 1..=LONGEST).boxed(),
    }
}

fn step(faults: BoxedStrategy<Vec<Strike>>) -> impl Strategy<Value = Step> {
    (operation().boxed(), faults).prop_map(|(operation, faults)| Step { operation, faults })
}

fn strikes() -> impl Strategy<Value = Vec<Strike>> {
    let strike =
        (1u64..6, 0usize..4, prop::bool::weighted(0.1)).prop_map(|(after, code, forever)| Strike {
            after,
            code,
            forever,
        });
    prop_oneof![
        6 => Just(Vec::new()),
        2 => vec(strike.clone(), 1),
        2 => vec(strike, 2..4),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    0usize..12
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![
        4 => Just(Access::ReadWrite),
        2 => Just(Access::Read),
        1 => Just(Access::None),
    ]
}

fn spot() -> impl Strategy<Value = Spot> {
    prop_oneof![
        1 => (0usize..24).prop_map(Spot::Unit),
        6 => which().prop_map(Spot::Start),
        1 => which().prop_map(Spot::End),
    ]
}

/// One in fourteen or so. A number and a match are cheaper than alternatives, and most steps have one.
fn flaw() -> impl Strategy<Value = Flaw> {
    (0u8..86).prop_map(|number| match number {
        80 => Flaw::NoSize,
        81 => Flaw::OddOffset,
        82 => Flaw::OddSize,
        83 => Flaw::TooLong,
        84 => Flaw::Overflow,
        85 => Flaw::LastOffset,
        _ => Flaw::None,
    })
}

/// A size: preferably one that is a multiple of the greater granularity, too.
fn units() -> impl Strategy<Value = Length> {
    prop_oneof![3 => (1usize..3).prop_map(|pairs| 2 * pairs), 1 => 1usize..6]
        .prop_map(Length::Units)
}

/// Where something is to be mapped: preferably in a hole.
fn vacant() -> impl Strategy<Value = Extent> {
    let at = prop_oneof![
        3 => (0usize..24).prop_map(Spot::Unit),
        3 => which().prop_map(Spot::End),
        1 => which().prop_map(Spot::Start),
    ];
    (at, (1usize..6).prop_map(Length::Units), flaw()).prop_map(|(at, size, flaw)| Extent {
        at,
        size,
        flaw,
    })
}

/// What is to be granted or unmapped: preferably whole mappings.
fn extent() -> impl Strategy<Value = Extent> {
    let size = prop_oneof![
        4 => Just(Length::Mappings(0)),
        3 => (0usize..4).prop_map(Length::Mappings),
        1 => (1usize..6).prop_map(Length::Units),
    ];
    (spot(), size, flaw()).prop_map(|(at, size, flaw)| Extent { at, size, flaw })
}

fn window() -> impl Strategy<Value = Window> {
    let size = prop_oneof![
        3 => (1usize..100).prop_map(Length::Bytes),
        1 => (1usize..4).prop_map(Length::Units),
        2 => (0usize..3).prop_map(Length::Mappings),
    ];
    // Before the beginning of a mapping there is often a hole.
    let shift = prop_oneof![2 => Just(0isize), 2 => 0isize..60, 1 => -60isize..0];
    (spot(), shift, size, flaw()).prop_map(|(at, shift, size, flaw)| Window {
        at,
        shift,
        size,
        flaw,
    })
}

fn wait() -> impl Strategy<Value = Wait> {
    prop_oneof![
        8 => Just(Wait::No),
        1 => which().prop_map(Wait::Stream),
        1 => which().prop_map(Wait::Polled),
        1 => Just(Wait::Closure),
        1 => Just(Wait::FailingClosure),
    ]
}

fn want() -> impl Strategy<Value = Want> {
    let point = || {
        prop_oneof![
            4 => (0u8..4).prop_map(Point::Free),
            3 => which().prop_map(Point::Taken),
            1 => Just(Point::Odd),
            1 => Just(Point::Last),
        ]
    };
    let address = prop_oneof![
        4 => Just(Address::Any),
        2 => point().prop_map(Address::Hint),
        2 => point().prop_map(Address::Exactly),
    ];
    let alignment = prop_oneof![
        2 => Just(Alignment::Any),
        6 => (0u32..9).prop_map(Alignment::Units),
        1 => Just(Alignment::Odd),
    ];
    let size = (8usize..=24).prop_map(Length::Units);
    // Mostly somebody has access, once in a while nobody, or the same one twice.
    let policy = prop_oneof![
        3 => Just(vec![(0, Access::ReadWrite), (1, Access::ReadWrite)]),
        2 => vec((which(), access()), 0..3),
    ];
    (size, flaw(), alignment, address, policy).prop_map(
        |(size, flaw, alignment, address, policy)| Want {
            size,
            flaw,
            alignment,
            address,
            policy,
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => want().prop_map(Operation::Reserve).boxed(),
        24 => mapping().boxed(),
        10 => memory().boxed(),
        9 => unmapping().boxed(),
        10 => rights().boxed(),
        28 => copying().boxed(),
        1 => ending().boxed(),
    ]
}

fn mapping() -> impl Strategy<Value = Operation> {
    let how = prop_oneof![
        6 => Just(How::Owning),
        3 => Just(How::Releasing),
        1 => Just(How::Foreign),
    ];
    prop_oneof![
        3 => (which(), vacant(), which(), how)
            .prop_map(|(kv, at, place, how)| Operation::Map { kv, at, place, how }),
        2 => (which(), vacant(), which())
            .prop_map(|(kv, at, page)| Operation::MapExisting { kv, at, page }),
    ]
}

fn memory() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (which(), units(), flaw())
            .prop_map(|(place, size, flaw)| Operation::Create { place, size, flaw }),
        2 => which().prop_map(Operation::DropPage),
        2 => which().prop_map(Operation::ReleasePage),
        2 => (which(), window()).prop_map(|(kv, at)| Operation::Retain { kv, at }),
        1 => (which(), window()).prop_map(|(kv, at)| Operation::IsVmm { kv, at }),
        1 => Just(Operation::Reclaim),
    ]
}

fn unmapping() -> impl Strategy<Value = Operation> {
    let owner = prop_oneof![5 => Just(Owner::Its), 1 => which().prop_map(Owner::Other)];
    prop_oneof![
        3 => (which(), owner, wait()).prop_map(|(id, kv, wait)| Operation::Unmap { id, kv, wait }),
        1 => (which(), extent(), wait())
            .prop_map(|(kv, at, wait)| Operation::UnmapAt { kv, at, wait }),
        3 => (which(), extent(), wait())
            .prop_map(|(kv, at, wait)| Operation::UnmapRange { kv, at, wait }),
    ]
}

fn rights() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (which(), extent(), which(), access())
            .prop_map(|(kv, at, who, access)| Operation::SetAccess { kv, at, who, access }),
        2 => (which(), which(), access())
            .prop_map(|(kv, who, access)| Operation::SetPolicy { kv, who, access }),
        1 => (which(), window(), which())
            .prop_map(|(kv, at, who)| Operation::AccessOf { kv, at, who }),
    ]
}

fn copying() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (which(), window(), any::<u8>())
            .prop_map(|(kv, at, seed)| Operation::Write { kv, at, seed }),
        3 => (which(), window()).prop_map(|(kv, at)| Operation::Read { kv, at }),
        2 => (which(), window(), any::<u8>())
            .prop_map(|(kv, at, value)| Operation::Fill { kv, at, value }),
        2 => (which(), window(), window())
            .prop_map(|(kv, to, from)| Operation::CopyWithin { kv, to, from }),
        2 => (which(), window(), which(), window())
            .prop_map(|(kv, to, other, from)| Operation::CopyFrom { kv, to, other, from }),
        1 => (which(), window()).prop_map(|(kv, at)| Operation::View { kv, at }),
    ]
}

fn ending() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => (which(), wait()).prop_map(|(kv, wait)| Operation::Close { kv, wait }),
        1 => which().prop_map(Operation::CloseKeeping),
        1 => which().prop_map(Operation::DropReservation),
    ]
}
