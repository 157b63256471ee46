//! Releasing handles, and what keeps memory alive.

use cuda_vmm::sys::CUmemAllocationHandleType;

use crate::case::{alone, case, Need, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::props::POSIX_FD;

/// A handle value that no call ever gave out.
const MADE_UP: u64 = 0x55;

pub const SECTION: Section = Section {
    name: "release",
    cases: &[
        alone("twice", "a second release is refused", |gpu| {
            let memory = gpu.create(1);
            memory.release();
            gpu.nothing_changes(|| call!(gpu, cuMemRelease(memory.raw) => INVALID_VALUE));
        }),
        case("handle_zero", "handle 0 is refused", |gpu| {
            gpu.nothing_changes(|| call!(gpu, cuMemRelease(0) => INVALID_VALUE));
        }),
        case("made_up_handle", FATAL, |gpu| {
            misuse(gpu, || call!(gpu, cuMemRelease(MADE_UP) => INVALID_HANDLE));
        })
        .needs(Need::Simulated(KILLS)),
        case("map_made_up_handle", FATAL, |gpu| {
            let range = gpu.reserve(1);
            misuse(gpu, || {
                call!(gpu, cuMemMap(range.base, range.size, 0, MADE_UP, 0) => INVALID_HANDLE);
            });
        })
        .needs(Need::Simulated(KILLS)),
        case("export_made_up_handle", FATAL, |gpu| {
            let mut fd = -1;
            let kind = CUmemAllocationHandleType(POSIX_FD);
            misuse(gpu, || {
                let shareable = (&raw mut fd).cast();
                call!(gpu, cuMemExportToShareableHandle(shareable, MADE_UP, kind, 0) => INVALID_HANDLE);
            });
            assert_eq!(fd, -1, "a file descriptor of no memory");
        })
        .needs(Need::Simulated(KILLS)),
        case(
            "while_mapped",
            "memory that is released while mapped stays until it is unmapped",
            while_mapped,
        ),
        alone(
            "while_mapped_then_map_elsewhere",
            "a handle that is released while mapped can still be mapped elsewhere",
            while_mapped_then_map_elsewhere,
        ),
        alone(
            "while_mapped_twice",
            "a second release is refused although the memory is still mapped",
            |gpu| {
                let range = gpu.reserve(1);
                let memory = gpu.back(range.base, 1);
                gpu.fill(range.base, 0x17, range.size);
                memory.release();
                gpu.nothing_changes_in(&range, || {
                    call!(gpu, cuMemRelease(memory.raw) => INVALID_VALUE);
                });
                assert_eq!(gpu.byte(range.base), 0x17);
            },
        ),
        case(
            "while_exported",
            "an exported file descriptor keeps the memory until it is closed",
            while_exported,
        ),
    ],
};

const FATAL: &str = "a made-up handle ends the process: the driver follows it as a pointer";
const KILLS: &str = "kills the process";

/// The call is refused, changes nothing, and is on the record as one that would have ended the process.
fn misuse(gpu: &Gpu, run: impl FnOnce()) {
    let on_record = || {
        let misuses = gpu.driver().misuses();
        misuses.expect("only a simulated driver survives this")
    };
    let before = on_record().lines().count();
    gpu.nothing_changes(run);
    let after = on_record();
    assert_eq!(
        after.lines().count(),
        before + 1,
        "misuses on record: {after}"
    );
}

fn while_mapped(gpu: &Gpu) {
    let before = gpu.free_bytes();
    let range = gpu.reserve(4);
    let memory = gpu.back(range.base, 4);
    memory.release();

    assert_eq!(gpu.free_bytes(), before - range.size);
    gpu.fill(range.base, 0x71, range.size);
    assert_eq!(gpu.byte(range.end() - 1), 0x71);

    call!(gpu, cuMemUnmap(range.base, range.size) => SUCCESS);
    assert_eq!(gpu.free_bytes(), before);
}

fn while_mapped_then_map_elsewhere(gpu: &Gpu) {
    let range = gpu.reserve(2);
    let memory = gpu.back(range.base, 1);
    gpu.fill(range.base, 0x44, gpu.granularity);
    memory.release();

    gpu.map(range.at(1), &memory);
    gpu.grant(range.at(1), gpu.granularity, crate::props::READ_WRITE);
    assert_eq!(gpu.byte(range.at(1)), 0x44);
}

fn while_exported(gpu: &Gpu) {
    let before = gpu.free_bytes();
    let memory = gpu.create_exportable(512);
    assert_eq!(gpu.free_bytes(), before - memory.size, "created");
    let fd = gpu.export(&memory);
    memory.release();
    assert_eq!(
        gpu.free_bytes(),
        before - memory.size,
        "released, the descriptor open"
    );
    drop(fd);
    assert_eq!(gpu.free_bytes(), before, "the descriptor closed");
}
