//! From a case and a driver to one named trial.

use std::cell::RefCell;
use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};

use libtest_mimic::{Completion, Failed, Trial};

use crate::agreement::{self, Outcome};
use crate::case::{Case, Run, Section};
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::support;
use crate::support::which::Which;
use crate::transcript;

/// What this machine has.
pub struct Machine {
    /// How many devices its driver has, or why it has none.
    devices: Result<usize, String>,
    /// Keeps device 0's primary context from being made anew for each case.
    _context: Option<Gpu>,
}

impl Machine {
    pub fn look() -> Machine {
        let devices = support::devices();
        if let Err(why) = &devices {
            eprintln!("SKIPPED: the [gpu] trials: {why}");
        }
        let context = devices.is_ok().then(|| {
            let gpu = Gpu::open(Driver::open(Which::Gpu, 1));
            gpu.warm_up();
            gpu
        });
        Machine {
            devices,
            _context: context,
        }
    }

    /// Why the case cannot run on that driver here, if it cannot.
    fn lacks(&self, case: &Case, which: Which) -> Option<String> {
        let devices = match (which, &self.devices) {
            // The reason is told once, by whoever looked.
            (Which::Gpu, Err(_)) => return Some("no driver here".into()),
            (Which::Gpu, Ok(devices)) => *devices,
            (Which::Sim, _) => case.devices(),
        };
        case.need?.unmet(which, devices)
    }

    /// Whether a case that cannot run on that driver must fail: where a driver is demanded and missing.
    fn must_have(&self, which: Which) -> bool {
        which == Which::Gpu && self.devices.is_err() && support::gpu_required()
    }
}

/// A trial for each case and driver.
pub fn all(sections: &'static [Section], machine: &Machine) -> Vec<Trial> {
    let mut trials = Vec::new();
    for section in sections {
        for case in section.cases {
            trials.extend(Which::BOTH.map(|which| trial(section.name, case, which, machine)));
        }
    }
    trials
}

fn name(section: &str, case: &Case, which: Which) -> String {
    format!("{section}::{} [{which}]", case.name)
}

fn trial(section: &'static str, case: &'static Case, which: Which, machine: &Machine) -> Trial {
    let name = name(section, case, which);
    let lacks = machine.lacks(case, which);
    let must_have = machine.must_have(which);
    let role = name.clone();
    Trial::ignorable_test(name, move || {
        if let Some(why) = lacks {
            agreement::note(section, case.name, which, Outcome::NotRunnable(why.clone()));
            return match must_have {
                true => Err(Failed::from(format!(
                    "{} is set: {why}",
                    support::GPU_REQUIRED
                ))),
                false => Ok(Completion::ignored_with(why)),
            };
        }
        let ended = match case.run {
            Run::Here(run) => here(run, which, case.devices()),
            Run::Alone(_) | Run::Apart(_) => elsewhere(&role),
        };
        let outcome = match &ended {
            Ok(answer) => Outcome::AsStated(answer.clone()),
            Err((answer, how)) => Outcome::Otherwise(transcript::unlike(answer, how)),
        };
        agreement::note(section, case.name, which, outcome);
        match ended {
            Ok(_) => Ok(Completion::Completed),
            Err((_, how)) => Err(Failed::from(format!("the fact: {}\n{how}", case.fact))),
        }
    })
}

thread_local! {
    /// Where the last panic of this thread was, and what it said.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps panics for the report of the trial, instead of writing them between the lines of the listing.
pub fn keep_panics() {
    set_hook(Box::new(|panic| LAST_PANIC.set(panic.to_string())));
}

/// What the driver answered; of a case that failed, also how.
type Ended = Result<String, (String, String)>;

/// Runs a case in this process, a panic being its failure.
fn here(run: fn(&Gpu), which: Which, devices: usize) -> Ended {
    let guarded = catch_unwind(AssertUnwindSafe(|| with_gpu(run, which, devices)));
    let answer = transcript::take();
    match guarded {
        Ok(()) => Ok(answer),
        Err(_) => Err((answer, LAST_PANIC.take())),
    }
}

/// Runs a case in a process of its own.
fn elsewhere(role: &str) -> Ended {
    let ended = match support::perform(role) {
        Ok(ended) => ended,
        Err(why) => return Err((transcript::UNTOLD.into(), why)),
    };
    let output = String::from_utf8_lossy(&ended.stdout);
    if ended.status.success() {
        return Ok(transcript::told(&output, transcript::LATE));
    }
    let how = format!(
        "a process of its own ended with {}\n{}",
        ended.status,
        String::from_utf8_lossy(&ended.stderr)
    );
    Err((transcript::told(&output, transcript::UNTOLD), how))
}

/// Runs a case on a driver made ready for it, and demands that it leaves nothing behind.
///
/// A real driver has pools of its own (of events, say) that grow by a piece of memory now and then and keep it. What a
/// case leaves behind is left each time; what such a pool took is not taken a second time.
fn with_gpu(run: fn(&Gpu), which: Which, devices: usize) {
    let gpu = Gpu::open(Driver::open(which, devices));
    let before = gpu.world();
    run(&gpu);
    let after = gpu.world();
    if !after.has_less_free_than(&before) {
        return assert_eq!(after, before, "the case left something behind");
    }
    transcript::unheard(|| run(&gpu));
    assert_eq!(gpu.world(), after, "the case leaves something behind");
}

/// Plays the part of the trial of that name, in a process that was started for it.
pub fn play(sections: &[Section], role: &str) {
    // What the case says and no more: it becomes part of its answer.
    set_hook(Box::new(|panic| eprintln!("{panic}")));
    for section in sections {
        for case in section.cases {
            for which in Which::BOTH {
                if name(section.name, case, which) == role {
                    let _answer = transcript::Tell;
                    return match case.run {
                        Run::Alone(run) | Run::Here(run) => {
                            with_gpu(run, which, case.devices());
                        }
                        Run::Apart(run) => run(which),
                    };
                }
            }
        }
    }
    panic!("no case is named {role:?}");
}
