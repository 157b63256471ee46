//! Processes of their own: the driver of a process begins once and ends with it.

use std::process::{Command, Output, Stdio};

use crate::{life, setup};

/// Names the part that a copy of this program plays.
const PART: &str = "CUDA_VMM_SIMCUDA_PART";

/// A copy that has not ended by then ends itself, so that the program that waits for it never hangs.
const SECONDS: u32 = 60;

const PARTS: &[(&str, fn())] = &[
    ("describe", setup::describe),
    ("create_thrice", setup::create_thrice),
    ("opened_twice", life::opened_twice),
    ("stays_when_closed", life::stays_when_closed),
    ("forked_children_exit", life::forked_children_exit),
];

/// The part that this process was started to play, if another copy of the program started it.
pub fn part() -> Option<String> {
    let part = std::env::var(PART).ok()?;
    unsafe { libc::alarm(SECONDS) };
    Some(part)
}

pub fn play(part: &str) {
    match PARTS.iter().find(|(name, _)| *name == part) {
        Some((_, play)) => play(),
        None => panic!("no part is named {part:?}"),
    }
}

/// Runs the part in a process with these variables on top of the environment.
pub fn run(part: &str, variables: &[(&str, &str)]) -> Output {
    let program = std::env::current_exe().expect("where this program lies");
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SIMCUDA_") {
            command.env_remove(name);
        }
    }
    command
        .envs(variables.iter().copied())
        .env(PART, part)
        .stdin(Stdio::null())
        .output()
        .expect("this program starts again")
}

/// What the part writes, if it ends well.
#[track_caller]
pub fn told(part: &str, variables: &[(&str, &str)]) -> String {
    let output = run(part, variables);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}
