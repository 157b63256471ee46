//! The driver that a case runs on, and the allocator's functions as C sees them.

use std::ffi::{c_char, c_int, c_void};

use cuda_vmm::sim::{SimDevice, Simulation, Snapshot};
use cuda_vmm::sys::CUresult;
use cuda_vmm::{Device, Driver};

use crate::border::replace_pool;

pub const MIB: usize = 1 << 20;

/// What memory is made in.
pub const UNIT: usize = crate::pool::UNIT;

/// Memory of a simulated device: eight units, and a little, since the driver never gives all that it calls free.
pub const MEMORY: usize = 258 * MIB;

pub const KEEP: c_int = 1;
pub const DROP: c_int = 0;

mod c {
    use std::ffi::{c_char, c_int, c_void};

    extern "C" {
        pub fn cuda_vmm_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void;
        pub fn cuda_vmm_free(at: *mut c_void, size: isize, device: c_int, stream: *mut c_void);
        pub fn cuda_vmm_suspend(keep_contents: c_int) -> i64;
        pub fn cuda_vmm_resume() -> c_int;
        pub fn cuda_vmm_trim() -> i64;
        pub fn cuda_vmm_bytes(which: c_int) -> i64;
        pub fn cuda_vmm_error(text: *mut c_char, capacity: usize) -> usize;
    }

    extern "C-unwind" {
        pub fn cuda_vmm_malloc_or_throw(
            size: isize,
            device: c_int,
            stream: *mut c_void,
        ) -> *mut c_void;
    }
}

/// On device 0; 0 is no memory.
pub fn malloc(size: usize, stream: usize) -> u64 {
    malloc_as_is(size as isize, 0, stream)
}

pub fn malloc_as_is(size: isize, device: c_int, stream: usize) -> u64 {
    unsafe { c::cuda_vmm_malloc(size, device, stream as *mut c_void) as u64 }
}

pub fn free(address: u64, size: usize, stream: usize) {
    free_as_is(address, size as isize, 0, stream);
}

pub fn free_as_is(address: u64, size: isize, device: c_int, stream: usize) {
    unsafe { c::cuda_vmm_free(address as *mut c_void, size, device, stream as *mut c_void) }
}

pub fn suspend(contents: c_int) -> i64 {
    unsafe { c::cuda_vmm_suspend(contents) }
}

pub fn resume() -> c_int {
    unsafe { c::cuda_vmm_resume() }
}

pub fn trim() -> i64 {
    unsafe { c::cuda_vmm_trim() }
}

pub fn count(which: c_int) -> i64 {
    unsafe { c::cuda_vmm_bytes(which) }
}

/// Committed, retained, in use.
pub fn bytes() -> [i64; 3] {
    [count(0), count(1), count(2)]
}

/// The text of the last error, by a buffer of this many bytes, and the length that was told.
pub fn error_in(capacity: usize) -> (String, usize) {
    let mut text = vec![0x7f_u8; capacity + 1];
    let length = unsafe { c::cuda_vmm_error(text.as_mut_ptr().cast::<c_char>(), capacity) };
    assert_eq!(text[capacity], 0x7f, "it wrote past the buffer");
    let end = text.iter().position(|byte| *byte == 0).unwrap();
    (String::from_utf8(text[..end].to_vec()).unwrap(), length)
}

pub fn error() -> String {
    error_in(4096).0
}

pub fn error_length_alone() -> usize {
    unsafe { c::cuda_vmm_error(std::ptr::null_mut(), 0) }
}

/// The address of the function that throws.
pub fn malloc_or_throw() -> unsafe extern "C-unwind" fn(isize, c_int, *mut c_void) -> *mut c_void {
    c::cuda_vmm_malloc_or_throw
}

pub struct Ground {
    pub driver: Driver,
    pub sim: Option<Simulation>,
}

impl Ground {
    /// Two devices with little memory.
    pub fn simulated() -> Ground {
        let device = || SimDevice::new().memory(MEMORY as u64);
        let builder = Simulation::builder().device(device()).device(device());
        let sim = builder.build().unwrap();
        Ground {
            driver: Driver::simulated(&sim).unwrap(),
            sim: Some(sim),
        }
    }

    pub fn real() -> Ground {
        Ground {
            driver: Driver::load().unwrap(),
            sim: None,
        }
    }

    /// Plays the case on a fresh pool, and sees that nothing is left of it.
    pub fn play(self, case: fn(&Ground)) {
        // What a case left that failed.
        drop(replace_pool(Some(&self.driver)));
        case(&self);
        replace_pool(None).unwrap().close().unwrap();
        let Ground { driver, sim } = self;
        assert_eq!(driver.quarantined(), 0);
        drop(driver);
        if let Some(sim) = sim {
            assert!(sim.snapshot().is_empty(), "left: {}", sim.snapshot());
            assert_eq!(sim.misuses(), []);
        }
    }

    pub fn sim(&self) -> &Simulation {
        self.sim.as_ref().expect("a case for the simulated driver")
    }

    pub fn snapshot(&self) -> Snapshot {
        self.sim().snapshot()
    }

    pub fn device(&self) -> Device {
        self.driver.device(0).unwrap()
    }

    pub fn free_memory(&self) -> usize {
        self.device().free_memory().unwrap()
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.write_on(0, address, bytes);
    }

    pub fn read(&self, address: u64, size: usize) -> Vec<u8> {
        self.read_on(0, address, size)
    }

    pub fn write_on(&self, device: u32, address: u64, bytes: &[u8]) {
        let device = self.driver.device(device).unwrap();
        let current = device.make_current().unwrap();
        let calls = self.driver.calls_raw();
        let status = unsafe { calls.cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) };
        assert_eq!(status, CUresult::CUDA_SUCCESS);
        drop(current);
    }

    pub fn read_on(&self, device: u32, address: u64, size: usize) -> Vec<u8> {
        let device = self.driver.device(device).unwrap();
        let current = device.make_current().unwrap();
        let mut bytes = vec![0xaa; size];
        let calls = self.driver.calls_raw();
        let status = unsafe { calls.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, size) };
        assert_eq!(status, CUresult::CUDA_SUCCESS);
        drop(current);
        bytes
    }
}

/// Bytes that tell where they are, and of which piece.
pub fn pattern(size: usize, piece: u8) -> Vec<u8> {
    let turn: Vec<u8> = (0..251).map(|at| at ^ piece.wrapping_mul(37)).collect();
    let mut bytes = turn.repeat(size.div_ceil(turn.len()));
    bytes.truncate(size);
    bytes
}
