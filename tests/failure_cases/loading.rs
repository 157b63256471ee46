//! K. The list of calls, and what the crate reads of its surroundings. Building and loading are in tests/build_script
//! and tests/loader.

use std::fs;
use std::path::Path;

use cuda_vmm::sys::Call;

use crate::case::{sources, Case};

pub const CASES: &[Case] = &[
    Case::sim(
        "no call whose signature changed between toolkits",
        no_changed_signature,
    ),
    Case::sources(
        "nothing is read from the environment at run time",
        no_environment,
    ),
];

/// Failure cases 134 and 136: contexts are made by retaining primary ones, and nothing is prefetched or advised.
fn no_changed_signature() {
    for call in Call::ALL {
        let name = call.symbol();
        assert!(!name.starts_with("cuCtxCreate"), "{name}");
        assert!(
            !name.contains("Prefetch") && !name.contains("Advise"),
            "{name}"
        );
    }
}

/// Failure case 139. The build script, whose files are in `sys/build`, does read variables, and says which.
fn no_environment() {
    let mut files = Vec::new();
    collect(&sources().join("src"), &mut files);
    assert!(
        files.len() > 50,
        "{} files: the sources are not there",
        files.len()
    );
    for (path, text) in files {
        let names = ["env::var", "var_os(", "getenv", "env::vars", "option_env!"];
        let named = names.iter().find(|name| text.contains(**name));
        assert_eq!(named, None, "{}", path);
    }
}

fn collect(folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.ends_with("sys/build") => {}
            true => collect(&path, files),
            false => files.push((
                path.display().to_string(),
                fs::read_to_string(&path).unwrap(),
            )),
        }
    }
}
