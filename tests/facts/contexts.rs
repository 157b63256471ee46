//! Before the first call, without a context, after a context, and at the end of the process. All in processes of
//! their own.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use cuda_vmm::sys::{
    CUdeviceptr, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUresult, DriverCalls,
};

use crate::busy::Busy;
use crate::case::{apart, Section};
use crate::codes::{call, demand, spell, DEINITIALIZED, ILLEGAL_ADDRESS, SUCCESS};
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::processes;
use crate::props::{device, pinned, rights, POSIX_FD, READ_WRITE};
use crate::support::which::Which;

pub const SECTION: Section = Section {
    name: "contexts",
    cases: &[
        apart("before_init", "before cuInit every call is NOT_INITIALIZED", before_init),
        apart(
            "without_a_context",
            "every call of virtual memory management works with no current context",
            without_a_context,
        ),
        apart(
            "copies_without_a_context",
            "free bytes, copies and extents need a current context",
            copies_without_a_context,
        ),
        apart(
            "forked_child",
            "a forked child of an initialised process is NOT_INITIALIZED, the parent unharmed",
            processes::fork_after_init,
        ),
        apart(
            "exit_handler_registered_before_init",
            "in an exit handler that runs after the driver's own, giving back is DEINITIALIZED",
            |which| at_exit(which, Registered::BeforeInit),
        ),
        apart(
            "exit_handler_registered_after_init",
            "in an exit handler that runs before the driver's own, giving back works",
            |which| at_exit(which, Registered::AfterInit),
        ),
        apart(
            "primary_context_reset",
            "memory, mappings and bytes outlive the primary context",
            primary_context_reset,
        ),
        apart(
            "lost_context",
            "with a context lost to ILLEGAL_ADDRESS, memory is still managed; copies and syncs repeat the code",
            lost_context,
        ),
    ],
};

const GRANULE: usize = 2 << 20;
const FD: CUmemAllocationHandleType = CUmemAllocationHandleType(POSIX_FD);
const MINIMUM: CUmemAllocationGranularity_flags =
    CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;

fn exportable() -> CUmemAllocationProp {
    pinned(device(0), POSIX_FD)
}

fn before_init(which: Which) {
    let driver = Driver::open(which, 1);
    let (mut at, mut handle, mut size, mut flags, mut fd) = (0, 0, 0, 0, -1_i32);
    let mut properties = exportable();
    let all = rights(device(0), READ_WRITE);
    call!(driver, cuMemGetAllocationGranularity(&mut size, &properties, MINIMUM) => NOT_INITIALIZED);
    call!(driver, cuMemAddressReserve(&mut at, GRANULE, 0, 0, 0) => NOT_INITIALIZED);
    call!(driver, cuMemCreate(&mut handle, GRANULE, &properties, 0) => NOT_INITIALIZED);
    call!(driver, cuMemMap(0, GRANULE, 0, 0, 0) => NOT_INITIALIZED);
    call!(driver, cuMemSetAccess(0, GRANULE, &all, 1) => NOT_INITIALIZED);
    call!(driver, cuMemGetAccess(&mut flags, &all.location, 0) => NOT_INITIALIZED);
    call!(driver, cuMemExportToShareableHandle((&raw mut fd).cast(), 0, FD, 0) => NOT_INITIALIZED);
    call!(driver, cuMemImportFromShareableHandle(&mut handle, usize::MAX as *mut c_void, FD) => NOT_INITIALIZED);
    call!(driver, cuMemGetAllocationPropertiesFromHandle(&mut properties, 0) => NOT_INITIALIZED);
    call!(driver, cuMemRetainAllocationHandle(&mut handle, std::ptr::null_mut()) => NOT_INITIALIZED);
    call!(driver, cuMemUnmap(0, GRANULE) => NOT_INITIALIZED);
    call!(driver, cuMemRelease(0) => NOT_INITIALIZED);
    call!(driver, cuMemAddressFree(0, GRANULE) => NOT_INITIALIZED);
}

/// One exportable granule, mapped for device 0 to read and write.
struct Mapped {
    at: CUdeviceptr,
    handle: CUmemGenericAllocationHandle,
}

fn map_one(driver: &Driver) -> Mapped {
    let (mut at, mut handle) = (0, 0);
    let all = rights(device(0), READ_WRITE);
    call!(driver, cuMemAddressReserve(&mut at, GRANULE, 0, 0, 0) => SUCCESS);
    call!(driver, cuMemCreate(&mut handle, GRANULE, &exportable(), 0) => SUCCESS);
    call!(driver, cuMemMap(at, GRANULE, 0, handle, 0) => SUCCESS);
    call!(driver, cuMemSetAccess(at, GRANULE, &all, 1) => SUCCESS);
    Mapped { at, handle }
}

fn give_back(driver: &Driver, mapped: &Mapped) {
    call!(driver, cuMemUnmap(mapped.at, GRANULE) => SUCCESS);
    call!(driver, cuMemRelease(mapped.handle) => SUCCESS);
    call!(driver, cuMemAddressFree(mapped.at, GRANULE) => SUCCESS);
}

fn without_a_context(which: Which) {
    let driver = Driver::open(which, 1);
    call!(driver, cuInit(0) => SUCCESS);
    let (mut size, mut flags, mut fd) = (0, 0, -1_i32);
    let (mut import, mut retained) = (0, 0);
    call!(driver, cuMemGetAllocationGranularity(&mut size, &exportable(), MINIMUM) => SUCCESS);
    let mapped = map_one(&driver);
    call!(driver, cuMemGetAccess(&mut flags, &device(0), mapped.at) => SUCCESS);
    assert_eq!(flags, READ_WRITE);
    call!(driver, cuMemExportToShareableHandle((&raw mut fd).cast(), mapped.handle, FD, 0) => SUCCESS);
    call!(driver, cuMemImportFromShareableHandle(&mut import, fd as isize as *mut c_void, FD) => SUCCESS);
    call!(driver, cuMemRetainAllocationHandle(&mut retained, mapped.at as *mut c_void) => SUCCESS);
    assert_eq!(retained, mapped.handle);
    call!(driver, cuMemRelease(retained) => SUCCESS);
    call!(driver, cuMemRelease(import) => SUCCESS);
    give_back(&driver, &mapped);
}

fn copies_without_a_context(which: Which) {
    let driver = Driver::open(which, 1);
    call!(driver, cuInit(0) => SUCCESS);
    let mapped = map_one(&driver);
    let (mut free, mut total, mut base, mut size, mut byte) = (0, 0, 0, 0, 0_u8);
    call!(driver, cuMemGetInfo_v2(&mut free, &mut total) => INVALID_CONTEXT);
    call!(driver, cuMemcpyDtoH_v2((&raw mut byte).cast(), mapped.at, 1) => INVALID_CONTEXT);
    call!(driver, cuMemGetAddressRange_v2(&mut base, &mut size, mapped.at) => INVALID_CONTEXT);
    give_back(&driver, &mapped);
}

fn primary_context_reset(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let mapped = map_one(gpu.driver());
    gpu.fill(mapped.at, 0x05, GRANULE);
    call!(gpu, cuDevicePrimaryCtxReset_v2(0) => SUCCESS);

    let all = rights(device(0), READ_WRITE);
    call!(gpu, cuMemUnmap(mapped.at, GRANULE) => SUCCESS);
    call!(gpu, cuMemMap(mapped.at, GRANULE, 0, mapped.handle, 0) => SUCCESS);
    call!(gpu, cuMemSetAccess(mapped.at, GRANULE, &all, 1) => SUCCESS);
    gpu.make_current(0);
    assert_eq!(gpu.bytes(mapped.at, GRANULE), vec![0x05; GRANULE]);
    give_back(gpu.driver(), &mapped);
}

fn lost_context(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let range = gpu.reserve(2);
    let memory = gpu.back(range.base, 1);
    let busy = Busy::start(&gpu);
    call!(gpu, cuMemUnmap(busy.range.base, busy.range.size) => SUCCESS);
    demand("cuStreamSynchronize", busy.finish(), ILLEGAL_ADDRESS);

    let another = map_one(gpu.driver());
    gpu.map(range.at(1), &memory);
    gpu.grant(range.at(1), memory.size, READ_WRITE);
    assert_eq!(gpu.rights(range.at(1)), Ok(READ_WRITE));

    let mut byte = 0_u8;
    call!(gpu, cuMemcpyDtoH_v2((&raw mut byte).cast(), range.base, 1) => ILLEGAL_ADDRESS);
    call!(gpu, cuCtxSynchronize() => ILLEGAL_ADDRESS);

    give_back(gpu.driver(), &another);
    call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
    memory.release();
    range.free();
}

/// When the exit handler was registered: handlers run in reverse order, and cuInit registers the driver's own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registered {
    BeforeInit,
    AfterInit,
}

/// What the exit handler gives back, and the answer it must get.
struct Late {
    calls: Arc<dyn DriverCalls>,
    mapped: Mapped,
    wanted: CUresult,
}

static LATE: OnceLock<Late> = OnceLock::new();
static SIMULATED: OnceLock<Arc<cuda_vmm::sim::Simulation>> = OnceLock::new();

/// The status of a process whose exit handler did not run.
const HANDLER_DID_NOT_RUN: i32 = 70;

fn at_exit(which: Which, registered: Registered) {
    let driver = Driver::open(which, 1);
    if registered == Registered::BeforeInit {
        register(give_back_late);
    }
    let gpu = Gpu::open(driver);
    if let Some(sim) = &gpu.driver().sim {
        // The simulated driver cannot see the process end: this stands for the handler that cuInit registers.
        assert!(SIMULATED.set(sim.clone()).is_ok());
        register(end_the_simulation);
    }
    let wanted = match registered {
        Registered::BeforeInit => DEINITIALIZED,
        Registered::AfterInit => {
            register(give_back_late);
            SUCCESS
        }
    };
    let late = Late {
        calls: gpu.driver().share(),
        mapped: map_one(gpu.driver()),
        wanted,
    };
    assert!(LATE.set(late).is_ok());
    // The handler ends the process with another status.
    std::process::exit(HANDLER_DID_NOT_RUN);
}

fn register(handler: extern "C" fn()) {
    assert_eq!(
        unsafe { libc::atexit(handler) },
        0,
        "no room for an exit handler"
    );
}

extern "C" fn end_the_simulation() {
    if let Some(sim) = SIMULATED.get() {
        sim.deinitialize();
    }
}

extern "C" fn give_back_late() {
    // Nothing registered yet: the process ends early, for a reason of its own, with its own status.
    let Some(late) = LATE.get() else { return };
    let Mapped { at, handle } = late.mapped;
    let answers = unsafe {
        [
            ("cuMemUnmap", late.calls.cuMemUnmap(at, GRANULE)),
            ("cuMemRelease", late.calls.cuMemRelease(handle)),
            ("cuMemAddressFree", late.calls.cuMemAddressFree(at, GRANULE)),
        ]
    };
    let mut status = 0;
    for (call, got) in answers {
        if got != late.wanted {
            eprintln!("{call} answered {}, not {}", spell(got), spell(late.wanted));
            status = 1;
        }
    }
    unsafe { libc::_exit(status) };
}
