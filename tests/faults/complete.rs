//! No operation is forgotten: what the sources declare is what the tables hold.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Completion, Failed, Trial};

use crate::{endings, of_pools, operations};

/// Fallible, but tried elsewhere, and where.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "Driver::load",
        "opens a library, which tests/loader does; then as from_calls",
    ),
    (
        "Driver::load_from",
        "opens a library, which tests/loader does; then as from_calls",
    ),
    ("Arena::over", "makes no driver call"),
    ("Arena::allocate", "makes no driver call"),
    ("Arena::free", "makes no driver call"),
    ("Arena::set_extents", "makes no driver call"),
    (
        "Arena::allocate_in",
        "as ElasticRange::commit, its only driver calls; in tests/arena",
    ),
    (
        "ElasticRange::decommit_splitting",
        "in tests/elastic/faults.rs: a handle that is released late is an error of something that was done",
    ),
    (
        "StillHeld::drop",
        "in tests/waiting: an error of a failed wait unmaps nothing",
    ),
    (
        "Unclaimed::drop",
        "in tests/waiting: a failed wait that nobody joins",
    ),
    ("Closing::join", "with close_in_background, which it ends"),
    ("Choice::required", "makes no driver call"),
    ("Group::add", "makes no driver call"),
    ("Group::set_backup", "makes no driver call"),
    ("Group::remove", "makes no driver call"),
    ("Group::get", "makes no driver call"),
    ("Group::get_mut", "makes no driver call"),
    ("Group::outline", "makes no driver call"),
    ("Group::is_suspended", "makes no driver call"),
    ("Pages::drop", "makes no driver call"),
    ("Stop::drop", "makes no driver call"),
    (
        "Block::drop",
        "in tests/suspend: host memory that stays registered",
    ),
    ("Lane::drop", "ended before, unless a call has panicked"),
    ("Lanes::drop", "ended before, unless a call has panicked"),
    ("SpanImport::new", "makes no driver call"),
    ("Descriptor::decode", "makes no driver call"),
    ("ReadOnlySpan::read", "as Reservation::read"),
    ("ReadOnlySpan::view", "as Reservation::view"),
    ("ReadOnlySpan::access_of", "as Reservation::access_of"),
    ("ReadOnlySpan::copy_to", "as Reservation::copy_from"),
    ("ReadOnlySpan::close", "as Reservation::close"),
    (
        "Fence::closure",
        "gives a fence; it is the closure that gives a result",
    ),
    (
        "Unwinding::drop",
        "in tests/hooked_calls: a call that panics while a context is in use",
    ),
    (
        "Rest::drop",
        "in tests/hooked_calls: a call that panics while pieces are reclaimed",
    ),
    (
        "Mapping::drop",
        "a mapping that is still mapped when dropped: only one that Reservation::drop did not see",
    ),
];

/// Fails when a public operation that can fail, or a `Drop`, stands in no table, or a table names one that is gone.
pub fn trial() -> Trial {
    Trial::ignorable_test("every fallible operation stands in the tables", || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        if !source.is_dir() {
            let why = format!("the sources are not at {}", source.display());
            return Ok(Completion::ignored_with(why));
        }
        let declared = declared(&source)?;
        let tabled: BTreeSet<String> = operations::all()
            .map(|operation| operation.method)
            .chain(endings::ALL.iter().map(|end| end.method))
            .chain(
                ELSEWHERE
                    .iter()
                    .chain(of_pools::ELSEWHERE)
                    .map(|(method, _)| *method),
            )
            .map(String::from)
            .collect();
        let missing: Vec<_> = declared.difference(&tabled).collect();
        let gone: Vec<_> = tabled.difference(&declared).collect();
        match missing.is_empty() && gone.is_empty() {
            true => Ok(Completion::Completed),
            false => Err(Failed::from(format!(
                "in no table: {missing:?}; in a table, but not in the sources: {gone:?}"
            ))),
        }
    })
}

fn declared(source: &Path) -> Result<BTreeSet<String>, Failed> {
    let mut files = Vec::new();
    sources(source, &mut files)?;
    let mut declared = BTreeSet::new();
    for file in files {
        fallible(&fs::read_to_string(&file)?, &mut declared);
    }
    // A reader that finds nothing would be content with anything.
    for known in [
        "Driver::device",
        "Reservation::map",
        "Reservation::drop",
        "Allocation::from_raw",
    ] {
        if !declared.contains(known) {
            return Err(Failed::from(format!(
                "the sources were misread: no {known}"
            )));
        }
    }
    Ok(declared)
}

/// Every source file but those of the layers below, whose calls are the ones that are made to fail, and of the
/// transport, which makes no driver call and whose system calls are made to fail in tests/wire.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failed> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        match path.is_dir() {
            true if name == "sim" || name == "sys" || name == "wire" => {}
            true => sources(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

/// Adds the public functions that give a `Result`, and the `Drop`s. The sources are formatted: an `impl` begins a line,
/// and a signature ends with its brace.
fn fallible(text: &str, found: &mut BTreeSet<String>) {
    let mut of = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("impl") {
            of = implemented(line);
            if line.contains(" Drop for ") || line.contains("> Drop for ") {
                found.insert(format!("{of}::drop"));
            }
        }
        let Some(rest) = ["    pub fn ", "    pub unsafe fn "]
            .iter()
            .find_map(|start| line.strip_prefix(start))
        else {
            continue;
        };
        let mut signature = rest.to_string();
        while !signature.ends_with('{') {
            signature += lines.next().unwrap_or("{");
        }
        let name: String = rest
            .chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect();
        let gives = signature.rsplit_once("->").map_or("", |(_, gives)| gives);
        if gives.contains("Result<") {
            found.insert(format!("{of}::{name}"));
        }
    }
}

/// The type that an `impl` line is about: `View` of `impl<'a> View<'a> {`, `Inner` of `impl Drop for Inner {`.
fn implemented(line: &str) -> String {
    let about = line.rsplit_once(" for ").map_or(line, |(_, about)| about);
    let about = match about.strip_prefix("impl<") {
        Some(generic) => generic.split_once("> ").map_or(generic, |(_, rest)| rest),
        None => about.strip_prefix("impl ").unwrap_or(about),
    };
    about
        .chars()
        .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
        .collect()
}
