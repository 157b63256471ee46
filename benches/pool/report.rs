//! Figures: noted, printed at the end, and written down.

/// What is asked of a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

struct Row {
    name: String,
    ours: f64,
    /// What it is held against, and the ratio.
    against: Option<(f64, f64)>,
    target: Option<Target>,
}

pub(crate) struct Report {
    driver: String,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(driver: String) -> Report {
        Report {
            driver,
            rows: Vec::new(),
        }
    }

    /// How many times as long the crate takes.
    pub fn times(&mut self, name: impl Into<String>, ours: f64, against: f64, target: Option<f64>) {
        let target = target.map(Target::AtMost);
        self.add(name, ours, Some((against, ours / against)), target);
    }

    /// How many times as fast the crate is: a speed-up, or the share of a rate.
    pub fn faster(
        &mut self,
        name: impl Into<String>,
        ours: f64,
        against: f64,
        target: Option<f64>,
    ) {
        let target = target.map(Target::AtLeast);
        self.add(name, ours, Some((against, against / ours)), target);
    }

    /// A figure that is held against nothing here.
    pub fn alone(&mut self, name: impl Into<String>, ours: f64) {
        self.add(name, ours, None, None);
    }

    fn add(
        &mut self,
        name: impl Into<String>,
        ours: f64,
        against: Option<(f64, f64)>,
        target: Option<Target>,
    ) {
        let row = Row {
            name: name.into(),
            ours,
            against,
            target,
        };
        eprintln!("{}", row.name);
        self.rows.push(row);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints all rows, writes them to a file where one is asked for, and ends with a summary.
    pub fn finish(&self, simulated: bool) {
        const HEADER: &str = "name\tours_us\tagainst_us\tratio\ttarget\tverdict";
        println!("{HEADER}");
        for row in &self.rows {
            println!("{}", row.text());
        }
        if let Some(path) = std::env::var_os("CUDA_VMM_BENCH_TSV") {
            let lines = self.rows.iter().map(|row| row.text() + "\t" + &self.driver);
            let lines = [format!("{HEADER}\tdriver")].into_iter().chain(lines);
            let text = lines.collect::<Vec<_>>().join("\n") + "\n";
            if let Err(error) = std::fs::write(&path, text) {
                eprintln!("{}: {error}", path.to_string_lossy());
                std::process::exit(1);
            }
        }
        let count = |verdict| {
            let verdicts = self.rows.iter().map(Row::verdict);
            verdicts.filter(|it| *it == verdict).count()
        };
        let note = match simulated {
            true => " (SIMULATED: the figures and verdicts mean nothing)",
            false => "",
        };
        println!(
            "bench-pool: {} figures, {} targets kept, {} MISSED{note}",
            self.rows.len(),
            count("ok"),
            count("MISSED")
        );
    }
}

impl Row {
    fn verdict(&self) -> &'static str {
        match (self.target, self.against) {
            (Some(target), Some((_, ratio))) => match target.is_kept(ratio) {
                true => "ok",
                false => "MISSED",
            },
            _ => "-",
        }
    }

    fn text(&self) -> String {
        let target = match self.target {
            Some(Target::AtMost(most)) => format!("<= {most}"),
            Some(Target::AtLeast(least)) => format!(">= {least}"),
            None => "-".to_owned(),
        };
        let (against, ratio) = match self.against {
            Some((against, ratio)) => (format!("{against:.3}"), format!("{ratio:.4}")),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let (name, ours) = (&self.name, self.ours);
        let verdict = self.verdict();
        format!("{name}\t{ours:.3}\t{against}\t{ratio}\t{target}\t{verdict}")
    }
}

impl Target {
    fn is_kept(self, ratio: f64) -> bool {
        match self {
            Target::AtMost(most) => ratio <= most,
            Target::AtLeast(least) => ratio >= least,
        }
    }
}
