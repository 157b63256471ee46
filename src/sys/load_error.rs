//! Why the driver library could not be had, in words that say what to change.

use std::path::PathBuf;

use super::Call;

/// Why there is no driver library to call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No file of any name that was tried.
    #[error(
        "no CUDA driver library found (tried {}); install the NVIDIA driver, or add the folder that holds libcuda.so.1 \
         to LD_LIBRARY_PATH (in a container: start it with the NVIDIA runtime)",
        list(tried)
    )]
    NotFound {
        /// Each name or path that was tried, in order, with what the dynamic linker said of it.
        tried: Vec<Tried>,
    },

    /// A file is there, and the dynamic linker refuses it.
    #[error(
        "{} cannot be loaded: {reason}; repair or remove it, or take its folder out of LD_LIBRARY_PATH",
        path.display()
    )]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// What the dynamic linker said.
        reason: String,
    },

    /// A library was loaded that is not a driver with virtual memory management.
    #[error(
        "{} does not export {}: it is not the CUDA driver, or one older than CUDA 10.2; update the NVIDIA driver",
        path.display(),
        enumerate(missing)
    )]
    MissingCalls {
        /// The file.
        path: PathBuf,
        /// Which of the calls that no driver may lack are absent.
        missing: Vec<Call>,
    },

    /// The library is the one that a toolkit brings to link against; it has no driver in it.
    #[error(
        "{} is the toolkit's stub, which is for linking only (CUDA_ERROR_STUB_LIBRARY); take its folder out of \
         LD_LIBRARY_PATH so that the libcuda.so.1 of the NVIDIA driver is found",
        path.display()
    )]
    StubLibrary {
        /// The file.
        path: PathBuf,
    },
}

/// One name that was tried, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The name or path as it was given to the dynamic linker.
    pub file: String,
    /// What the dynamic linker answered.
    pub reason: String,
}

/// Names and reasons, a reason that holds for several written once: they nearly always all fail alike.
fn list(tried: &[Tried]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for Tried { file, reason } in tried {
        let reason = reason.strip_prefix(file.as_str()).unwrap_or(reason);
        let reason = reason.trim_start_matches(": ");
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, files)) => files.push(file),
            None => groups.push((reason, vec![file])),
        }
    }
    let lines: Vec<String> = groups
        .iter()
        .map(|(reason, files)| format!("{}: {reason}", files.join(", ")))
        .collect();
    lines.join("; ")
}

/// The first few names; a foreign library lacks them all.
fn enumerate(missing: &[Call]) -> String {
    const SHOWN: usize = 3;
    let names: Vec<&str> = missing
        .iter()
        .map(|call| call.symbol())
        .take(SHOWN)
        .collect();
    match missing.len().saturating_sub(SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
