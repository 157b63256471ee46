//! Exports and imports in unusual order, and descriptors in unusual shape.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cuda_vmm::sys::{CUmemAllocationHandleType, CUresult};

use crate::case::{alone, case, Section};
use crate::codes::{call, demand, INVALID_VALUE, NOT_SUPPORTED, UNKNOWN};
use crate::gpu::Gpu;
use crate::owned::Handle;
use crate::props::{
    device, host_numa, pinned, FABRIC, NO_ACCESS, POSIX_FD, READ, READ_WRITE, WIN32,
};

pub const SECTION: Section = Section {
    name: "handover",
    cases: &[
        case("import_after_the_release", PINS, |gpu| {
            let before = gpu.free_bytes();
            let memory = filled(gpu);
            let fd = gpu.export(&memory);
            memory.release();
            let import = gpu.import(&fd, 1);
            drop(fd);
            demand_bytes(gpu, &import);
            assert_eq!(
                gpu.free_bytes(),
                before - import.size,
                "the import keeps it"
            );
            import.release();
            assert_eq!(gpu.free_bytes(), before);
        }),
        case("two_descriptors_one_closed", PINS, |gpu| {
            let memory = filled(gpu);
            let (one, two) = (gpu.export(&memory), gpu.export(&memory));
            memory.release();
            drop(one);
            demand_bytes(gpu, &gpu.import(&two, 1));
        }),
        case("duplicated_descriptor", SHAPES, |gpu| {
            let memory = filled(gpu);
            let fd = gpu.export(&memory);
            // Not close-on-exec, unlike the one it comes from.
            let duplicate = unsafe { libc::dup(fd.as_raw_fd()) };
            assert!(duplicate >= 0, "no descriptor left");
            let duplicate = unsafe { OwnedFd::from_raw_fd(duplicate) };
            drop(fd);
            demand_bytes(gpu, &gpu.import(&duplicate, 1));
        }),
        case("descriptor_at_another_position", SHAPES, |gpu| {
            let memory = filled(gpu);
            let fd = gpu.export(&memory);
            // A device may refuse to be positioned, which is just as well.
            let _ = unsafe { libc::lseek(fd.as_raw_fd(), 4096, libc::SEEK_SET) };
            demand_bytes(gpu, &gpu.import(&fd, 1));
        }),
        case(
            "never_opened",
            "a number that is no descriptor is UNKNOWN",
            |gpu| {
                gpu.nothing_changes(|| {
                    let (code, _) = gpu.try_import(9_999);
                    demand("cuMemImportFromShareableHandle(9999)", code, UNKNOWN);
                });
            },
        ),
        alone("import_two_types", TYPES, |gpu| {
            import_refused(gpu, POSIX_FD | FABRIC, INVALID_VALUE)
        }),
        alone("import_type_win32", TYPES, |gpu| {
            import_refused(gpu, WIN32, NOT_SUPPORTED)
        }),
        alone("import_type_16", TYPES, |gpu| {
            import_refused(gpu, 16, INVALID_VALUE)
        }),
        case(
            "export_as_fabric",
            "memory that was created for descriptors cannot be exported as a fabric handle",
            |gpu| {
                let memory = gpu.create_exportable(1);
                let mut room = [-1_i8; 64];
                let kind = CUmemAllocationHandleType(FABRIC);
                gpu.nothing_changes(|| {
                call!(gpu, cuMemExportToShareableHandle(room.as_mut_ptr().cast(), memory.raw, kind, 0) => INVALID_VALUE);
            });
                assert_eq!(room, [-1; 64]);
            },
        ),
        case("export_while_mapped", EXPORTS, |gpu| {
            let range = gpu.reserve(1);
            let memory = filled(gpu);
            gpu.map(range.base, &memory);
            demand_bytes(gpu, &gpu.import(&gpu.export(&memory), 1));
        }),
        case("export_a_retained_handle", EXPORTS, |gpu| {
            let range = gpu.reserve(1);
            let memory = filled(gpu);
            gpu.map(range.base, &memory);
            memory.release();
            let retained = gpu.retain(range.base, 1);
            demand_bytes(gpu, &gpu.import(&gpu.export(&retained), 1));
        }),
        case("export_a_released_handle_that_is_mapped", EXPORTS, |gpu| {
            let range = gpu.reserve(1);
            let memory = filled(gpu);
            gpu.map(range.base, &memory);
            memory.release();
            demand_bytes(gpu, &gpu.import(&gpu.export(&memory), 1));
        }),
        case(
            "import_takes_no_memory",
            "an import in the exporter's process takes no free bytes",
            |gpu| {
                let memory = gpu.create_exportable(512);
                let fd = gpu.export(&memory);
                let before = gpu.free_bytes();
                let import = gpu.import(&fd, 512);
                assert_eq!(gpu.free_bytes(), before);
                import.release();
                assert_eq!(gpu.free_bytes(), before);
            },
        ),
        case(
            "import_twice_and_unmap_one",
            "two imports are two mappings of the same bytes",
            |gpu| {
                let range = gpu.reserve(2);
                let fd = gpu.export(&filled(gpu));
                let (one, two) = (gpu.import(&fd, 1), gpu.import(&fd, 1));
                gpu.map(range.base, &one);
                gpu.map(range.at(1), &two);
                gpu.grant(range.base, range.size, READ_WRITE);
                gpu.fill(range.base, 0x21, 4);
                call!(gpu, cuMemUnmap(range.base, gpu.granularity) => SUCCESS);
                one.release();
                assert_eq!(gpu.bytes(range.at(1), 5), [0x21, 0x21, 0x21, 0x21, 0x7e]);
            },
        ),
        case(
            "rights_of_an_import",
            "an import has rights of its own",
            |gpu| {
                let range = gpu.reserve(2);
                let memory = filled(gpu);
                let import = gpu.import(&gpu.export(&memory), 1);
                gpu.map(range.base, &memory);
                gpu.map(range.at(1), &import);
                gpu.grant(range.base, gpu.granularity, READ_WRITE);
                assert_eq!(gpu.rights(range.at(1)), Ok(NO_ACCESS));
                gpu.grant(range.at(1), gpu.granularity, READ);
                assert_eq!(gpu.rights(range.base), Ok(READ_WRITE));
                call!(gpu, cuMemsetD8_v2(range.at(1), 1, 1) => INVALID_VALUE);
            },
        ),
        alone(
            "import_released_twice",
            "a second release of an import is refused",
            |gpu| {
                let memory = gpu.create_exportable(1);
                let import = gpu.import(&gpu.export(&memory), 1);
                import.release();
                gpu.nothing_changes(|| call!(gpu, cuMemRelease(import.raw) => INVALID_VALUE));
            },
        ),
        case(
            "import_of_a_node",
            "host memory is imported as host memory",
            |gpu| {
                let memory = gpu.create_with(1, &pinned(host_numa(0), POSIX_FD));
                let import = gpu.import(&gpu.export(&memory), 1);
                let range = gpu.reserve(1);
                gpu.map(range.base, &import);
                gpu.grant(range.base, range.size, READ_WRITE);
                gpu.fill(range.base, 0x45, range.size);
                assert_eq!(gpu.byte(range.end() - 1), 0x45);
                let mut found = pinned(device(7), 7);
                call!(gpu, cuMemGetAllocationPropertiesFromHandle(&mut found, import.raw) => SUCCESS);
                assert_eq!(found.location, host_numa(0));
            },
        ),
    ],
};

const PINS: &str = "an exported descriptor is all that memory needs, until it is imported";
const SHAPES: &str = "any descriptor of the open file is as good as the exported one";
const TYPES: &str = "an import as anything but one known type is refused";
const EXPORTS: &str = "memory can be exported whatever keeps it";

/// One exportable granule full of 0x7e, not mapped.
fn filled(gpu: &Gpu) -> Handle<'_> {
    let range = gpu.reserve(1);
    let memory = gpu.create_exportable(1);
    gpu.map(range.base, &memory);
    gpu.grant(range.base, range.size, READ_WRITE);
    gpu.fill(range.base, 0x7e, range.size);
    memory
}

/// The import shows what [`filled`] put there.
#[track_caller]
fn demand_bytes(gpu: &Gpu, import: &Handle<'_>) {
    let range = gpu.reserve(1);
    gpu.map(range.base, import);
    gpu.grant(range.base, range.size, READ);
    assert_eq!(gpu.byte(range.base), 0x7e, "the first byte");
    assert_eq!(gpu.byte(range.end() - 1), 0x7e, "the last byte");
}

/// An import of a good descriptor by these types is refused.
fn import_refused(gpu: &Gpu, types: u32, wanted: CUresult) {
    let fd = gpu.export(&gpu.create_exportable(1));
    let shareable = fd.as_raw_fd() as isize as *mut _;
    let kind = CUmemAllocationHandleType(types);
    let mut handle = 0;
    gpu.nothing_changes(|| {
        let code = unsafe {
            gpu.calls()
                .cuMemImportFromShareableHandle(&mut handle, shareable, kind)
        };
        demand("cuMemImportFromShareableHandle", code, wanted);
    });
    assert_eq!(handle, 0);
}
