//! A reservation, drawn: what is mapped where, holes, rights, backing.

use std::fmt;
use std::ops::Range;

use super::Reservation;
use crate::bytes::Bytes;
use crate::mapping::{BackingKind, Mapping};

/// Columns of the bar.
const WIDTH: usize = 64;

/// A number of things, in the singular where it is one.
struct Count(usize, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count(count, what) = self;
        write!(f, "{count} {what}{}", if *count == 1 { "" } else { "s" })
    }
}

/// The picture that `{}` prints: a bar of the whole range, then a line for each mapping and each hole.
///
/// In the bar, `#` is mapped throughout, `+` in part, `.` not at all, and `!` contains a quarantined mapping.
impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "reservation {:#x}, {}",
            self.base,
            Bytes(self.size).short()
        )?;
        writeln!(
            f,
            ": {} mapped in {}",
            Bytes(self.mapped_bytes()).short(),
            Count(self.mapping_count(), "mapping")
        )?;
        write!(f, "  policy:")?;
        self.policy()
            .try_for_each(|(location, access)| write!(f, " {location} {access}"))?;
        writeln!(
            f,
            "{}",
            if self.policy().next().is_none() {
                " nobody has access"
            } else {
                ""
            }
        )?;
        writeln!(f, "  [{}]", self.bar())?;
        let mut end = 0;
        for mapping in self.mappings() {
            self.draw_hole(f, end..mapping.offset())?;
            self.draw_mapping(f, mapping)?;
            end = mapping.end();
        }
        self.draw_hole(f, end..self.size)?;
        match self.stuck.len() {
            0 => Ok(()),
            count => writeln!(
                f,
                "  and {} that the driver did not release",
                Count(count, "handle")
            ),
        }
    }
}

impl Reservation {
    fn draw_hole(&self, f: &mut fmt::Formatter<'_>, hole: Range<usize>) -> fmt::Result {
        match hole.len() {
            0 => Ok(()),
            size => writeln!(f, "  {:#14x}  {:>10}  -", hole.start, Bytes(size).short()),
        }
    }

    fn draw_mapping(&self, f: &mut fmt::Formatter<'_>, mapping: &Mapping) -> fmt::Result {
        write!(
            f,
            "  {:#14x}  {:>10}  {}",
            mapping.offset(),
            Bytes(mapping.size()).short(),
            mapping.location()
        )?;
        match (mapping.backing(), mapping.raw_handle()) {
            (BackingKind::Shared, Some(raw)) => write!(f, ", shares handle {raw:#x}")?,
            (_, Some(raw)) => write!(f, ", own handle {raw:#x}")?,
            (_, None) => write!(f, ", handle given up")?,
        }
        if mapping.is_quarantined() {
            // What was granted before the undoing failed, or was taken away by it, only the driver knows.
            return writeln!(f, ", rights unknown, QUARANTINED");
        }
        match self.rights(mapping).next() {
            None => f.write_str(", no access")?,
            Some(_) => self.rights(mapping).try_for_each(|(location, access)| {
                write!(f, ", {location} {}", access.letters())
            })?,
        }
        writeln!(f)
    }

    fn bar(&self) -> String {
        let columns = WIDTH.min(self.size / self.unit).max(1);
        // 128-bit arithmetic: a column's bounds are products of two sizes.
        let bound = |column: usize| (self.size as u128 * column as u128 / columns as u128) as usize;
        (0..columns)
            .map(|column| self.column(bound(column)..bound(column + 1)))
            .collect()
    }

    fn column(&self, range: Range<usize>) -> char {
        let (mut mapped, mut quarantined) = (0, false);
        let mut next = self.first_in(&range);
        while let Some(span) = next.filter(|span| span.start * self.unit < range.end) {
            let bytes = self.bytes(span);
            mapped += bytes.end.min(range.end) - bytes.start.max(range.start);
            quarantined |= self.table.at(span).is_some_and(Mapping::is_quarantined);
            next = self.table.first_from(span.end);
        }
        match mapped {
            _ if quarantined => '!',
            0 => '.',
            bytes if bytes == range.len() => '#',
            _ => '+',
        }
    }
}
