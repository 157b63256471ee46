//! Driver calls as functions that return, and what every test begins with.

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use cuda_vmm::sim::{SimDevice, Simulation, SimulationBuilder, Snapshot};
use cuda_vmm::sys::*;

pub const G: usize = 2 << 20;

pub const OOM: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
pub const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
pub const ILLEGAL: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

pub type Result<T = ()> = std::result::Result<T, CUresult>;

pub fn check(code: CUresult) -> Result {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// A simulation after `cuInit`, with the context of device 0 current on the thread that made it.
pub struct Rig(pub Simulation);

impl Rig {
    pub fn new() -> Self {
        Self::with(Simulation::builder())
    }

    /// One in each mode, for what must not depend on it. Miri knows no memfd, and gets the ledger alone.
    pub fn both() -> Vec<Self> {
        let mut rigs = vec![Self::ledger_only()];
        if !cfg!(miri) {
            rigs.push(Self::new());
        }
        rigs
    }

    pub fn ledger_only() -> Self {
        Self::with(Simulation::builder().ledger_only())
    }

    pub fn with(builder: SimulationBuilder) -> Self {
        let builder = if cfg!(miri) {
            builder.ledger_only()
        } else {
            builder
        };
        let rig = Rig(builder.build().expect("a sound configuration"));
        check(unsafe { rig.0.cuInit(0) }).unwrap();
        rig.enter(0);
        rig
    }

    pub fn small(granules: u64) -> Self {
        let device = SimDevice::new().memory(granules * G as u64);
        Self::with(Simulation::builder().device(device))
    }

    pub fn enter(&self, device: i32) {
        let mut context = std::ptr::null_mut();
        check(unsafe { self.0.cuDevicePrimaryCtxRetain(&mut context, device) }).unwrap();
        check(unsafe { self.0.cuCtxSetCurrent(context) }).unwrap();
    }

    pub fn leave(&self, device: i32) {
        check(unsafe { self.0.cuCtxSetCurrent(std::ptr::null_mut()) }).unwrap();
        check(unsafe { self.0.cuDevicePrimaryCtxRelease_v2(device) }).unwrap();
    }

    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    pub fn reserve(&self, size: usize) -> Result<u64> {
        self.reserve_at(size, 0)
    }

    pub fn reserve_at(&self, size: usize, hint: u64) -> Result<u64> {
        let mut address = 0;
        check(unsafe { self.0.cuMemAddressReserve(&mut address, size, 0, hint, 0) })?;
        Ok(address)
    }

    pub fn address_free(&self, address: u64, size: usize) -> Result {
        check(unsafe { self.0.cuMemAddressFree(address, size) })
    }

    pub fn create(&self, size: usize) -> Result<u64> {
        self.create_with(size, &props(1))
    }

    pub fn create_with(&self, size: usize, props: &CUmemAllocationProp) -> Result<u64> {
        let mut handle = 0;
        check(unsafe { self.0.cuMemCreate(&mut handle, size, props, 0) })?;
        Ok(handle)
    }

    pub fn release(&self, handle: u64) -> Result {
        check(unsafe { self.0.cuMemRelease(handle) })
    }

    pub fn map(&self, address: u64, size: usize, handle: u64) -> Result {
        check(unsafe { self.0.cuMemMap(address, size, 0, handle, 0) })
    }

    pub fn unmap(&self, address: u64, size: usize) -> Result {
        check(unsafe { self.0.cuMemUnmap(address, size) })
    }

    pub fn access(&self, address: u64, size: usize, flags: u32) -> Result {
        self.access_of(address, size, &[grant(0, flags)])
    }

    pub fn access_of(&self, address: u64, size: usize, grants: &[CUmemAccessDesc]) -> Result {
        let descriptors = grants.as_ptr();
        check(unsafe {
            self.0
                .cuMemSetAccess(address, size, descriptors, grants.len())
        })
    }

    pub fn rights(&self, address: u64) -> Result<u64> {
        let mut flags = 77;
        let location = grant(0, 0).location;
        check(unsafe { self.0.cuMemGetAccess(&mut flags, &location, address) })?;
        Ok(flags)
    }

    /// A reservation of `granules` with one handle mapped and granted all over it.
    pub fn block(&self, granules: usize) -> (u64, u64) {
        let size = granules * G;
        let (address, handle) = (self.reserve(size).unwrap(), self.create(size).unwrap());
        self.map(address, size, handle).unwrap();
        self.access(address, size, 3).unwrap();
        (address, handle)
    }

    pub fn drop_block(&self, (address, handle): (u64, u64), granules: usize) {
        self.unmap(address, granules * G).unwrap();
        self.release(handle).unwrap();
        self.address_free(address, granules * G).unwrap();
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result {
        let from = bytes.as_ptr().cast();
        check(unsafe { self.0.cuMemcpyHtoD_v2(address, from, bytes.len()) })
    }

    pub fn read(&self, address: u64, size: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0xee; size];
        let to = bytes.as_mut_ptr().cast();
        check(unsafe { self.0.cuMemcpyDtoH_v2(to, address, size) })?;
        Ok(bytes)
    }

    pub fn fill(&self, address: u64, value: u8, size: usize) -> Result {
        check(unsafe { self.0.cuMemsetD8_v2(address, value, size) })
    }

    pub fn fill_async(&self, address: u64, value: u8, size: usize, stream: CUstream) -> Result {
        check(unsafe { self.0.cuMemsetD8Async(address, value, size, stream) })
    }

    pub fn free_bytes(&self) -> u64 {
        let (mut free, mut total) = (0, 0);
        check(unsafe { self.0.cuMemGetInfo_v2(&mut free, &mut total) }).unwrap();
        free as u64
    }

    pub fn alloc(&self, size: usize) -> Result<u64> {
        let mut address = 0;
        check(unsafe { self.0.cuMemAlloc_v2(&mut address, size) })?;
        Ok(address)
    }

    pub fn stream(&self) -> CUstream {
        let mut stream = std::ptr::null_mut();
        check(unsafe { self.0.cuStreamCreate(&mut stream, 1) }).unwrap();
        stream
    }

    pub fn event(&self) -> CUevent {
        let mut event = std::ptr::null_mut();
        check(unsafe { self.0.cuEventCreate(&mut event, 2) }).unwrap();
        event
    }

    pub fn query(&self, stream: CUstream) -> CUresult {
        unsafe { self.0.cuStreamQuery(stream) }
    }

    pub fn record(&self, event: CUevent, stream: CUstream) {
        check(unsafe { self.0.cuEventRecord(event, stream) }).unwrap();
    }

    pub fn wait(&self, stream: CUstream, event: CUevent) -> Result {
        check(unsafe { self.0.cuStreamWaitEvent(stream, event, 0) })
    }

    pub fn word(&self, stream: CUstream, address: u64, value: u32) -> Result {
        check(unsafe { self.0.cuStreamWriteValue32_v2(stream, address, value, 0) })
    }

    pub fn launch<T>(&self, stream: CUstream, function: CUhostFn, data: &T) -> Result {
        let data = (&raw const *data).cast_mut().cast();
        check(unsafe { self.0.cuLaunchHostFunc(stream, function, data) })
    }

    pub fn destroy(&self, stream: CUstream) {
        check(unsafe { self.0.cuStreamDestroy_v2(stream) }).unwrap();
    }

    /// A stream with an event recorded on it that is not reached before the stream is released.
    pub fn held(&self) -> (CUstream, CUevent) {
        let (stream, event) = (self.stream(), self.event());
        assert!(self.0.hold_stream(stream));
        self.record(event, stream);
        (stream, event)
    }

    pub fn export(&self, handle: u64) -> Result<OwnedFd> {
        let mut fd: RawFd = -1;
        let to = std::ptr::from_mut(&mut fd).cast::<c_void>();
        let posix = CUmemAllocationHandleType(1);
        check(unsafe { self.0.cuMemExportToShareableHandle(to, handle, posix, 0) })?;
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub fn import(&self, fd: RawFd) -> Result<u64> {
        let mut handle = 0;
        let posix = CUmemAllocationHandleType(1);
        let value = fd as isize as *mut c_void;
        check(unsafe {
            self.0
                .cuMemImportFromShareableHandle(&mut handle, value, posix)
        })?;
        Ok(handle)
    }
}

pub fn props(handle_types: u32) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType(handle_types),
        location: grant(0, 0).location,
        ..Default::default()
    }
}

pub fn grant(device: i32, flags: u32) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device,
        },
        flags: CUmemAccess_flags(flags),
    }
}
