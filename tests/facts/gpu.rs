//! A driver that is ready for use, and what the cases do with it over and over.
//!
//! Helpers demand success: a case spells out only the calls that it is about.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cuda_vmm::sys::{
    CUcontext, CUdeviceptr, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemorytype, CUresult,
    CUstream, CUstream_flags, DriverCalls, CUDA_MEMCPY2D,
};

use crate::codes::{call, demand, hear, SUCCESS};
use crate::driver::Driver;
use crate::owned::{Handle, Range};
use crate::props::{self, device, pinned, rights};
use crate::transcript;

/// An address no reservation is ever at: nothing is placed there unless a hint asks for it.
pub const UNRESERVED: CUdeviceptr = 0x1234_0000_0000;

/// An initialised driver, device 0's primary context current on this thread.
pub struct Gpu {
    driver: Driver,
    /// The unit of every size and address, in bytes.
    pub granularity: usize,
    devices: usize,
}

/// Everything that can be seen of a driver from outside.
#[derive(Debug, PartialEq)]
pub struct World {
    free: usize,
    /// Everything a simulated driver holds.
    inside: Option<String>,
}

impl World {
    /// Whether a real driver has less memory free than before. Of a simulated one, what it holds is known exactly.
    pub fn has_less_free_than(&self, before: &World) -> bool {
        self.inside.is_none() && self.free < before.free
    }
}

/// What the calls say of one granule: rights of device 0, and the mapping it lies in.
type Seen = (
    Result<u64, CUresult>,
    Result<(CUdeviceptr, usize), CUresult>,
);

impl Gpu {
    pub fn open(driver: Driver) -> Gpu {
        call!(driver, cuInit(0) => SUCCESS);
        let mut devices = 0;
        call!(driver, cuDeviceGetCount(&mut devices) => SUCCESS);
        let mut gpu = Gpu {
            driver,
            granularity: 0,
            devices: devices as usize,
        };
        gpu.make_current(0);
        gpu.granularity = gpu.ask_granularity(&pinned(device(0), props::NONE));
        gpu
    }

    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    pub fn calls(&self) -> &dyn DriverCalls {
        self.driver.calls()
    }

    /// So many granules, in bytes.
    pub fn granules(&self, count: usize) -> usize {
        count * self.granularity
    }

    /// An ordinal that no device has.
    pub fn absent_device(&self) -> i32 {
        self.devices as i32 + 6
    }

    /// Retains a device's primary context and makes it current.
    pub fn make_current(&self, ordinal: i32) {
        let mut context: CUcontext = std::ptr::null_mut();
        call!(self, cuDevicePrimaryCtxRetain(&mut context, ordinal) => SUCCESS);
        call!(self, cuCtxSetCurrent(context) => SUCCESS);
    }

    /// Runs the closure with the primary context of another device current.
    pub fn on_device<T>(&self, ordinal: i32, run: impl FnOnce() -> T) -> T {
        self.make_current(ordinal);
        let result = run();
        call!(self, cuDevicePrimaryCtxRelease_v2(ordinal) => SUCCESS);
        self.make_current(0);
        call!(self, cuDevicePrimaryCtxRelease_v2(0) => SUCCESS);
        result
    }

    pub fn ask_granularity(&self, properties: &CUmemAllocationProp) -> usize {
        let mut granularity = 0;
        let option = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        call!(self, cuMemGetAllocationGranularity(&mut granularity, properties, option) => SUCCESS);
        granularity
    }

    pub fn free_bytes(&self) -> usize {
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&mut free, &mut total) => SUCCESS);
        free
    }

    /// Reserves so many granules.
    pub fn reserve(&self, granules: usize) -> Range<'_> {
        self.reserve_at(granules, 0)
    }

    /// Reserves so many granules, asking for an address.
    pub fn reserve_at(&self, granules: usize, hint: CUdeviceptr) -> Range<'_> {
        let size = self.granules(granules);
        let mut base = 0;
        call!(self, cuMemAddressReserve(&mut base, size, 0, hint, 0) => SUCCESS);
        Range::new(self, base, size)
    }

    /// Two reservations, the second right behind the first. Hints are no promise: the place is one that was free a
    /// moment ago, and a driver that answers otherwise ends the case.
    pub fn reserve_adjacent(&self, first: usize, second: usize) -> (Range<'_>, Range<'_>) {
        let place = self.reserve(first + second);
        let base = place.base;
        place.free();
        let first = self.reserve_at(first, base);
        let second = self.reserve_at(second, first.end());
        assert_eq!(
            second.base,
            first.end(),
            "the driver did not follow the hint: no adjacent reservations to test with"
        );
        (first, second)
    }

    /// Pinned memory of device 0, not exportable.
    pub fn create(&self, granules: usize) -> Handle<'_> {
        self.create_with(granules, &pinned(device(0), props::NONE))
    }

    /// Pinned memory of device 0 that can be exported as a file descriptor.
    pub fn create_exportable(&self, granules: usize) -> Handle<'_> {
        self.create_with(granules, &pinned(device(0), props::POSIX_FD))
    }

    pub fn create_with(&self, granules: usize, properties: &CUmemAllocationProp) -> Handle<'_> {
        let size = self.granules(granules);
        let mut raw = 0;
        call!(self, cuMemCreate(&mut raw, size, properties, 0) => SUCCESS);
        Handle::new(self, raw, size)
    }

    /// Maps a whole handle.
    pub fn map(&self, at: CUdeviceptr, handle: &Handle<'_>) {
        call!(self, cuMemMap(at, handle.size, 0, handle.raw, 0) => SUCCESS);
    }

    /// Gives device 0 rights.
    pub fn grant(&self, at: CUdeviceptr, size: usize, what: u64) {
        call!(self, cuMemSetAccess(at, size, &rights(device(0), what), 1) => SUCCESS);
    }

    /// A new allocation of so many granules, mapped there for device 0 to read and write.
    pub fn back(&self, at: CUdeviceptr, granules: usize) -> Handle<'_> {
        let handle = self.create(granules);
        self.map(at, &handle);
        self.grant(at, handle.size, props::READ_WRITE);
        handle
    }

    /// The rights of a place at an address.
    pub fn rights_of(&self, location: CUmemLocation, at: CUdeviceptr) -> Result<u64, CUresult> {
        let mut flags = u64::MAX;
        let code = unsafe { self.calls().cuMemGetAccess(&mut flags, &location, at) };
        if code != SUCCESS {
            hear("cuMemGetAccess", code);
            return Err(code);
        }
        transcript::hear("cuMemGetAccess", flags);
        Ok(flags)
    }

    /// The rights of device 0 at an address.
    pub fn rights(&self, at: CUdeviceptr) -> Result<u64, CUresult> {
        self.rights_of(device(0), at)
    }

    /// Base and size of what the driver takes the address to be part of.
    pub fn extent(&self, at: CUdeviceptr) -> Result<(CUdeviceptr, usize), CUresult> {
        let (mut base, mut size) = (0, 0);
        let code = unsafe {
            self.calls()
                .cuMemGetAddressRange_v2(&mut base, &mut size, at)
        };
        hear("cuMemGetAddressRange_v2", code);
        match code {
            SUCCESS => Ok((base, size)),
            _ => Err(code),
        }
    }

    /// Writes a byte all over a range, and waits.
    pub fn fill(&self, at: CUdeviceptr, value: u8, size: usize) {
        call!(self, cuMemsetD8_v2(at, value, size) => SUCCESS);
        call!(self, cuCtxSynchronize() => SUCCESS);
    }

    pub fn bytes(&self, at: CUdeviceptr, count: usize) -> Vec<u8> {
        let mut bytes = vec![0xa5; count];
        call!(self, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast::<c_void>(), at, count) => SUCCESS);
        bytes
    }

    pub fn byte(&self, at: CUdeviceptr) -> u8 {
        self.bytes(at, 1)[0]
    }

    /// Exports a handle as a file descriptor.
    pub fn export(&self, handle: &Handle<'_>) -> OwnedFd {
        let mut fd = -1;
        let kind = CUmemAllocationHandleType(props::POSIX_FD);
        call!(self, cuMemExportToShareableHandle((&raw mut fd).cast(), handle.raw, kind, 0) => SUCCESS);
        assert!(fd >= 0, "the driver wrote no file descriptor");
        unsafe { OwnedFd::from_raw_fd(fd) }
    }

    /// Imports a file descriptor's allocation of so many granules.
    pub fn import(&self, fd: &OwnedFd, granules: usize) -> Handle<'_> {
        let (code, raw) = self.try_import(fd.as_raw_fd());
        demand("cuMemImportFromShareableHandle(fd)", code, SUCCESS);
        Handle::new(self, raw, self.granules(granules))
    }

    /// What an import of a file descriptor answers: the code, and the handle if there is one.
    pub fn try_import(&self, fd: i32) -> (CUresult, CUmemGenericAllocationHandle) {
        let mut raw = 0;
        // The driver takes the descriptor itself where it takes a pointer for other handle types.
        let shareable = fd as isize as *mut c_void;
        let kind = CUmemAllocationHandleType(props::POSIX_FD);
        let code = unsafe {
            self.calls()
                .cuMemImportFromShareableHandle(&mut raw, shareable, kind)
        };
        (code, raw)
    }

    /// Retains the allocation that is mapped at an address.
    pub fn retain(&self, at: CUdeviceptr, granules: usize) -> Handle<'_> {
        let mut raw = 0;
        call!(self, cuMemRetainAllocationHandle(&mut raw, at as *mut c_void) => SUCCESS);
        Handle::new(self, raw, self.granules(granules))
    }

    /// Uses each kind of call that makes the driver take memory for itself the first time, so that free bytes can be
    /// compared from then on.
    pub fn warm_up(&self) {
        let range = self.reserve(2);
        let _memory = self.back(range.base, 2);
        self.fill(range.base, 1, range.size);
        let bytes = self.bytes(range.base, range.size);
        call!(self, cuMemcpyHtoD_v2(range.base, bytes.as_ptr().cast(), bytes.len()) => SUCCESS);
        let mut address = 0;
        call!(self, cuMemAlloc_v2(&mut address, self.granularity) => SUCCESS);
        call!(self, cuMemFree_v2(address) => SUCCESS);
        let (mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        call!(self, cuEventCreate(&mut event, 0) => SUCCESS);
        for flags in [0, CUstream_flags::CU_STREAM_NON_BLOCKING.0] {
            call!(self, cuStreamCreate(&mut stream, flags) => SUCCESS);
            call!(self, cuEventRecord(event, stream) => SUCCESS);
            call!(self, cuEventSynchronize(event) => SUCCESS);
            self.warm_up_stream(stream, range.base);
            call!(self, cuStreamDestroy_v2(stream) => SUCCESS);
        }
        call!(self, cuEventDestroy_v2(event) => SUCCESS);
    }

    /// What these calls answer is left to their own cases.
    fn warm_up_stream(&self, stream: CUstream, at: CUdeviceptr) {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: at,
            srcPitch: 16,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: at + 1024,
            dstPitch: 32,
            WidthInBytes: 8,
            Height: 8,
            ..Default::default()
        };
        unsafe {
            let _ = self.calls().cuMemcpy2DAsync_v2(&copy, stream);
            let _ = self.calls().cuStreamWriteValue32_v2(stream, at, 1, 0);
            let null = std::ptr::null_mut();
            let _ = self.calls().cuLaunchHostFunc(stream, Some(nothing), null);
        }
        call!(self, cuStreamSynchronize(stream) => SUCCESS);
    }

    /// Everything that can be seen from outside.
    pub fn world(&self) -> World {
        World {
            free: self.free_bytes(),
            inside: self.driver.snapshot(),
        }
    }

    /// Runs the closure and demands that the world is as it was.
    #[track_caller]
    pub fn nothing_changes(&self, run: impl FnOnce()) {
        let before = self.world();
        run();
        assert_eq!(
            self.world(),
            before,
            "a call that was refused changed something"
        );
    }

    /// Runs the closure and demands that the world is as it was, and so is each granule of the range.
    #[track_caller]
    pub fn nothing_changes_in(&self, range: &Range<'_>, run: impl FnOnce()) {
        let before = self.look(range);
        self.nothing_changes(run);
        assert_eq!(
            self.look(range),
            before,
            "a call that was refused changed what is mapped"
        );
    }

    fn look(&self, range: &Range<'_>) -> Vec<Seen> {
        (0..range.size / self.granularity)
            .map(|granule| range.at(granule))
            .map(|at| (self.rights(at), self.extent(at)))
            .collect()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Answers are not looked at: a case may have lost the context, which is then its very point.
        unsafe {
            let _ = self.calls().cuCtxSetCurrent(std::ptr::null_mut());
            let _ = self.calls().cuDevicePrimaryCtxRelease_v2(0);
        }
    }
}
