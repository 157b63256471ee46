//! An elastic range, drawn: what is committed where, and what is retained beside it.

use std::fmt;
use std::ops::Range;

use super::ElasticRange;
use crate::bytes::Bytes;
use crate::mapping::Mapping;

/// Columns of the bar.
const WIDTH: usize = 64;

/// The picture that `{}` prints: a bar of the whole range, then a line for each committed run.
///
/// In the bar, `#` is committed throughout, `+` in part, `-` only retained (in a block of which something else is
/// committed), `.` neither, and `!` contains a quarantined block.
impl fmt::Display for ElasticRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |bytes| Bytes(bytes).short();
        writeln!(
            f,
            "elastic range {:#x}, {}: {} committed, {} retained in {} blocks, {} cached",
            self.base(),
            short(self.size()),
            short(self.committed_bytes()),
            short(self.retained_bytes()),
            self.reservation.mapping_count(),
            short(self.cached_bytes())
        )?;
        writeln!(f, "  [{}]", self.bar())?;
        for run in self.runs() {
            let (start, size) = (run.start, short(run.len()));
            let blocks = self.blocks_in(run).count();
            writeln!(f, "  {start:#14x}  {size:>10}  in {blocks} blocks")?;
        }
        Ok(())
    }
}

impl ElasticRange {
    fn blocks_in(&self, range: Range<usize>) -> impl Iterator<Item = &Mapping> + '_ {
        let mut rest = range;
        std::iter::from_fn(move || {
            let block = self.reservation.first_mapping_in(&rest)?;
            rest.start = block.end();
            Some(block)
        })
    }

    fn bar(&self) -> String {
        let granules = self.size() / self.granule;
        let columns = WIDTH.min(granules);
        // 128-bit arithmetic: a column's bounds are products of two sizes.
        let bound = |column: usize| (granules as u128 * column as u128 / columns as u128) as usize;
        (0..columns)
            .map(|column| self.column(bound(column)..bound(column + 1)))
            .collect()
    }

    fn column(&self, granules: Range<usize>) -> char {
        let bytes = granules.start * self.granule..granules.end * self.granule;
        let mut blocks = self.blocks_in(bytes);
        let committed: usize = self
            .granules
            .runs(granules.clone())
            .map(|run| run.len())
            .sum();
        match (committed, blocks.next()) {
            (_, Some(first)) if first.is_quarantined() || blocks.any(Mapping::is_quarantined) => {
                '!'
            }
            (0, None) => '.',
            (0, Some(_)) => '-',
            (all, _) if all == granules.len() => '#',
            _ => '+',
        }
    }
}
