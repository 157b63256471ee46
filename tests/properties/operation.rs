//! What can be done, in numbers that shrink: each means something in any state, so that a step can be left out of a
//! program and the rest still runs.

use cuda_vmm::Access;

/// One operation, and what the driver refuses meanwhile.
#[derive(Debug, Clone)]
pub struct Step {
    pub operation: Operation,
    pub faults: Vec<Strike>,
}

/// A driver call that fails: so many calls behind the one before.
#[derive(Debug, Clone, Copy)]
pub struct Strike {
    pub after: u64,
    pub code: usize,
    pub forever: bool,
}

/// A number that chooses among what there is, by remainder.
pub type Which = usize;

#[derive(Debug, Clone)]
pub enum Operation {
    Reserve(Want),
    Map {
        kv: Which,
        at: Extent,
        place: Which,
        how: How,
    },
    MapExisting {
        kv: Which,
        at: Extent,
        page: Which,
    },
    Create {
        place: Which,
        size: Length,
        flaw: Flaw,
    },
    DropPage(Which),
    ReleasePage(Which),
    Retain {
        kv: Which,
        at: Window,
    },
    IsVmm {
        kv: Which,
        at: Window,
    },
    Unmap {
        id: Which,
        kv: Owner,
        wait: Wait,
    },
    UnmapAt {
        kv: Which,
        at: Extent,
        wait: Wait,
    },
    UnmapRange {
        kv: Which,
        at: Extent,
        wait: Wait,
    },
    SetAccess {
        kv: Which,
        at: Extent,
        who: Which,
        access: Access,
    },
    SetPolicy {
        kv: Which,
        who: Which,
        access: Access,
    },
    AccessOf {
        kv: Which,
        at: Window,
        who: Which,
    },
    Write {
        kv: Which,
        at: Window,
        seed: u8,
    },
    Read {
        kv: Which,
        at: Window,
    },
    Fill {
        kv: Which,
        at: Window,
        value: u8,
    },
    CopyWithin {
        kv: Which,
        to: Window,
        from: Window,
    },
    CopyFrom {
        kv: Which,
        to: Window,
        other: Which,
        from: Window,
    },
    View {
        kv: Which,
        at: Window,
    },
    Close {
        kv: Which,
        wait: Wait,
    },
    CloseKeeping(Which),
    DropReservation(Which),
    Reclaim,
}

/// What is to be reserved.
#[derive(Debug, Clone)]
pub struct Want {
    pub size: Length,
    pub flaw: Flaw,
    pub alignment: Alignment,
    pub address: Address,
    pub policy: Vec<(Which, Access)>,
}

#[derive(Debug, Clone, Copy)]
pub enum Alignment {
    Any,
    /// So many times doubled from one unit.
    Units(u32),
    /// No power of two.
    Odd,
}

#[derive(Debug, Clone, Copy)]
pub enum Address {
    Any,
    Hint(Point),
    Exactly(Point),
}

#[derive(Debug, Clone, Copy)]
pub enum Point {
    /// Far from everything else.
    Free(u8),
    /// Where an own reservation begins.
    Taken(Which),
    /// No multiple of the unit.
    Odd,
    /// So high that the range does not fit below the end of all addresses.
    Last,
}

/// Whether the mapping is to keep its handle, and whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Owning,
    Releasing,
    /// Memory of another driver.
    Foreign,
}

/// Which reservation is told to unmap an id.
#[derive(Debug, Clone, Copy)]
pub enum Owner {
    Its,
    Other(Which),
}

/// A range that is to be made of units or of whole mappings.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub at: Spot,
    pub size: Length,
    pub flaw: Flaw,
}

/// A range of bytes.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub at: Spot,
    pub shift: isize,
    pub size: Length,
    pub flaw: Flaw,
}

#[derive(Debug, Clone, Copy)]
pub enum Spot {
    Unit(usize),
    /// Where a mapping begins.
    Start(Which),
    /// Where a mapping ends.
    End(Which),
}

#[derive(Debug, Clone, Copy)]
pub enum Length {
    Bytes(usize),
    Units(usize),
    /// To the end of this mapping and of so many behind it.
    Mappings(usize),
}

/// What is wrong with a range, whatever else may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    None,
    NoSize,
    OddOffset,
    OddSize,
    /// More than there is.
    TooLong,
    /// Offset and size together overflow.
    Overflow,
    /// The offset is as high as they go.
    LastOffset,
}

#[derive(Debug, Clone, Copy)]
pub enum Wait {
    No,
    Stream(Which),
    Polled(Which),
    Closure,
    FailingClosure,
}

impl Operation {
    /// For the count of what was played.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Reserve(_) => "reserve",
            Operation::Map { how, .. } => match how {
                How::Releasing => "map_releasing",
                _ => "map",
            },
            Operation::MapExisting { .. } => "map_existing",
            Operation::Create { .. } => "create",
            Operation::DropPage(_) => "drop an allocation",
            Operation::ReleasePage(_) => "release",
            Operation::Retain { .. } => "retain",
            Operation::IsVmm { .. } => "is_vmm",
            Operation::Unmap { .. } | Operation::UnmapAt { .. } => "unmap",
            Operation::UnmapRange { .. } => "unmap_range",
            Operation::SetAccess { .. } => "set_access",
            Operation::SetPolicy { .. } => "set_policy",
            Operation::AccessOf { .. } => "access_of",
            Operation::Write { .. } => "write",
            Operation::Read { .. } => "read",
            Operation::Fill { .. } => "fill",
            Operation::CopyWithin { .. } => "copy_within",
            Operation::CopyFrom { .. } => "copy_from",
            Operation::View { .. } => "view",
            Operation::Close { .. } => "close",
            Operation::CloseKeeping(_) => "close_keeping",
            Operation::DropReservation(_) => "drop a reservation",
            Operation::Reclaim => "reclaim",
        }
    }
}
