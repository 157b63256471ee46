//! The answers of machines, kept as text: what one run writes, and the next is compared with.
//!
//! A file begins with the machine and has one line for each case: its name, two spaces, the answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::machine::Name;

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

/// Where this run is to write its answers, if it is.
pub fn wanted() -> Option<PathBuf> {
    std::env::var_os(RECORD).map(PathBuf::from)
}

/// The text of a file of answers.
pub fn write(machine: &Name, answers: &Answers) -> String {
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
