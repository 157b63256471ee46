//! The driver library, opened at run time, so that a program that embeds this crate starts on a machine without a GPU.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void, CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{
    for_each_call, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUhostFn, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemRangeHandleType,
    CUmodule, CUpointer_attribute, CUresult, CUstream, CUuuid, Call, CallTable, DriverCalls,
    LoadError, Tried, CUDA_MEMCPY2D,
};

/// Where [`Library::open`] looks, in this order. The driver package installs the first name and a toolkit only the
/// second; under WSL both lie in a folder that the dynamic linker is not always told of.
const NAMES: [&str; 3] = [
    "libcuda.so.1",
    "libcuda.so",
    "/usr/lib/wsl/lib/libcuda.so.1",
];

/// What a driver must export to be of any use here: start-up and the memory management of CUDA 10.2, the release that
/// introduced it. Every other call may be absent.
const REQUIRED: &[Call] = &[
    Call::cuInit,
    Call::cuDriverGetVersion,
    Call::cuDeviceGetCount,
    Call::cuDeviceGet,
    Call::cuDeviceGetAttribute,
    Call::cuMemAddressReserve,
    Call::cuMemAddressFree,
    Call::cuMemCreate,
    Call::cuMemRelease,
    Call::cuMemMap,
    Call::cuMemUnmap,
    Call::cuMemSetAccess,
    Call::cuMemGetAccess,
    Call::cuMemGetAllocationGranularity,
];

/// The loaded driver library.
///
/// It is [`Send`] and [`Sync`]: it holds a table that never changes once it is filled, and the driver's calls may be
/// made from any thread.
///
/// Dropping it does not unload the driver. Once `cuInit` ran, the driver has threads and exit handlers whose code lies
/// in the library, and other parts of the process may have started it too; unmapping that code would crash them.
pub struct Library {
    table: CallTable,
    path: PathBuf,
}

impl Library {
    /// Opens the machine's driver: `libcuda.so.1`, then `libcuda.so`, wherever the dynamic linker finds them, then the
    /// folder where WSL keeps the driver.
    ///
    /// # Errors
    ///
    /// [`LoadError::NotFound`] when there is none. A file that is there but cannot be used ends the search with its own
    /// error: to pass over it would be to load another driver than the one the machine puts first.
    pub fn open() -> Result<Self, LoadError> {
        let mut tried = Vec::new();
        for name in NAMES {
            match Self::open_name(name.as_ref()) {
                Err(LoadError::NotFound { tried: this }) => tried.extend(this),
                other => return other,
            }
        }
        Err(LoadError::NotFound { tried })
    }

    /// Opens the driver library at `path`. Nothing is searched for: a path without a folder is one of the current
    /// folder.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), of this one file.
    pub fn open_path(path: &Path) -> Result<Self, LoadError> {
        if is_path(path.as_os_str()) {
            Self::open_name(path.as_os_str())
        } else {
            Self::open_name(Path::new(".").join(path).as_os_str())
        }
    }

    /// The file that was loaded, as the dynamic linker found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The calls as the driver exports them.
    pub fn table(&self) -> &CallTable {
        &self.table
    }

    /// Passes on what `cuInit` answered, unless it is the answer of a toolkit's stub library: then the error names the
    /// file.
    ///
    /// # Errors
    ///
    /// [`LoadError::StubLibrary`].
    pub fn refuse_stub(&self, answer: CUresult) -> Result<CUresult, LoadError> {
        if answer == CUresult::CUDA_ERROR_STUB_LIBRARY {
            return Err(LoadError::StubLibrary {
                path: self.path.clone(),
            });
        }
        Ok(answer)
    }

    fn open_name(name: &OsStr) -> Result<Self, LoadError> {
        let object = match open_object(name) {
            Ok(object) => object,
            Err(reason) => return Err(refusal(name, reason)),
        };
        // SAFETY: `object` is open, and an object that calls itself libcuda (or that the caller of `open_path` calls
        // the driver) exports these names as the driver's functions; that trust is stated at the head of the `sys`
        // module.
        let table = unsafe { CallTable::resolve(|call| object.symbol(call)) };
        let path = table
            .cuInit
            .and_then(|function| file_of(function as *const c_void))
            .unwrap_or_else(|| PathBuf::from(name));
        let missing: Vec<Call> = REQUIRED
            .iter()
            .copied()
            .filter(|&call| !table.provides(call))
            .collect();
        if !missing.is_empty() {
            object.close();
            return Err(LoadError::MissingCalls { path, missing });
        }
        Ok(Library { table, path })
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

macro_rules! delegate_to_table {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        // SAFETY: every method is the table's, whose functions are those of the loaded driver.
        unsafe impl DriverCalls for Library {
            fn provides(&self, call: Call) -> bool {
                self.table.provides(call)
            }

            $(
                #[inline]
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    // SAFETY: the caller vouches for the arguments.
                    unsafe { self.table.$name($($arg),*) }
                }
            )*
        }
    };
}
for_each_call!(delegate_to_table);

/// An open shared object: what `dlopen` gave.
struct Object(std::ptr::NonNull<c_void>);

impl Object {
    /// The symbol's address, or null where the object does not export it.
    fn symbol(&self, call: Call) -> *const c_void {
        let Ok(symbol) = CString::new(call.symbol()) else {
            return std::ptr::null();
        };
        // SAFETY: the handle is open, and the name is a C string that outlives the call.
        unsafe { libc::dlsym(self.0.as_ptr(), symbol.as_ptr()) }
    }

    /// Gives back an object of which nothing but its symbol table was used.
    fn close(self) {
        // SAFETY: the handle is open, and no address from it is kept. A failure would leave the object loaded, which
        // harms nobody.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

/// Opens a shared object, or says what the dynamic linker says.
fn open_object(name: &OsStr) -> Result<Object, String> {
    let name =
        CString::new(name.as_bytes()).map_err(|_| "the path contains a NUL byte".to_owned())?;
    // SAFETY: the name is a C string. Loading runs the object's initialisers, which for the driver touch nothing of
    // ours.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    std::ptr::NonNull::new(handle).map(Object).ok_or_else(|| {
        // SAFETY: `dlerror` takes nothing. Its text belongs to this thread and is copied before another call.
        let text = unsafe { libc::dlerror() };
        if text.is_null() {
            return "the dynamic linker gives no reason".to_owned();
        }
        // SAFETY: a text that is not null is a C string, as `dlerror` documents.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    })
}

/// Tells a file that was refused from one that is not there, by what the dynamic linker said of `name`.
///
/// Its text begins with the name it was asked for when no folder has it, and with the path of the file when one does.
/// The rest is in the user's language, so only that beginning is judged.
fn refusal(name: &OsStr, reason: String) -> LoadError {
    let asked = Path::new(name);
    let subject = reason.split_once(": ").map_or("", |(subject, _)| subject);
    let refused = if subject.contains('/') && Path::new(subject).exists() {
        Some(PathBuf::from(subject))
    } else if is_path(name) {
        asked.exists().then(|| asked.to_owned())
    } else {
        // Only libraries of another word size, or a library that the driver itself needs and that is not there.
        let other = reason.contains("ELFCLASS") || !reason.contains(&*name.to_string_lossy());
        other.then(|| asked.to_owned())
    };
    match refused {
        Some(path) => LoadError::NotALibrary { path, reason },
        None => LoadError::NotFound {
            tried: vec![Tried {
                file: name.to_string_lossy().into_owned(),
                reason,
            }],
        },
    }
}

/// Whether the dynamic linker takes the name for a path, rather than search its folders for it.
fn is_path(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

/// The file that the code at an address was loaded from.
fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` takes any address, and writes to the struct it is given.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zeroes are a value of this struct of pointers, whether or not it was written to.
    let name = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || name.is_null() {
        return None;
    }
    // SAFETY: the name is a C string that lives as long as the object, which is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(OsStr::from_bytes(name.to_bytes()).into())
}
