//! The answers of machines, kept as text: what one run writes, and the next is compared with.
//!
//! A file begins with the machine and has one line for each case: its name, two spaces, the answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use libtest_mimic::Arguments;

use crate::driver::Driver;
use crate::machine::Name;
use crate::support;
use crate::support::which::Which;

/// Names the file that a run with a real driver writes its answers to.
pub const RECORD: &str = "CUDA_VMM_FACTS_RECORD";

/// The answers of each machine that was recorded, the first being the one that the simulated driver is held against.
const FILES: &[&str] = &[include_str!("answers/h200-580.159.04.txt")];

/// Answers by the full names of their cases.
pub type Answers = BTreeMap<String, String>;

/// A machine and its answers.
#[derive(Debug)]
pub struct Recorded {
    pub machine: Name,
    pub answers: Answers,
}

/// The machines that were recorded, the reference first.
pub fn all() -> Vec<Recorded> {
    FILES.iter().map(|file| read(file)).collect()
}

/// Where this run is to write its answers, if it is; why it cannot, where that is known beforehand.
pub fn wanted(arguments: &Arguments) -> Result<Option<PathBuf>, String> {
    let Some(path) = std::env::var_os(RECORD) else {
        return Ok(None);
    };
    let Arguments {
        filter,
        skip,
        ignored,
        ..
    } = arguments;
    if filter.is_some() || !skip.is_empty() || *ignored {
        return Err("a filter leaves cases out: record without one".into());
    }
    if let Err(why) = support::devices() {
        return Err(format!(
            "there is no driver whose answers could be recorded: {why}"
        ));
    }
    match Driver::open(Which::Gpu, 1).simulated() {
        true => Err("the answers of a simulated driver are no measurement".into()),
        false => Ok(Some(path.into())),
    }
}

/// Writes the file, and says so.
pub fn record(path: &Path, machine: &Name, answers: &Answers) -> Result<(), String> {
    let file = path.display();
    std::fs::write(path, write(machine, answers))
        .map_err(|why| format!("{file} cannot be written: {why}"))?;
    println!("wrote {file}: {} answers", answers.len());
    Ok(())
}

/// The text of a file of answers.
fn write(machine: &Name, answers: &Answers) -> String {
    let Name {
        driver,
        cuda,
        device,
    } = machine;
    let mut text = format!("device  {device}\ndriver  {driver}\ncuda  {cuda}\n\n");
    for (case, answer) in answers {
        writeln!(text, "{case}  {answer}").expect("text is written to memory");
    }
    text
}

fn read(text: &str) -> Recorded {
    let (head, body) = text.split_once("\n\n").expect("a head and answers");
    let head = lines(head);
    let of = |key: &str| head.get(key).expect("the machine in the head").clone();
    Recorded {
        machine: Name {
            driver: of("driver"),
            cuda: of("cuda"),
            device: of("device"),
        },
        answers: lines(body),
    }
}

fn lines(text: &str) -> Answers {
    let pair = |line: &str| {
        let (name, value) = line.split_once("  ").expect("a name and a value");
        (name.to_owned(), value.to_owned())
    };
    text.lines().map(pair).collect()
}
