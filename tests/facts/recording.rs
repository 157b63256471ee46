//! What cannot be recorded is refused, with the reason on standard error.

use std::collections::BTreeMap;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::machine::Name;
use crate::recorded::{self, RECORD};
use crate::support;

/// This program, started again where nothing could be recorded.
pub fn trial() -> Trial {
    Trial::test("recording is refused with a reason", || {
        refused(
            &["reserve"],
            "a filter leaves cases out: record without one",
        )?;
        refused(
            &["--skip", "reserve"],
            "a filter leaves cases out: record without one",
        )?;
        unwritable()?;
        match support::devices() {
            Ok(_) => Ok(()),
            Err(why) => refused(
                &[],
                &format!("there is no driver whose answers could be recorded: {why}"),
            ),
        }
    })
}

fn unwritable() -> Result<(), Failed> {
    let machine = Name {
        driver: "1.2".into(),
        cuda: "13.0".into(),
        device: "a device".into(),
    };
    // A file in what is no folder.
    let path = std::env::current_exe()?.join("answers.txt");
    let why = format!(
        "{} cannot be written: Not a directory (os error 20)",
        path.display()
    );
    match recorded::record(&path, &machine, &BTreeMap::new()) {
        Err(told) if told == why => Ok(()),
        other => Err(format!("{other:?} is not {why}").into()),
    }
}

fn refused(arguments: &[&str], why: &str) -> Result<(), Failed> {
    let file = std::env::temp_dir().join(format!("cuda-vmm-facts-{}", std::process::id()));
    let ended = Command::new(std::env::current_exe()?)
        .args(arguments)
        .env(RECORD, &file)
        .output()?;
    let told = String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() != Some(1) || told != format!("{RECORD}: {why}\n") {
        return Err(format!("{arguments:?} ended with {}: {told}", ended.status).into());
    }
    match ended.stdout.is_empty() && !file.exists() {
        true => Ok(()),
        false => Err(format!(
            "{arguments:?}: cases were run, or {} was written",
            file.display()
        )
        .into()),
    }
}
