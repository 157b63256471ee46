//! Registered memory of the host, as devices see it.
//!
//! None of this was measured yet. Where the documentation leaves the answer open, the case says that it is assumed.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU32;

use cuda_vmm::sys::CUdeviceptr;

use crate::case::{case, Section};
use crate::codes::call;
use crate::gpu::Gpu;

pub const SECTION: Section = Section {
    name: "registered",
    cases: &[
        case(
            "device_pointer",
            "registered memory has its own address on the device, and so has every part of it",
            |gpu| {
                let memfd = Memfd::new();
                assert_eq!(memfd.register(gpu, PORTABLE | MAPPED), memfd.address());
                let mut inside = 0;
                let part = memfd.at(100);
                call!(gpu, cuMemHostGetDevicePointer_v2(&mut inside, part, 0) => SUCCESS);
                assert_eq!(inside, memfd.address() + 100);
                memfd.unregister(gpu);
            },
        ),
        case(
            "device_pointer_of_what_is_not_mapped",
            "with unified addresses memory has one that was not registered to be mapped (assumed)",
            |gpu| {
                let memfd = Memfd::new();
                assert_eq!(memfd.register(gpu, PORTABLE), memfd.address());
                memfd.unregister(gpu);
            },
        ),
        case(
            "device_pointer_refused",
            "memory that is not registered has none; there are no flags",
            |gpu| {
                let memfd = Memfd::new();
                let mut at = 0;
                call!(gpu, cuMemHostGetDevicePointer_v2(&mut at, memfd.at(0), 0) => INVALID_VALUE);
                memfd.register(gpu, PORTABLE | MAPPED);
                call!(gpu, cuMemHostGetDevicePointer_v2(&mut at, memfd.at(0), 1) => INVALID_VALUE);
                memfd.unregister(gpu);
                call!(gpu, cuMemHostGetDevicePointer_v2(&mut at, memfd.at(0), 0) => INVALID_VALUE);
                assert_eq!(at, 0);
            },
        ),
    ],
};

/// Flags of `cuMemHostRegister`.
pub const PORTABLE: u32 = 1;
pub const MAPPED: u32 = 2;

/// A page of memory that has a file, mapped for this process.
pub struct Memfd {
    fd: i32,
    address: *mut c_void,
}

impl Memfd {
    const SIZE: usize = 4096;

    pub fn new() -> Memfd {
        let fd = unsafe { libc::memfd_create(c"facts".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "no memfd");
        assert_eq!(unsafe { libc::ftruncate(fd, Self::SIZE as i64) }, 0);
        Memfd::map(fd)
    }

    /// The same memory at another address.
    pub fn other_view(&self) -> Memfd {
        Memfd::map(unsafe { libc::dup(self.fd) })
    }

    fn map(fd: i32) -> Memfd {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let address =
            unsafe { libc::mmap(ptr::null_mut(), Self::SIZE, rights, libc::MAP_SHARED, fd, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Memfd { fd, address }
    }

    pub fn address(&self) -> CUdeviceptr {
        self.address as CUdeviceptr
    }

    pub fn at(&self, offset: usize) -> *mut c_void {
        self.address.wrapping_byte_add(offset)
    }

    pub fn word(&self, index: usize) -> &AtomicU32 {
        unsafe { AtomicU32::from_ptr(self.at(4 * index).cast()) }
    }

    /// Registers it, and gives the address that it has on the device.
    pub fn register(&self, gpu: &Gpu, flags: u32) -> CUdeviceptr {
        call!(gpu, cuMemHostRegister_v2(self.address, Self::SIZE, flags) => SUCCESS);
        let mut at = 0;
        call!(gpu, cuMemHostGetDevicePointer_v2(&mut at, self.address, 0) => SUCCESS);
        at
    }

    pub fn unregister(&self, gpu: &Gpu) {
        call!(gpu, cuMemHostUnregister(self.address) => SUCCESS);
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        unsafe {
            libc::munmap(self.address, Self::SIZE);
            libc::close(self.fd);
        }
    }
}
