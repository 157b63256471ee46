//! The one driver of this process: when it begins, and how it ends.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

use cuda_vmm::sim::Simulation;
use cuda_vmm::sys::{CUresult, Call};

use crate::config;

static DRIVER: OnceLock<Result<Simulation, CUresult>> = OnceLock::new();

/// The driver; or what every call answers if it could not be set up.
pub fn driver() -> Result<&'static Simulation, CUresult> {
    DRIVER.get_or_init(start).as_ref().map_err(|code| *code)
}

/// Makes a call of the driver.
pub fn call(call: Call, make: impl FnOnce(&Simulation) -> CUresult) -> CUresult {
    let code = match driver() {
        Ok(driver) => make(driver),
        Err(code) => return code,
    };
    if call == Call::cuInit && code == CUresult::CUDA_SUCCESS {
        watch_for_the_end();
    }
    code
}

fn start() -> Result<Simulation, CUresult> {
    let driver = config::from_environment().and_then(|driver| {
        stay_loaded()?;
        Ok(driver)
    });
    driver.map_err(|why| {
        eprintln!("simcuda: {why}");
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY
    })
}

/// Keeps this library in the process when whoever opened it closes it: there are fork and exit handlers in it from here
/// on, and state that the next one to open it must find again, as with the real driver.
fn stay_loaded() -> Result<(), String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` takes any address and writes to the struct; zeroes are a value of it.
    let info = unsafe {
        libc::dladdr(end as *const c_void, info.as_mut_ptr());
        info.assume_init()
    };
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is null or a C string of the dynamic linker's; nothing is loaded that is not loaded already.
    let kept =
        !info.dli_fname.is_null() && !unsafe { libc::dlopen(info.dli_fname, flags) }.is_null();
    kept.then_some(())
        .ok_or_else(|| "the dynamic linker does not know this library".to_owned())
}

/// The process that initialised the driver.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Has the driver end with the process, as the real one does by an exit handler that `cuInit` registers.
fn watch_for_the_end() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        OWNER.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the handler is a function of this library, which stays loaded. Without room for it the driver is
        // there until the very end, which is all that is lost.
        unsafe { libc::atexit(end) };
    });
}

extern "C" fn end() {
    // A forked child has this handler too, and may have been forked while another thread was in a call: it must not
    // wait for that one, and its calls are refused anyway.
    if OWNER.load(Ordering::Relaxed) == std::process::id() {
        if let Ok(driver) = driver() {
            driver.deinitialize();
        }
    }
}
