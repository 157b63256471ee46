//! A driver of somebody's own making that panics: no panic gets out of the C functions.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use cuda_vmm::sim::Simulation;
use cuda_vmm::sys::{CUdevice, CUdevice_attribute, CUresult, Call, DriverCalls};
use cuda_vmm::Driver;

use crate::border::replace_pool;
use crate::ground::{bytes, count, error, free, malloc, resume, suspend, trim, Ground, KEEP};
use crate::Case;

pub const SIMULATED: &[Case] = &[("a panic becomes an error, and the last word", kept_in)];

/// Goes as far as being asked how much memory there is.
struct Panics(Simulation);

unsafe impl DriverCalls for Panics {
    fn provides(&self, call: Call) -> bool {
        self.0.provides(call)
    }

    unsafe fn cuInit(&self, flags: c_uint) -> CUresult {
        unsafe { self.0.cuInit(flags) }
    }

    unsafe fn cuDriverGetVersion(&self, version: *mut c_int) -> CUresult {
        unsafe { self.0.cuDriverGetVersion(version) }
    }

    unsafe fn cuDeviceGetCount(&self, count: *mut c_int) -> CUresult {
        unsafe { self.0.cuDeviceGetCount(count) }
    }

    unsafe fn cuDeviceGet(&self, device: *mut CUdevice, ordinal: c_int) -> CUresult {
        unsafe { self.0.cuDeviceGet(device, ordinal) }
    }

    unsafe fn cuDeviceGetAttribute(
        &self,
        value: *mut c_int,
        attribute: CUdevice_attribute,
        device: CUdevice,
    ) -> CUresult {
        unsafe { self.0.cuDeviceGetAttribute(value, attribute, device) }
    }

    unsafe fn cuDeviceTotalMem_v2(&self, _: *mut usize, _: CUdevice) -> CUresult {
        panic!("nobody knows")
    }
}

fn kept_in(ground: &Ground) {
    let driver = Driver::from_calls(Arc::new(Panics(Simulation::new()))).unwrap();
    let set_aside = replace_pool(Some(&driver));
    assert_eq!(
        (malloc(1, 0), error().as_str()),
        (0, "panicked: nobody knows")
    );
    // What the pool holds is not known from then on, so that nothing is given out, or taken for free.
    let broken = "an earlier call panicked, so that what is in use is not known any more";
    assert_eq!((malloc(1, 0), error().as_str()), (0, broken));
    assert_eq!(bytes(), [-1; 3]);
    assert_eq!(
        [suspend(KEEP), i64::from(resume()), trim(), count(0)],
        [-1; 4]
    );
    free(512, 1, 0);
    assert_eq!(error(), broken);
    drop((set_aside, replace_pool(Some(&ground.driver))));
    assert_eq!((error(), bytes()), (String::new(), [0; 3]));
}
