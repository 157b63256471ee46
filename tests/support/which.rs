//! The two drivers that a case runs on.

use std::fmt;

/// Which driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The simulated one.
    Sim,
    /// The machine's own.
    Gpu,
}

impl Which {
    pub const BOTH: [Which; 2] = [Which::Sim, Which::Gpu];

    pub fn named(name: &str) -> Which {
        let which = Which::BOTH.into_iter();
        let mut named = which.filter(|which| which.to_string() == name);
        named.next().expect("the name of a driver")
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Which::Sim => "sim",
            Which::Gpu => "gpu",
        })
    }
}
