//! Figures: printed, and written down.

pub(crate) use crate::turns::{in_turns, median, microseconds};

/// What is asked of a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Shown beside the others.
    None,
}

pub(crate) struct Report {
    driver: String,
    lines: Vec<String>,
}

impl Report {
    pub fn new(driver: String) -> Report {
        Report {
            driver,
            lines: Vec::new(),
        }
    }

    /// A figure of the crate and what it is held against, both in microseconds; `ratio` is what has the target.
    pub fn row(&mut self, name: &str, ours: f64, theirs: f64, ratio: f64, target: Target) {
        let (text, kept) = match target {
            Target::AtMost(most) => (format!("target <= {most}"), ratio <= most),
            Target::AtLeast(least) => (format!("target >= {least}"), ratio >= least),
            Target::None => ("no target".into(), true),
        };
        let verdict = if kept { "" } else { ", MISSED" };
        println!(
            "{name}: crate {ours:.2} us, raw {theirs:.2} us, ratio {ratio:.3} ({text}{verdict})"
        );
        let line = format!(
            "{name}\t{ours:.3}\t{theirs:.3}\t{ratio:.4}\t{text}\t{}",
            self.driver
        );
        self.lines.push(line);
    }

    pub fn write(&self) {
        let Some(path) = std::env::var_os("CUDA_VMM_BENCH_TSV") else {
            return;
        };
        let text = format!(
            "name\tcrate_us\traw_us\tratio\ttarget\tdriver\n{}\n",
            self.lines.join("\n")
        );
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("{}: {error}", path.to_string_lossy());
            std::process::exit(1);
        }
    }
}

/// Numbers without a pattern that a cache could learn.
pub(crate) struct Random(u64);

impl Random {
    pub fn new() -> Random {
        Random(1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}
