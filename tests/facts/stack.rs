//! The stack of current contexts.
//!
//! Each case begins with the primary context of device 0 as the only one on this thread's stack, and must end so.

use std::ptr;

use cuda_vmm::sys::CUcontext;

use crate::case::{apart, case, Need, Section};
use crate::codes::call;
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::props::{device, pinned, NONE};
use crate::support::which::Which;

pub const SECTION: Section = Section {
    name: "stack",
    cases: &[
        case(
            "push_and_pop",
            "what is popped is what was pushed; below it is what was current",
            |gpu| {
                let context = current(gpu);
                call!(gpu, cuCtxPushCurrent_v2(context) => SUCCESS);
                assert_eq!(pop(gpu), context);
                assert_eq!(current(gpu), context);
            },
        ),
        case(
            "push_twice_pop_twice",
            "a context can be on the stack several times",
            |gpu| {
                let context = current(gpu);
                call!(gpu, cuCtxPushCurrent_v2(context) => SUCCESS);
                call!(gpu, cuCtxPushCurrent_v2(context) => SUCCESS);
                assert_eq!([pop(gpu), pop(gpu)], [context; 2]);
                assert_eq!(current(gpu), context);
            },
        ),
        case(
            "pop_the_last",
            "with the last context popped there is none",
            |gpu| {
                let context = pop(gpu);
                assert_eq!(current(gpu), ptr::null_mut());
                call!(gpu, cuCtxPushCurrent_v2(context) => SUCCESS);
            },
        ),
        case("pop_of_an_empty_stack", EMPTY, |gpu| {
            empty(gpu, || {
                let mut context: CUcontext = UNTOUCHED;
                call!(gpu, cuCtxPopCurrent_v2(&mut context) => INVALID_CONTEXT);
                call!(gpu, cuCtxPopCurrent_v2(&mut context) => INVALID_CONTEXT);
                assert_eq!(current(gpu), ptr::null_mut());
            });
        }),
        case(
            "pop_without_an_output",
            "a context can be popped without being asked for",
            |gpu| {
                let context = current(gpu);
                call!(gpu, cuCtxPushCurrent_v2(context) => SUCCESS);
                call!(gpu, cuCtxPopCurrent_v2(ptr::null_mut()) => SUCCESS);
                assert_eq!(current(gpu), context);
            },
        ),
        case("push_null", "null cannot be pushed", |gpu| {
            let context = current(gpu);
            call!(gpu, cuCtxPushCurrent_v2(ptr::null_mut()) => INVALID_VALUE);
            assert_eq!(current(gpu), context);
        }),
        case(
            "set_null",
            "setting null takes the top off the stack",
            |gpu| {
                let context = current(gpu);
                call!(gpu, cuCtxPushCurrent_v2(context) => SUCCESS);
                call!(gpu, cuCtxSetCurrent(ptr::null_mut()) => SUCCESS);
                assert_eq!(current(gpu), context, "the one below");
                call!(gpu, cuCtxSetCurrent(ptr::null_mut()) => SUCCESS);
                assert_eq!(current(gpu), ptr::null_mut(), "none is left");
                call!(gpu, cuCtxSetCurrent(context) => SUCCESS);
            },
        ),
        case("set_null_of_an_empty_stack", EMPTY, |gpu| {
            empty(gpu, || {
                call!(gpu, cuCtxSetCurrent(ptr::null_mut()) => SUCCESS);
                assert_eq!(current(gpu), ptr::null_mut());
            });
        }),
        case(
            "set_replaces_the_top",
            "setting replaces the top of the stack",
            |gpu| {
                let context = current(gpu);
                call!(gpu, cuCtxSetCurrent(context) => SUCCESS);
                assert_eq!(pop(gpu), context);
                assert_eq!(current(gpu), ptr::null_mut());
                call!(gpu, cuCtxPushCurrent_v2(context) => SUCCESS);
            },
        ),
        case("work_without_a_context", EMPTY, |gpu| {
            let range = gpu.reserve(1);
            let _memory = gpu.back(range.base, 1);
            empty(gpu, || {
                let (mut device, mut address) = (7, 0);
                let (mut stream, mut event) = (ptr::null_mut(), ptr::null_mut());
                call!(gpu, cuCtxGetDevice(&mut device) => INVALID_CONTEXT);
                call!(gpu, cuCtxSynchronize() => INVALID_CONTEXT);
                call!(gpu, cuMemsetD8_v2(range.base, 1, 1) => INVALID_CONTEXT);
                call!(gpu, cuMemcpyDtoD_v2(range.base, range.base + 8, 1) => INVALID_CONTEXT);
                call!(gpu, cuMemAlloc_v2(&mut address, 1) => INVALID_CONTEXT);
                call!(gpu, cuStreamCreate(&mut stream, 0) => INVALID_CONTEXT);
                call!(gpu, cuStreamSynchronize(ptr::null_mut()) => INVALID_CONTEXT);
                call!(gpu, cuEventCreate(&mut event, 0) => INVALID_CONTEXT);
            });
        }),
        case(
            "device_of_the_context",
            "the current context names its device",
            |gpu| {
                let mut device = 7;
                call!(gpu, cuCtxGetDevice(&mut device) => SUCCESS);
                assert_eq!(device, 0);
            },
        ),
        case(
            "each_thread_has_its_own",
            "another thread starts with an empty stack",
            |gpu| {
                let context = current(gpu);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        assert_eq!(current(gpu), ptr::null_mut());
                    });
                });
                assert_eq!(current(gpu), context);
            },
        ),
        case(
            "retain_gives_the_same",
            "a device has one primary context, however often it is retained",
            |gpu| {
                let mut again = ptr::null_mut();
                call!(gpu, cuDevicePrimaryCtxRetain(&mut again, 0) => SUCCESS);
                assert_eq!(again, current(gpu));
                call!(gpu, cuDevicePrimaryCtxRelease_v2(0) => SUCCESS);
            },
        ),
        case(
            "retain_of_an_absent_device",
            "an absent device has no primary context",
            |gpu| {
                let mut context = ptr::null_mut();
                call!(gpu, cuDevicePrimaryCtxRetain(&mut context, gpu.absent_device()) => INVALID_DEVICE);
                call!(gpu, cuDevicePrimaryCtxRetain(&mut context, -1) => INVALID_DEVICE);
                call!(gpu, cuDevicePrimaryCtxRelease_v2(-1) => INVALID_DEVICE);
                assert_eq!(context, ptr::null_mut());
            },
        ),
        apart(
            "release_without_retain",
            "a context that was not retained cannot be released",
            |which| {
                let driver = Driver::open(which, 1);
                call!(driver, cuInit(0) => SUCCESS);
                call!(driver, cuDevicePrimaryCtxRelease_v2(0) => INVALID_CONTEXT);
            },
        ),
        apart(
            "released_while_current",
            "a context that was released is destroyed, though it is current",
            released_while_current,
        ),
        case(
            "free_bytes_are_of_the_current_device",
            "free bytes are those of the device whose context is current",
            |gpu| {
                gpu.on_device(1, || ());
                let here = gpu.free_bytes();
                let there = gpu.on_device(1, || gpu.free_bytes());
                let memory = gpu.create_with(8, &pinned(device(1), NONE));
                assert_eq!(gpu.free_bytes(), here);
                assert_eq!(gpu.on_device(1, || gpu.free_bytes()), there - memory.size);
            },
        )
        .needs(Need::TwoDevices),
    ],
};

const EMPTY: &str = "without a current context nothing is popped, and no work is done";

/// What an output holds before the call, and is no context.
const UNTOUCHED: CUcontext = 0x10 as CUcontext;

fn current(gpu: &Gpu) -> CUcontext {
    let mut context: CUcontext = UNTOUCHED;
    call!(gpu, cuCtxGetCurrent(&mut context) => SUCCESS);
    context
}

fn pop(gpu: &Gpu) -> CUcontext {
    let mut context: CUcontext = UNTOUCHED;
    call!(gpu, cuCtxPopCurrent_v2(&mut context) => SUCCESS);
    context
}

/// Runs the closure with nothing on the stack.
fn empty(gpu: &Gpu, run: impl FnOnce()) {
    let context = pop(gpu);
    run();
    call!(gpu, cuCtxPushCurrent_v2(context) => SUCCESS);
}

fn released_while_current(which: Which) {
    let driver = Driver::open(which, 1);
    call!(driver, cuInit(0) => SUCCESS);
    let mut context = ptr::null_mut();
    call!(driver, cuDevicePrimaryCtxRetain(&mut context, 0) => SUCCESS);
    call!(driver, cuCtxSetCurrent(context) => SUCCESS);
    call!(driver, cuDevicePrimaryCtxRelease_v2(0) => SUCCESS);
    let (mut free, mut total) = (0, 0);
    call!(driver, cuMemGetInfo_v2(&mut free, &mut total) => CONTEXT_IS_DESTROYED);
    call!(driver, cuCtxSynchronize() => CONTEXT_IS_DESTROYED);
    call!(driver, cuDevicePrimaryCtxRelease_v2(0) => INVALID_CONTEXT);
}
