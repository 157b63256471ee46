//! What a case is: one measured fact, and the code that holds a driver to it.

use crate::gpu::Gpu;
use crate::support::simcuda::Simcuda;
use crate::support::which::Which;

/// The cases of one section of the table of facts.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    pub name: &'static str,
    pub cases: &'static [Case],
}

/// One fact about the driver.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    /// The fact in a sentence, shown when a driver disagrees with it.
    pub fact: &'static str,
    pub need: Option<Need>,
    pub run: Run,
}

/// Where a case runs.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// In this process, with device 0's primary context current; must leave nothing behind.
    Here(fn(&Gpu)),
    /// As here, but in a process of its own: where a driver might not survive the case, or would be disturbed by what
    /// else the process holds.
    Alone(fn(&Gpu)),
    /// In a process of its own, which has not made a driver call yet.
    Apart(fn(Which)),
}

/// What a case needs that not every driver or machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Devices 0 and 1.
    TwoDevices,
    /// A machine that may not use fabric handles: no IMEX channel is open to this process.
    NoImexChannel,
    /// The simulated driver, in this program or as the library that the loader finds, and why the real one is spared.
    Simulated(&'static str),
    /// The real driver, and why the simulated one has nothing to show, in this program or as a library.
    Real(&'static str),
}

/// Where the driver looks for the channels that permit fabric handles.
const IMEX_CHANNELS: &str = "/dev/nvidia-caps-imex-channels";

impl Need {
    /// Why the need is not met by a driver with so many devices, if it is not.
    pub fn unmet(self, which: Which, devices: usize) -> Option<String> {
        match (self, which) {
            (Need::TwoDevices, Which::Gpu) if devices < 2 => {
                Some(format!("needs 2 devices, this machine has {devices}"))
            }
            (Need::NoImexChannel, Which::Gpu) if has_entries(IMEX_CHANNELS) => Some(format!(
                "fabric handles are permitted here: {IMEX_CHANNELS} has a channel"
            )),
            (Need::Simulated(why), Which::Gpu) if Simcuda::find().is_none() => Some(why.into()),
            (Need::Real(why), Which::Gpu) if Simcuda::find().is_some() => Some(why.into()),
            (Need::Real(why), Which::Sim) => Some(why.into()),
            _ => None,
        }
    }
}

fn has_entries(folder: &str) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// A case in this process.
pub const fn case(name: &'static str, fact: &'static str, run: fn(&Gpu)) -> Case {
    Case::new(name, fact, Run::Here(run))
}

/// A case in a process of its own, with a context.
pub const fn alone(name: &'static str, fact: &'static str, run: fn(&Gpu)) -> Case {
    Case::new(name, fact, Run::Alone(run))
}

/// A case in a process of its own that has not made a driver call yet.
pub const fn apart(name: &'static str, fact: &'static str, run: fn(Which)) -> Case {
    Case::new(name, fact, Run::Apart(run))
}

impl Case {
    const fn new(name: &'static str, fact: &'static str, run: Run) -> Case {
        Case {
            name,
            fact,
            need: None,
            run,
        }
    }

    /// The same case with a need.
    pub const fn needs(self, need: Need) -> Case {
        Case {
            need: Some(need),
            ..self
        }
    }

    /// How many devices the case works with.
    pub fn devices(&self) -> usize {
        match self.need {
            Some(Need::TwoDevices) => 2,
            _ => 1,
        }
    }

    /// What a real driver needs for it, or why it is spared.
    pub fn needs_there(&self) -> Option<&'static str> {
        match self.need? {
            Need::TwoDevices => Some("needs 2 devices"),
            Need::NoImexChannel => Some("needs a machine without an IMEX channel"),
            Need::Simulated(why) => Some(why),
            Need::Real(_) => None,
        }
    }
}
