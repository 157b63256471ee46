//! The list of where each kind is proved, held against what there is.

use std::collections::BTreeSet;
use std::fs;

use crate::case::{sources, Case};
use crate::{PROVED, SECTIONS};

pub const CASES: &[Case] = &[
    Case::sim("every kind has its place in the table", every_kind),
    Case::sources("what the table names is there", what_is_named),
];

/// How a kind is proved.
pub enum Proof {
    /// By this case of this program.
    Here(&'static str),
    /// By this function of another program, in this file.
    Test(&'static str, &'static str),
    /// By an example in this file that does not compile.
    Type(&'static str, &'static str),
    /// Not on such a machine, or not at all.
    NotHere(&'static str),
}

/// The numbers of the collection, as ranges; the ones that it leaves out are in `ABSENT`.
const SECTIONS_OF_COLLECTION: [(u16, u16); 1] = [(1, 150)];
const ABSENT: [u16; 26] = [
    5, 12, 17, 24, 28, 44, 56, 62, 75, 78, 83, 90, 92, 97, 99, 101, 109, 111, 113, 115, 117, 122,
    124, 137, 143, 149,
];

fn every_kind() {
    let ranges = SECTIONS_OF_COLLECTION.into_iter();
    let expected: Vec<u16> = ranges
        .flat_map(|(first, last)| first..=last)
        .filter(|number| !ABSENT.contains(number))
        .collect();
    let listed: Vec<u16> = PROVED.iter().map(|(number, ..)| *number).collect();
    assert_eq!(listed, expected);
    for (number, kind, proofs) in PROVED {
        assert!(!kind.is_empty() && !proofs.is_empty(), "{number}");
    }
    let cases: Vec<_> = SECTIONS
        .iter()
        .copied()
        .flatten()
        .map(|case| case.name)
        .collect();
    let names: BTreeSet<_> = cases.iter().copied().collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    for (number, _, proofs) in PROVED {
        for proof in *proofs {
            match proof {
                Proof::Here(name) => assert!(names.contains(name), "{number}: no case {name:?}"),
                Proof::NotHere(what) => assert!(!what.is_empty(), "{number}"),
                Proof::Test(..) | Proof::Type(..) => {}
            }
        }
    }
}

fn what_is_named() {
    for (number, _, proofs) in PROVED {
        for proof in *proofs {
            let (file, needle) = match proof {
                Proof::Test(file @ ".ci/run", step) => (file, format!("\n{step}() {{")),
                Proof::Test(file, name) if file.ends_with(".py") => {
                    (file, format!("\ndef {name}("))
                }
                Proof::Test(file, name) => match fs::read_to_string(sources().join(file)) {
                    // A row of a table of cases, or a function.
                    Ok(text) if text.contains(&format!("\"{name}\"")) => {
                        (file, format!("\"{name}\""))
                    }
                    _ => (file, format!("fn {name}(")),
                },
                Proof::Type(file, example) => (file, format!("```{example}\n")),
                Proof::Here(_) | Proof::NotHere(_) => continue,
            };
            let text = fs::read_to_string(sources().join(file));
            let text = text.unwrap_or_else(|error| panic!("{number}: {file}: {error}"));
            assert!(text.contains(&needle), "{number}: {file} has no {needle:?}");
        }
    }
}
