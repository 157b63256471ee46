//! Shared by the test programs that can run on a real driver.
//!
//! A machine without a driver is no failure: what needs one is skipped in plain sight, with the loader's own words as
//! the reason. [`GPU_REQUIRED`] in the environment turns that skip into a failure, for machines that are meant to
//! have one.

pub mod simcuda;
pub mod which;

use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};

use cuda_vmm::sys::{CUresult, DriverCalls, Library};

/// Set to `1` where a missing driver must fail the run.
pub const GPU_REQUIRED: &str = "CUDA_VMM_REQUIRE_GPU";

/// Names the part that a copy of this program plays; absent in the program that the user started.
const ROLE: &str = "CUDA_VMM_TEST_ROLE";

/// A copy that has not ended by then ends itself, so that the program that waits for it never hangs.
const COPY_SECONDS: u32 = 90;

/// The driver of this machine, opened once and not initialised; or why there is none.
pub fn real() -> Result<Arc<dyn DriverCalls>, String> {
    static OPENED: OnceLock<Result<Arc<dyn DriverCalls>, String>> = OnceLock::new();
    OPENED
        .get_or_init(|| match Library::open() {
            Ok(library) => Ok(Arc::new(library)),
            Err(error) => Err(error.to_string()),
        })
        .clone()
}

/// How many devices the driver of this machine has, at least one; or why it cannot be used. Initialises the driver.
pub fn devices() -> Result<usize, String> {
    let calls = real()?;
    let initialised = unsafe { calls.cuInit(0) };
    if initialised != CUresult::CUDA_SUCCESS {
        return Err(format!("cuInit answered {}", initialised.0));
    }
    let mut count = 0;
    match unsafe { calls.cuDeviceGetCount(&mut count) } {
        CUresult::CUDA_SUCCESS if count > 0 => Ok(count as usize),
        CUresult::CUDA_SUCCESS => Err("the driver has no device".into()),
        code => Err(format!("cuDeviceGetCount answered {}", code.0)),
    }
}

/// Whether a missing driver must fail the run.
pub fn gpu_required() -> bool {
    std::env::var_os(GPU_REQUIRED).is_some_and(|value| value == "1")
}

/// The part that this process was started to play, if another copy of the program started it.
pub fn role() -> Option<String> {
    let role = std::env::var(ROLE).ok()?;
    unsafe { libc::alarm(COPY_SECONDS) };
    Some(role)
}

/// Runs this program again in the given part, waits for it, and fails with what it wrote unless it ended well.
pub fn play(role: &str) -> Result<(), String> {
    let ended = perform(role)?;
    if ended.status.success() {
        return Ok(());
    }
    Err(format!(
        "a process of its own ended with {}\n{}{}",
        ended.status,
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    ))
}

/// This program again in the given part, to be started as the caller likes.
pub fn again(role: &str) -> Result<Command, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("where this program lies: {error}"))?;
    let mut command = Command::new(program);
    command.env(ROLE, role).stdin(Stdio::null());
    Ok(command)
}

/// Runs this program again in the given part, and gives how it ended and what it wrote.
///
/// For what can only be seen in a process of its own: the state before the first call, a fork, the end of a process, a
/// context that is lost.
pub fn perform(role: &str) -> Result<Output, String> {
    again(role)?
        .output()
        .map_err(|error| format!("starting this program again: {error}"))
}
