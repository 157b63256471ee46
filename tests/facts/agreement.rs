//! The table of agreement: the simulated driver's answers against those of a real one.
//!
//! The real one is this machine's, or, where there is none, the one that was recorded first. A machine's own answers
//! are compared with every recorded machine's as well.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use crate::case::Section;
use crate::driver::Driver;
use crate::machine::Name;
use crate::recorded::{self, Answers, Recorded};
use crate::support;
use crate::support::which::Which;

/// How a driver did in a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As the fact says, with this answer.
    AsStated(String),
    /// Otherwise, with this answer.
    Otherwise(String),
    /// The case did not run, for this reason.
    NotRunnable(String),
}

impl Outcome {
    fn answer(&self) -> Result<&str, &str> {
        match self {
            Outcome::AsStated(answer) | Outcome::Otherwise(answer) => Ok(answer),
            Outcome::NotRunnable(why) => Err(why),
        }
    }
}

/// Outcomes by driver, and by the case's full name.
static OUTCOMES: Mutex<Vec<(Which, String, Outcome)>> = Mutex::new(Vec::new());

fn full_name(section: &str, case: &str) -> String {
    format!("{section}::{case}")
}

/// Notes how a driver did.
pub fn note(section: &str, case: &str, which: Which, outcome: Outcome) {
    let mut outcomes = OUTCOMES.lock().expect("no case panics while it notes");
    outcomes.push((which, full_name(section, case), outcome));
}

fn outcomes(of: Which) -> BTreeMap<String, Outcome> {
    let outcomes = OUTCOMES.lock().expect("no case panics while it notes");
    let of_that = outcomes.iter().filter(|(which, ..)| *which == of);
    of_that
        .map(|(_, name, outcome)| (name.clone(), outcome.clone()))
        .collect()
}

/// The real driver that the simulated one is held against: who it is, and what it answered or why it did not.
struct Reference {
    title: String,
    answers: BTreeMap<String, Result<String, String>>,
}

impl Reference {
    fn here(machine: &Name, real: &BTreeMap<String, Outcome>) -> Self {
        let owned = |(name, outcome): (&String, &Outcome)| {
            let answer = outcome.answer().map(String::from).map_err(String::from);
            (name.clone(), answer)
        };
        Reference {
            title: format!("this machine: {machine}"),
            answers: real.iter().map(owned).collect(),
        }
    }

    fn recorded(recorded: &Recorded) -> Self {
        let Recorded { machine, answers } = recorded;
        let owned = |(name, answer): (&String, &String)| (name.clone(), Ok(answer.clone()));
        Reference {
            title: format!("recorded: {machine}"),
            answers: answers.iter().map(owned).collect(),
        }
    }
}

/// What one section, or all of them, came to.
#[derive(Default)]
struct Line {
    cases: usize,
    agree: usize,
    differ: usize,
    not_run: usize,
}

impl Line {
    fn add(&mut self, other: &Line) {
        self.cases += other.cases;
        self.agree += other.agree;
        self.differ += other.differ;
        self.not_run += other.not_run;
    }

    fn print(&self, name: &str) {
        let Line {
            cases,
            agree,
            differ,
            not_run,
        } = self;
        println!("{name:<16} {cases:>6} {agree:>6} {differ:>7} {not_run:>8}");
    }
}

/// Prints the table of the cases that were run, each difference with both answers, and why cases were not run. Writes
/// this machine's answers where they are wanted. `false` if the simulated driver differs from the real one, or they cannot
/// be written.
pub fn conclude(sections: &[Section], record: Option<&Path>) -> bool {
    let recorded = recorded::all();
    let (sim, real) = (outcomes(Which::Sim), outcomes(Which::Gpu));
    let driver = support::devices()
        .is_ok()
        .then(|| Driver::open(Which::Gpu, 1));
    let machine = driver.as_ref().map(Name::ask);
    let reference = match &machine {
        Some(machine) => Reference::here(machine, &real),
        None => Reference::recorded(&recorded[0]),
    };

    let differ = print_table(sections, &sim, &reference);
    if let Some(machine) = machine {
        let answers = answered(&real);
        for recorded in &recorded {
            print_differences(&answers, recorded);
        }
        if let Some(Err(why)) = record.map(|path| recorded::record(path, &machine, &answers)) {
            eprintln!("{}: {why}", recorded::RECORD);
            return false;
        }
    }
    differ == 0
}

fn answered(outcomes: &BTreeMap<String, Outcome>) -> Answers {
    let answer = |(name, outcome): (&String, &Outcome)| {
        let answer = outcome.answer().ok()?;
        Some((name.clone(), answer.to_owned()))
    };
    outcomes.iter().filter_map(answer).collect()
}

/// How many cases differ.
fn print_table(
    sections: &[Section],
    sim: &BTreeMap<String, Outcome>,
    reference: &Reference,
) -> usize {
    println!("the simulated driver against {}", reference.title);
    println!(
        "{:<16} {:>6} {:>6} {:>7} {:>8}",
        "", "cases", "agree", "differ", "not run"
    );
    let mut all = Line::default();
    let mut differences = Vec::new();
    let mut not_run: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for section in sections {
        let mut line = Line::default();
        for case in section.cases {
            let name = full_name(section.name, case.name);
            // Left out by the caller's filter.
            let Some(simulated) = sim.get(&name) else {
                continue;
            };
            line.cases += 1;
            let there = match reference.answers.get(&name) {
                Some(answer) => answer.as_deref().map_err(|why| why.as_str()),
                None => Err(case.needs_there().unwrap_or("no answer is on record")),
            };
            match (simulated.answer(), there) {
                (Ok(here), Ok(there)) if here == there => line.agree += 1,
                (Ok(here), Ok(there)) => {
                    line.differ += 1;
                    differences.push(format!("{name}\n    simulated: {here}\n    real: {there}"));
                }
                (Err(why), _) => {
                    line.not_run += 1;
                    let why = format!("by the simulated driver: {why}");
                    not_run.entry(why).or_default().push(name);
                }
                (Ok(_), Err(why)) => {
                    line.not_run += 1;
                    let why = format!("by the real driver: {why}");
                    not_run.entry(why).or_default().push(name);
                }
            }
        }
        if line.cases > 0 {
            line.print(section.name);
        }
        all.add(&line);
    }
    all.print("all");
    println!("(agree, differ: both gave an answer, the same or not; not run: one of the two cannot run it)");
    for difference in &differences {
        println!("differs: {difference}");
    }
    for (why, names) in &not_run {
        println!("not run {why}: {}", names.join(", "));
    }
    differences.len()
}

/// Prints where this machine's answers are not those of a recorded one.
fn print_differences(answers: &Answers, recorded: &Recorded) {
    let Recorded {
        machine,
        answers: theirs,
    } = recorded;
    let differing: Vec<_> = answers
        .iter()
        .filter_map(|(name, here)| Some((name, here, theirs.get(name)?)))
        .filter(|(_, here, there)| here != there)
        .collect();
    println!("differs from {machine}: {} cases", differing.len());
    for (name, here, there) in differing {
        println!("    {name}\n        here: {here}\n        there: {there}");
    }
}
