//! How long the driver lives: it is one for the process, whoever opens and closes the library.

use std::ffi::{c_uint, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cuda_vmm::sys::{CUdeviceptr, CUresult, DriverCalls, Library};

use crate::support::simcuda::Simcuda;
use crate::{child, symbols, Test};

pub const TESTS: &[Test] = &[
    ("opened_twice_it_is_one_driver", || played("opened_twice")),
    ("closed_it_stays_with_all_it_holds", || {
        played("stays_when_closed")
    }),
    ("forked_children_exit_while_others_call", || {
        played("forked_children_exit")
    }),
];

const GRANULE: usize = 2 << 20;

/// How a forked child ends that was refused as it must be.
const AS_TOLD: i32 = 7;

/// How long a forked child may take to end.
const SECONDS: u32 = 10;

/// Runs the part, which says by its end whether all was well.
fn played(part: &str) {
    assert_eq!(child::told(part, &[]), "done\n");
}

/// In a child: what one opening of the library does, the other sees.
pub fn opened_twice() {
    let (one, other) = (Library::open().unwrap(), Library::open().unwrap());
    let mut address = 0;
    unsafe {
        assert_eq!(one.cuInit(0), CUresult::CUDA_SUCCESS);
        let reserved = one.cuMemAddressReserve(&mut address, GRANULE, 0, 0, 0);
        assert_eq!(reserved, CUresult::CUDA_SUCCESS);
        let freed = other.cuMemAddressFree(address, GRANULE);
        assert_eq!(freed, CUresult::CUDA_SUCCESS);
        let again = one.cuMemAddressFree(address, GRANULE);
        assert_eq!(again, CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    println!("done");
}

type Init = unsafe extern "C" fn(c_uint) -> CUresult;
type Reserve = unsafe extern "C" fn(*mut CUdeviceptr, usize, usize, CUdeviceptr, u64) -> CUresult;

/// In a child: the library is closed as often as it was opened, and opened again.
pub fn stays_when_closed() {
    // `Library` itself never closes one that it could use; it is opened once here to learn the path, and once per
    // symbol.
    let opened = symbols::open();
    let mut address = 0;
    unsafe {
        let init = libc::dlsym(opened, c"cuInit".as_ptr());
        let init = transmute::<*mut c_void, Init>(init);
        assert_eq!(init(0), CUresult::CUDA_SUCCESS);
        let reserve = libc::dlsym(opened, c"cuMemAddressReserve".as_ptr());
        let reserve = transmute::<*mut c_void, Reserve>(reserve);
        assert_eq!(
            reserve(&mut address, GRANULE, 0, 0, 0),
            CUresult::CUDA_SUCCESS
        );
        let closed = (0..100).take_while(|_| libc::dlclose(opened) == 0).count();
        assert!(closed >= 2, "closed {closed} times");
    }
    let held = Simcuda::find().expect("it is found again").snapshot();
    let first = held.lines().next();
    assert_eq!(
        first,
        Some(&*format!("reserved {address:#x} 2 MiB")),
        "{held}"
    );
    println!("done");
}

/// In a child: processes forked in the midst of another thread's calls end by `exit`, the handlers run, without waiting
/// for that thread, which they do not have.
pub fn forked_children_exit() {
    let driver = Library::open().unwrap();
    assert_eq!(unsafe { driver.cuInit(0) }, CUresult::CUDA_SUCCESS);
    let stop = AtomicBool::new(false);
    let mut ended = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut address = 0;
            while !stop.load(Ordering::Relaxed) {
                unsafe {
                    let reserved = driver.cuMemAddressReserve(&mut address, GRANULE, 0, 0, 0);
                    assert_eq!(reserved, CUresult::CUDA_SUCCESS);
                    let freed = driver.cuMemAddressFree(address, GRANULE);
                    assert_eq!(freed, CUresult::CUDA_SUCCESS);
                }
            }
        });
        for _ in 0..200 {
            let child = unsafe { libc::fork() };
            if child == 0 {
                // An alarm is not inherited, and a child that waits for ever would keep this program's output open.
                unsafe { libc::alarm(SECONDS) };
                let mut address = 0;
                let refused = unsafe { driver.cuMemAddressReserve(&mut address, GRANULE, 0, 0, 0) };
                let not_here = refused == CUresult::CUDA_ERROR_NOT_INITIALIZED;
                unsafe { libc::exit(if not_here { AS_TOLD } else { 1 }) };
            }
            assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = 0;
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            ended.push(status);
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Only now: a panic above would wait for the other thread, which nobody had told to stop.
    let as_told = |status: &i32| libc::WIFEXITED(*status) && libc::WEXITSTATUS(*status) == AS_TOLD;
    assert!(ended.iter().all(as_told), "{ended:x?}");
    println!("done");
}
