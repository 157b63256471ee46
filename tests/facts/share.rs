//! Exporting and importing.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cuda_vmm::sys::{CUmemAllocationHandleType, CUmemFabricHandle};

use crate::case::{apart, case, Need, Section};
use crate::codes::{call, demand, UNKNOWN};
use crate::gpu::Gpu;
use crate::owned::Handle;
use crate::processes;
use crate::props::{device, pinned, FABRIC, NONE, POSIX_FD, READ_WRITE, WIN32};

pub const SECTION: Section = Section {
    name: "share",
    cases: &[
        case(
            "export_twice",
            "each export gives a file descriptor of its own",
            |gpu| {
                let memory = gpu.create_exportable(2);
                let (one, two) = (gpu.export(&memory), gpu.export(&memory));
                assert_ne!(one.as_raw_fd(), two.as_raw_fd());
                gpu.import(&one, 2).release();
                gpu.import(&two, 2).release();
            },
        ),
        case(
            "export_closes_on_exec",
            "FD_CLOEXEC is set on an exported descriptor",
            |gpu| {
                let fd = gpu.export(&gpu.create_exportable(1));
                let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
                assert_eq!(flags, libc::FD_CLOEXEC);
            },
        ),
        case(
            "export_links_to_the_control_device",
            "an exported descriptor is one of /dev/nvidiactl",
            |gpu| {
                let fd = gpu.export(&gpu.create_exportable(1));
                let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
                assert_eq!(
                    link.expect("an open descriptor").to_str(),
                    Some("/dev/nvidiactl")
                );
            },
        )
        .needs(Need::Real("a simulated export is a memfd")),
        case("export_flag_1", "flags are refused", |gpu| {
            export_refused(gpu, &gpu.create_exportable(1), POSIX_FD, 1)
        }),
        case(
            "export_type_none",
            "an export as no type is refused",
            |gpu| export_refused(gpu, &gpu.create_exportable(1), NONE, 0),
        ),
        case(
            "export_type_not_requested",
            "a type not requested at create is refused",
            |gpu| export_refused(gpu, &gpu.create(1), POSIX_FD, 0),
        ),
        case(
            "export_two_types",
            "an export as two types at once is refused",
            |gpu| export_refused(gpu, &gpu.create_exportable(1), POSIX_FD | WIN32, 0),
        ),
        case("unknown_type_bit_16", UNKNOWN_BITS, |gpu| {
            unknown_type(gpu, 16)
        }),
        case("unknown_type_bit_32", UNKNOWN_BITS, |gpu| {
            unknown_type(gpu, 32)
        }),
        case("import", "an import shows the exporter's bytes", |gpu| {
            let range = gpu.reserve(4);
            let memory = gpu.create_exportable(2);
            let import = gpu.import(&gpu.export(&memory), 2);
            assert_ne!(import.raw, memory.raw);
            gpu.map(range.base, &import);
            gpu.map(range.at(2), &memory);
            gpu.grant(range.base, range.size, READ_WRITE);
            gpu.fill(range.at(2), 0x42, gpu.granules(2));
            assert_eq!(gpu.byte(range.base), 0x42);
            assert_eq!(gpu.byte(range.at(2) - 1), 0x42);
        }),
        case(
            "import_twice",
            "each import gives a handle value of its own",
            |gpu| {
                let memory = gpu.create_exportable(1);
                let fd = gpu.export(&memory);
                let (one, two) = (gpu.import(&fd, 1), gpu.import(&fd, 1));
                assert_ne!(one.raw, two.raw);
                one.release();
                let range = gpu.reserve(1);
                gpu.map(range.base, &two);
            },
        ),
        case(
            "import_leaves_the_descriptor",
            "the descriptor stays open and the caller's",
            |gpu| {
                let fd = gpu.export(&gpu.create_exportable(1));
                let _import = gpu.import(&fd, 1);
                let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
                assert_eq!(flags, libc::FD_CLOEXEC);
            },
        ),
        case("import_minus_one", NO_REASON, |gpu| import_refused(gpu, -1)),
        case("import_closed_descriptor", NO_REASON, |gpu| {
            let exported = gpu.export(&gpu.create_exportable(1));
            let number = exported.as_raw_fd();
            drop(exported);
            import_refused(gpu, number);
        }),
        case("import_dev_null", NO_REASON, |gpu| {
            let null = File::open("/dev/null").expect("/dev/null");
            import_refused(gpu, null.as_raw_fd());
        }),
        case("import_pipe", NO_REASON, |gpu| {
            let mut ends = [-1; 2];
            assert_eq!(
                unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) },
                0,
                "a pipe"
            );
            let [reader, _writer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
            import_refused(gpu, reader.as_raw_fd());
        }),
        case("import_memfd", NO_REASON, |gpu| {
            let raw = unsafe { libc::memfd_create(c"no allocation".as_ptr(), libc::MFD_CLOEXEC) };
            assert!(raw >= 0, "a memfd");
            let memory = unsafe { OwnedFd::from_raw_fd(raw) };
            import_refused(gpu, memory.as_raw_fd());
        }),
        case(
            "import_type_zero",
            "an import as no type is refused",
            |gpu| {
                let fd = gpu.export(&gpu.create_exportable(1));
                gpu.nothing_changes(|| {
                let mut handle = 0;
                let shareable = fd.as_raw_fd() as isize as *mut _;
                let kind = CUmemAllocationHandleType(NONE);
                call!(gpu, cuMemImportFromShareableHandle(&mut handle, shareable, kind) => INVALID_VALUE);
            });
            },
        ),
        case(
            "import_zero_fabric_handle",
            "an all-zero fabric handle is not supported",
            |gpu| {
                let mut fabric = CUmemFabricHandle { data: [0; 64] };
                gpu.nothing_changes(|| {
                let mut handle = 0;
                let shareable = (&raw mut fabric).cast();
                let kind = CUmemAllocationHandleType(FABRIC);
                call!(gpu, cuMemImportFromShareableHandle(&mut handle, shareable, kind) => NOT_SUPPORTED);
            });
            },
        ),
        case("map_import_smaller", WHOLE, |gpu| map_import(gpu, 1)),
        case("map_import_larger", WHOLE, |gpu| map_import(gpu, 4)),
        case(
            "map_import_after_close",
            "an import can be mapped when its descriptor is closed",
            |gpu| {
                let memory = gpu.create_exportable(1);
                let fd = gpu.export(&memory);
                let import = gpu.import(&fd, 1);
                drop(fd);
                memory.release();
                let range = gpu.reserve(1);
                gpu.map(range.base, &import);
                gpu.grant(range.base, range.size, READ_WRITE);
                gpu.fill(range.base, 0x13, range.size);
                assert_eq!(gpu.byte(range.base), 0x13);
            },
        ),
        case(
            "export_an_import",
            "an import cannot be exported again",
            |gpu| {
                let memory = gpu.create_exportable(1);
                let import = gpu.import(&gpu.export(&memory), 1);
                export_refused(gpu, &import, POSIX_FD, 0);
            },
        ),
        apart("import_of_a_killed_process", SURVIVES, |which| {
            processes::import_of_a_killed_process(which, 0)
        }),
        apart(
            "import_of_a_killed_process_on_another_device",
            SURVIVES,
            |which| processes::import_of_a_killed_process(which, 1),
        )
        .needs(Need::TwoDevices),
    ],
};

const UNKNOWN_BITS: &str =
    "unknown handle types are accepted, and nothing can be exported from them";
const NO_REASON: &str = "what is no exported descriptor is UNKNOWN: the driver gives no reason";
const WHOLE: &str = "an import is mapped with the allocation's size, or is NOT_SUPPORTED";
const SURVIVES: &str = "an import stays readable when the exporter is killed";

/// An export is refused, writes nothing, and changes nothing.
fn export_refused(gpu: &Gpu, memory: &Handle<'_>, kind: u32, flags: u64) {
    let mut room = [-1_i32; 16];
    gpu.nothing_changes(|| {
        let shareable = room.as_mut_ptr().cast();
        let kind = CUmemAllocationHandleType(kind);
        call!(gpu, cuMemExportToShareableHandle(shareable, memory.raw, kind, flags) => INVALID_VALUE);
    });
    assert_eq!(room, [-1; 16], "a refused export wrote something");
}

fn unknown_type(gpu: &Gpu, handle_types: u32) {
    let memory = gpu.create_with(1, &pinned(device(0), handle_types));
    export_refused(gpu, &memory, POSIX_FD, 0);
    export_refused(gpu, &memory, FABRIC, 0);
}

fn import_refused(gpu: &Gpu, fd: i32) {
    gpu.nothing_changes(|| {
        let (code, _) = gpu.try_import(fd);
        demand("cuMemImportFromShareableHandle(fd)", code, UNKNOWN);
    });
}

/// An import of two granules cannot be mapped with another size.
fn map_import(gpu: &Gpu, granules: usize) {
    let range = gpu.reserve(4);
    let memory = gpu.create_exportable(2);
    let import = gpu.import(&gpu.export(&memory), 2);
    gpu.nothing_changes_in(&range, || {
        call!(gpu, cuMemMap(range.base, gpu.granules(granules), 0, import.raw, 0) => NOT_SUPPORTED);
    });
}
