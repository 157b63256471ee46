//! The drawn reservation, drawn from the model.

use std::fmt::Write;

use cuda_vmm::{Access, Location};

use crate::model::{Area, Backing, Mapped, Model};

pub fn of(area: &Area, model: &Model, unit: usize) -> String {
    let mut text = String::new();
    let bytes = area.mapped.values().map(|mapped| mapped.size).sum();
    let _ = write!(text, "reservation {:#x}, {}: ", area.base, short(area.size));
    let _ = writeln!(
        text,
        "{} mapped in {}",
        short(bytes),
        counted(area.mapped.len(), "mapping")
    );
    let _ = writeln!(text, "  policy:{}", policy(&area.policy));
    let _ = writeln!(text, "  [{}]", bar(area, unit));

    let holes = area.holes().into_iter();
    let mut lines: Vec<(usize, String)> = holes
        .map(|hole| (hole.start, line(hole.start, hole.len(), "-")))
        .collect();
    for (offset, mapped) in &area.mapped {
        lines.push((*offset, line(*offset, mapped.size, &what(mapped, model))));
    }
    lines.sort();
    text.extend(lines.into_iter().map(|(_, line)| line));
    if !area.stuck.is_empty() {
        let count = counted(area.stuck.len(), "handle");
        let _ = writeln!(text, "  and {count} that the driver did not release");
    }
    text
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn line(offset: usize, size: usize, what: &str) -> String {
    format!(
        "  {:>14}  {:>10}  {what}\n",
        format!("{offset:#x}"),
        short(size)
    )
}

fn what(mapped: &Mapped, model: &Model) -> String {
    let memory = &model.memories[&mapped.memory];
    let mut what = memory.location.to_string();
    what += &match mapped.backing {
        Backing::Own => format!(", own handle {:#x}", memory.handle),
        Backing::Share(_) => format!(", shares handle {:#x}", memory.handle),
        Backing::GivenUp => ", handle given up".to_string(),
    };
    if mapped.quarantined {
        return what + ", rights unknown, QUARANTINED";
    }
    for (location, access) in &mapped.noted {
        let letters = match access {
            Access::ReadWrite => "rw",
            Access::Read => "r-",
            Access::None => "--",
        };
        what += &format!(", {location} {letters}");
    }
    if mapped.noted.is_empty() {
        what += ", no access";
    }
    what
}

fn policy(policy: &[(Location, Access)]) -> String {
    if policy.is_empty() {
        return " nobody has access".to_string();
    }
    let entries = policy.iter();
    entries
        .map(|(location, access)| format!(" {location} {access}"))
        .collect()
}

/// A column for each unit, or 64 columns.
fn bar(area: &Area, unit: usize) -> String {
    let columns = 64.min(area.size / unit);
    let column = |number: usize| {
        let range = number * area.size / columns..(number + 1) * area.size / columns;
        let mut covered = 0;
        for (offset, mapped) in area.in_range(&range) {
            if mapped.quarantined {
                return '!';
            }
            covered += range.end.min(offset + mapped.size) - range.start.max(offset);
        }
        match covered {
            0 => '.',
            all if all == range.len() => '#',
            _ => '+',
        }
    };
    (0..columns).map(column).collect()
}

fn short(bytes: usize) -> String {
    let units = ["TiB", "GiB", "MiB", "KiB"];
    for (power, unit) in (1..=4).rev().zip(units) {
        let one = 1024usize.pow(power);
        if bytes >= one && bytes % one == 0 {
            return format!("{} {unit}", bytes / one);
        }
    }
    format!("{bytes} B")
}
