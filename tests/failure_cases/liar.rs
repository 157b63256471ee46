//! A driver that says SUCCESS and gives answers that cannot be so.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Arc, Mutex, OnceLock};

use cuda_vmm::sim::Simulation;
use cuda_vmm::sys::*;
use cuda_vmm::{Access, AllocationProps, Driver, Reservation};

pub const G: usize = 2 << 20;

/// The simulated driver, but for what it is told to answer instead.
pub struct Liar {
    pub sim: Simulation,
    lies: Mutex<HashMap<(Call, usize), i128>>,
    back: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Liar {
    pub fn on(sim: Simulation) -> Arc<Liar> {
        Arc::new(Liar {
            sim,
            lies: Mutex::default(),
            back: OnceLock::new(),
        })
    }

    pub fn new() -> Arc<Liar> {
        Liar::on(Simulation::new())
    }

    pub fn driver(self: &Arc<Liar>) -> Driver {
        Driver::from_calls(self.clone()).expect("it tells no lie yet")
    }

    /// From now on the call's first output is this.
    pub fn answers(&self, call: Call, with: i128) {
        self.answers_in(call, 0, with);
    }

    /// From now on that output of the call is this.
    pub fn answers_in(&self, call: Call, output: usize, with: i128) {
        self.lies.lock().unwrap().insert((call, output), with);
    }

    pub fn tells_the_truth(&self) {
        self.lies.lock().unwrap().clear();
    }

    /// From now on every call, before it does anything, runs this; not within itself.
    pub fn calls_back(&self, back: impl Fn() + Send + Sync + 'static) {
        assert!(
            self.back.set(Box::new(back)).is_ok(),
            "it calls back already"
        );
    }

    fn enter(&self) {
        thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });
        if let Some(back) = self.back.get().filter(|_| !INSIDE.replace(true)) {
            back();
            INSIDE.set(false);
        }
    }

    fn lie(&self, call: Call, output: usize) -> Option<i128> {
        self.lies.lock().unwrap().get(&(call, output)).copied()
    }
}

/// Two granules that device 0 may read and write, with one mapped.
pub fn furnished(driver: &Driver) -> Reservation {
    let device = driver.device(0).unwrap();
    let builder = Reservation::builder(2 * G).access(&device, Access::ReadWrite);
    let mut kv = builder.reserve(driver).unwrap();
    kv.map(0, G, &AllocationProps::on(&device)).unwrap();
    kv
}

/// An output, as a lie is written into it: cut off where it does not fit, as C does.
trait Output {
    fn of(lie: i128) -> Self;
}

macro_rules! outputs {
    ($($ty:ty),*) => {$(
        impl Output for $ty {
            fn of(lie: i128) -> Self {
                lie as $ty
            }
        }
    )*};
}
outputs!(i32, u64, usize);

impl<T> Output for *mut T {
    fn of(lie: i128) -> Self {
        lie as usize as *mut T
    }
}

macro_rules! honest {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
            self.enter();
            unsafe { self.sim.$name($($arg),*) }
        }
    )*};
}

/// Calls whose first one or two arguments are outputs: each may be lied about.
macro_rules! lying {
    ($($name:ident($out:ident: $to:ty $(, $second:ident: $second_to:ty)?; $($arg:ident: $ty:ty),*);)*) => {$(
        unsafe fn $name(&self, $out: *mut $to, $($second: *mut $second_to,)? $($arg: $ty),*) -> CUresult {
            self.enter();
            let status = unsafe { self.sim.$name($out, $($second,)? $($arg),*) };
            if status != CUresult::CUDA_SUCCESS {
                return status;
            }
            if let Some(lie) = self.lie(Call::$name, 0) {
                unsafe { *$out = Output::of(lie) };
            }
            $(if let Some(lie) = self.lie(Call::$name, 1) {
                unsafe { *$second = Output::of(lie) };
            })?
            status
        }
    )*};
}

#[allow(non_snake_case)]
unsafe impl DriverCalls for Liar {
    fn provides(&self, call: Call) -> bool {
        self.sim.provides(call)
    }

    lying! {
        cuDriverGetVersion(version: c_int;);
        cuDeviceGetCount(count: c_int;);
        cuDeviceGet(device: CUdevice; ordinal: c_int);
        cuDeviceCanAccessPeer(can: c_int; device: CUdevice, peer: CUdevice);
        cuDevicePrimaryCtxRetain(context: CUcontext; device: CUdevice);
        cuCtxPopCurrent_v2(context: CUcontext;);
        cuMemAddressReserve(address: CUdeviceptr; size: usize, alignment: usize, hint: CUdeviceptr, flags: c_ulonglong);
        cuMemCreate(handle: u64; size: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong);
        cuMemGetAccess(rights: c_ulonglong; location: *const CUmemLocation, address: CUdeviceptr);
        cuMemGetAllocationGranularity(granularity: usize; properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags);
        cuMemRetainAllocationHandle(handle: u64; address: *mut c_void);
        cuMemGetAddressRange_v2(base: CUdeviceptr, size: usize; address: CUdeviceptr);
        cuMemGetInfo_v2(free: usize, total: usize;);
    }

    /// Every byte that it was offered, and no end.
    unsafe fn cuDeviceGetName(&self, name: *mut c_char, len: c_int, device: CUdevice) -> CUresult {
        match self.lie(Call::cuDeviceGetName, 0) {
            Some(byte) => unsafe { name.write_bytes(byte as u8, len as usize) },
            None => return unsafe { self.sim.cuDeviceGetName(name, len, device) },
        }
        CUresult::CUDA_SUCCESS
    }

    /// The kind of place, and its number.
    unsafe fn cuMemGetAllocationPropertiesFromHandle(
        &self,
        properties: *mut CUmemAllocationProp,
        handle: u64,
    ) -> CUresult {
        let status = unsafe {
            self.sim
                .cuMemGetAllocationPropertiesFromHandle(properties, handle)
        };
        let [kind, id] =
            [0, 1].map(|output| self.lie(Call::cuMemGetAllocationPropertiesFromHandle, output));
        if let Some(kind) = kind {
            unsafe { (*properties).location.type_ = CUmemLocationType(kind as u32) };
        }
        if let Some(id) = id {
            unsafe { (*properties).location.id = id as i32 };
        }
        status
    }

    honest! {
        cuInit(flags: c_uint);
        cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
        cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        cuCtxPushCurrent_v2(context: CUcontext);
        cuMemAddressFree(address: CUdeviceptr, size: usize);
        cuMemRelease(handle: u64);
        cuMemMap(address: CUdeviceptr, size: usize, offset: usize, handle: u64, flags: c_ulonglong);
        cuMemUnmap(address: CUdeviceptr, size: usize);
        cuMemSetAccess(address: CUdeviceptr, size: usize, descriptors: *const CUmemAccessDesc, count: usize);
        cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, size: usize);
        cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, size: usize);
        cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, size: usize);
        cuMemsetD8_v2(to: CUdeviceptr, value: u8, size: usize);
        cuStreamSynchronize(stream: CUstream);
    }
}
