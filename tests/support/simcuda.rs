//! The controls of the simulated driver as a library (`examples/simcuda`), where that is the driver the loader finds.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use cuda_vmm::sys::{CUstream, Library};

type Tell = unsafe extern "C" fn(*mut c_char, usize) -> usize;

/// The library's own symbols.
pub struct Simcuda {
    snapshot: Tell,
    misuses: Tell,
    hold_stream: unsafe extern "C" fn(CUstream) -> c_int,
    release_stream: unsafe extern "C" fn(CUstream) -> c_int,
}

impl Simcuda {
    /// The controls, if the driver of this machine has them: no real one does.
    pub fn find() -> Option<&'static Simcuda> {
        static FOUND: OnceLock<Option<Simcuda>> = OnceLock::new();
        FOUND
            .get_or_init(|| Simcuda::of(Library::open().ok()?.path()))
            .as_ref()
    }

    fn of(library: &Path) -> Option<Simcuda> {
        let name = CString::new(library.as_os_str().as_bytes()).expect("a path of the linker's");
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{name:?} was opened a moment ago");
        let symbol = |name: &CStr| {
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        unsafe {
            Some(Simcuda {
                snapshot: transmute::<*mut c_void, Tell>(symbol(c"simcuda_snapshot")?),
                misuses: transmute::<*mut c_void, Tell>(symbol(c"simcuda_misuses")?),
                hold_stream: transmute::<*mut c_void, unsafe extern "C" fn(CUstream) -> c_int>(
                    symbol(c"simcuda_hold_stream")?,
                ),
                release_stream: transmute::<*mut c_void, unsafe extern "C" fn(CUstream) -> c_int>(
                    symbol(c"simcuda_release_stream")?,
                ),
            })
        }
    }

    /// All that the driver holds, one fact a line.
    pub fn snapshot(&self) -> String {
        told(self.snapshot)
    }

    /// What a real driver would have died of, one a line.
    pub fn misuses(&self) -> String {
        told(self.misuses)
    }

    /// Holds back what is enqueued on the stream; `false` if there is no such stream.
    pub fn hold_stream(&self, stream: CUstream) -> bool {
        unsafe { (self.hold_stream)(stream) == 0 }
    }

    /// Lets the stream run; `false` if there is no such stream.
    pub fn release_stream(&self, stream: CUstream) -> bool {
        unsafe { (self.release_stream)(stream) == 0 }
    }
}

fn told(tell: Tell) -> String {
    let length = unsafe { tell(std::ptr::null_mut(), 0) };
    let mut text = vec![0_u8; length + 1];
    let written = unsafe { tell(text.as_mut_ptr().cast(), text.len()) };
    assert_eq!(written, length, "it changed while it was told");
    text.truncate(length);
    String::from_utf8(text).expect("the library writes UTF-8")
}
