//! What committing and decommitting did.

use std::ops::Range;

/// What a commit did. All zero where everything was committed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Committed {
    /// Bytes that were not committed before.
    pub bytes: usize,
    /// Blocks that were mapped.
    pub blocks: usize,
    /// Bytes of these blocks.
    pub mapped: usize,
    /// Bytes of these blocks that came from the cache; the others were created.
    pub from_cache: usize,
}

/// What a decommit did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Decommitted {
    /// Bytes that were committed before. What was not is passed over.
    pub bytes: usize,
    /// Bytes of blocks that were released.
    pub released: usize,
    /// Bytes of blocks that went into the cache.
    pub cached: usize,
    /// At the start and at the end of the range.
    pub(super) kept: [Option<Range<usize>>; 2],
}

impl Decommitted {
    /// The parts of the range that are still mapped, as offsets: they lie in blocks of which something else is
    /// committed. There are two at most, since blocks wholly inside the range go.
    pub fn kept(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.kept.iter().flatten().cloned()
    }

    /// Bytes of these parts.
    pub fn kept_bytes(&self) -> usize {
        self.kept().map(|part| part.len()).sum()
    }
}

/// What a change of length did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resized {
    /// It had that length already.
    Unchanged,
    /// It is longer now.
    Grown(Committed),
    /// It is shorter now.
    Shrunk(Decommitted),
}
