//! The C functions: what comes in is checked, what fails is kept as text, and no panic gets out.

use std::any::Any;
use std::ffi::{c_char, c_int, c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_vmm::suspend::Backup;
use cuda_vmm::Driver;

use crate::failure::Failure;
use crate::pool::{Count, Pool};
use crate::thrown;

/// What a function answers that failed, and one that has nothing else to say.
const FAILED: c_int = -1;
const DONE: c_int = 0;

/// The one pool of the process, made at the first call. It is never dropped: when the process ends the driver takes
/// everything back, and whatever Python frees last still finds it.
static POOL: Mutex<Option<Pool>> = Mutex::new(None);

static LAST_ERROR: Mutex<String> = Mutex::new(String::new());

#[no_mangle]
extern "C" fn cuda_vmm_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    match kept(|| malloc(size, device, stream)) {
        Some(address) => address as *mut c_void,
        None => std::ptr::null_mut(),
    }
}

#[no_mangle]
extern "C-unwind" fn cuda_vmm_malloc_or_throw(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let message = match kept(|| malloc(size, device, stream)) {
        Some(address) => return address as *mut c_void,
        None => {
            let text = format!("cuda-vmm: {}", last_error());
            CString::new(text).unwrap_or_default()
        }
    };
    thrown::runtime_error(message);
    std::ptr::null_mut()
}

#[no_mangle]
extern "C" fn cuda_vmm_free(address: *mut c_void, size: isize, device: c_int, stream: *mut c_void) {
    kept(|| {
        if address.is_null() {
            return Ok(());
        }
        let (size, device) = (bytes(size)?, ordinal(device)?);
        with_pool(|pool| pool.free(address as u64, size, device, stream as usize))
    });
}

#[no_mangle]
extern "C" fn cuda_vmm_suspend(keep_contents: c_int) -> i64 {
    let backup = match keep_contents {
        0 => Backup::None,
        _ => Backup::Host,
    };
    told(|| with_pool(|pool| pool.suspend(backup)))
}

#[no_mangle]
extern "C" fn cuda_vmm_resume() -> c_int {
    kept(|| with_pool(Pool::resume)).map_or(FAILED, |()| DONE)
}

#[no_mangle]
extern "C" fn cuda_vmm_trim() -> i64 {
    told(|| with_pool(Pool::trim))
}

#[no_mangle]
extern "C" fn cuda_vmm_bytes(which: c_int) -> i64 {
    told(|| {
        let count = match which {
            0 => Count::Committed,
            1 => Count::Retained,
            2 => Count::Used,
            other => return Err(Failure::Count(other)),
        };
        with_pool(|pool| Ok(pool.bytes(count)))
    })
}

/// # Safety
///
/// `text` is null, or there are `capacity` bytes there to be written.
#[no_mangle]
unsafe extern "C" fn cuda_vmm_error(text: *mut c_char, capacity: usize) -> usize {
    let error = last_error();
    if !text.is_null() && capacity > 0 {
        let shown = error.len().min(capacity - 1);
        // SAFETY: the caller vouches for the buffer, of which no more is written than there is: the text, cut if need
        // be, and a zero.
        unsafe {
            std::ptr::copy_nonoverlapping(error.as_ptr().cast(), text, shown);
            *text.add(shown) = 0;
        }
    }
    error.len()
}

/// Sets the pool up over a driver, or takes it away; gives the one that was there.
#[allow(dead_code)] // For tests/torch_allocator.
pub fn replace_pool(driver: Option<&Driver>) -> Option<Pool> {
    LAST_ERROR
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    POOL.clear_poison();
    std::mem::replace(&mut pool, driver.map(Pool::new))
}

fn malloc(size: isize, device: c_int, stream: *mut c_void) -> Result<u64, Failure> {
    match (bytes(size)?, ordinal(device)?) {
        // PyTorch asks for no bytes for an empty tensor.
        (0, _) => Ok(0),
        (size, device) => with_pool(|pool| pool.malloc(size, device, stream as usize)),
    }
}

fn bytes(size: isize) -> Result<usize, Failure> {
    usize::try_from(size).map_err(|_| Failure::Size(size))
}

fn ordinal(device: c_int) -> Result<u32, Failure> {
    u32::try_from(device).map_err(|_| Failure::Device(device))
}

fn with_pool<T>(run: impl FnOnce(&mut Pool) -> Result<T, Failure>) -> Result<T, Failure> {
    let mut pool: MutexGuard<'_, Option<Pool>> = POOL.lock().map_err(|_| Failure::Broken)?;
    match &mut *pool {
        Some(pool) => run(pool),
        none => run(none.insert(Pool::new(&Driver::load()?))),
    }
}

/// Runs it, keeps the text of its error if it fails, and lets no panic through.
fn kept<T>(run: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    let failure = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let failure = Failure::Panicked(words(&*panic));
            // What was thrown may panic when it is dropped, so it never is.
            std::mem::forget(panic);
            failure
        }
    };
    // C ends a text at its first zero.
    let text = failure.to_string().replace('\0', " ");
    *LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner) = text;
    None
}

fn told(run: impl FnOnce() -> Result<usize, Failure>) -> i64 {
    kept(run).map_or(FAILED.into(), |bytes| bytes as i64)
}

fn last_error() -> String {
    LAST_ERROR
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
