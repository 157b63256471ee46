//! The table of where the two drivers agree.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::case::Section;
use crate::driver::Which;

/// How a driver did in a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As the fact says.
    Agrees,
    /// Otherwise.
    Differs,
    /// The case did not run, for this reason.
    NotRunnable(String),
}

/// Outcomes by section, case and driver.
static OUTCOMES: Mutex<Vec<(&'static str, &'static str, Which, Outcome)>> = Mutex::new(Vec::new());

/// Notes how a driver did.
pub fn note(section: &'static str, case: &'static str, which: Which, outcome: Outcome) {
    OUTCOMES
        .lock()
        .expect("no case panics while it notes")
        .push((section, case, which, outcome));
}

/// One line of the table.
#[derive(Default)]
struct Line {
    cases: usize,
    both: usize,
    only_sim: usize,
    only_gpu: usize,
    differ: usize,
}

impl Line {
    fn count(&mut self, sim: Option<&Outcome>, gpu: Option<&Outcome>) {
        self.cases += 1;
        let agrees = |outcome: Option<&Outcome>| outcome == Some(&Outcome::Agrees);
        let differs = |outcome: Option<&Outcome>| outcome == Some(&Outcome::Differs);
        if differs(sim) || differs(gpu) {
            self.differ += 1;
        }
        match (agrees(sim), agrees(gpu)) {
            (true, true) => self.both += 1,
            (true, false) => self.only_sim += 1,
            (false, true) => self.only_gpu += 1,
            (false, false) => {}
        }
    }

    fn add(&mut self, other: &Line) {
        self.cases += other.cases;
        self.both += other.both;
        self.only_sim += other.only_sim;
        self.only_gpu += other.only_gpu;
        self.differ += other.differ;
    }

    fn print(&self, name: &str) {
        let Line {
            cases,
            both,
            only_sim,
            only_gpu,
            differ,
        } = self;
        println!("{name:<14} {cases:>6} {both:>6} {only_sim:>9} {only_gpu:>9} {differ:>7}");
    }
}

/// Prints the table of the cases that were run, and why others were not.
pub fn print(sections: &[Section]) {
    let outcomes = OUTCOMES.lock().expect("no case panics while it notes");
    let of = |section: &str, case: &str, which: Which| {
        let found = outcomes
            .iter()
            .find(|(s, c, w, _)| *s == section && *c == case && *w == which);
        found.map(|(.., outcome)| outcome)
    };

    println!(
        "{:<14} {:>6} {:>6} {:>9} {:>9} {:>7}",
        "facts", "cases", "both", "sim only", "gpu only", "differ"
    );
    let mut all = Line::default();
    let mut missing: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    for section in sections {
        let mut line = Line::default();
        for case in section.cases {
            let sim = of(section.name, case.name, Which::Sim);
            let gpu = of(section.name, case.name, Which::Gpu);
            if sim.is_none() && gpu.is_none() {
                continue;
            }
            line.count(sim, gpu);
            for (which, outcome) in [(Which::Sim, sim), (Which::Gpu, gpu)] {
                if let Some(Outcome::NotRunnable(why)) = outcome {
                    let name = format!("{}::{}", section.name, case.name);
                    missing
                        .entry((which.to_string(), why))
                        .or_default()
                        .push(name);
                }
            }
        }
        if line.cases > 0 {
            line.print(section.name);
        }
        all.add(&line);
    }
    all.print("all");

    for ((which, why), names) in missing {
        let shown = match names.len() {
            0..=4 => names.join(", "),
            count => format!("{count} cases"),
        };
        println!("not run on {which}: {why}: {shown}");
    }
}
