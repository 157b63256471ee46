//! What a driver answered in a case, as one line of text that can be compared and kept.
//!
//! Noted are the calls that were refused, with their codes, and the rights that were read back. Calls that succeeded
//! are not named, nor are addresses and handles, which no two runs share. What is noted twice in a row is noted once.

use std::cell::RefCell;
use std::fmt::Display;

/// The answer in a case in which no call was refused.
const ALL_WELL: &str = "SUCCESS";

thread_local! {
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes what a call answered. `call` is the call as the case spells it; its arguments are left out.
pub fn hear(call: &str, answer: impl Display) {
    let name = call.split('(').next().unwrap_or(call).trim_end();
    let heard = format!("{name} {answer}");
    HEARD.with_borrow_mut(|all| {
        if all.last() != Some(&heard) {
            all.push(heard);
        }
    });
}

/// The answer since it was last asked for.
pub fn take() -> String {
    match HEARD.take() {
        heard if heard.is_empty() => ALL_WELL.into(),
        heard => heard.join(", "),
    }
}

/// Runs something of which nothing is noted.
pub fn unheard(run: impl FnOnce()) {
    let heard = HEARD.take();
    run();
    HEARD.set(heard);
}

/// The answer in a case that did not end as stated: what was heard, and how it ended, in one line. Where in the sources
/// it ended is left out: it tells nothing of the driver, and moves.
pub fn unlike(heard: &str, how: &str) -> String {
    let of_the_driver =
        |line: &&str| !line.contains("panicked at") && !line.starts_with("note: run with");
    let how: Vec<&str> = how
        .lines()
        .filter(of_the_driver)
        .flat_map(str::split_whitespace)
        .collect();
    format!("{heard}; NOT AS STATED: {}", how.join(" "))
}

/// Marks the answer in what a process of its own writes.
const MARK: &str = "answer: ";

/// The answer of a process that ended well and wrote none.
pub const LATE: &str = "ended in an exit handler";

/// The answer of a process that ended before it could write one.
pub const UNTOLD: &str = "no answer";

/// Writes the answer out when dropped, however the case ended: for the process that started this one.
#[derive(Debug)]
pub struct Tell;

impl Drop for Tell {
    fn drop(&mut self) {
        println!("{MARK}{}", take());
    }
}

/// The answer that a process of its own wrote, or what its absence means.
pub fn told(output: &str, absent: &str) -> String {
    let told = output.lines().find_map(|line| line.strip_prefix(MARK));
    told.unwrap_or(absent).into()
}
