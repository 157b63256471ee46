//! Two processes: one that forks after it initialised the driver, and one that imports what another exported.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

use cuda_vmm::sys::CUmemAllocationHandleType;

use crate::codes::call;
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::props::{self, device, pinned, rights, READ_WRITE};
use crate::support::which::Which;

/// Forks; the child runs the closure and ends without the parent's destructors and handlers, by 0 unless it panics.
fn fork(run: impl FnOnce()) -> libc::pid_t {
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let ended = catch_unwind(AssertUnwindSafe(run));
            unsafe { libc::_exit(i32::from(ended.is_err())) }
        }
        child => child,
    }
}

/// Waits for a child and gives its status as `waitpid` does.
fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// A forked child of an initialised process is answered NOT_INITIALIZED; the parent's memory is as it was.
pub fn fork_after_init(which: Which) {
    let gpu = Gpu::open(Driver::open(which, 1));
    let range = gpu.reserve(4);
    let memory = gpu.create_exportable(1);
    gpu.map(range.base, &memory);
    gpu.grant(range.base, memory.size, READ_WRITE);
    gpu.fill(range.base, 0x07, memory.size);

    let child = fork(|| {
        let g = gpu.granularity;
        let properties = pinned(device(0), props::POSIX_FD);
        let option = cuda_vmm::sys::CUmemAllocationGranularity_flags(0);
        let (mut size, mut base, mut handle, mut fd, mut byte) = (0, 0, 0, -1_i32, 0_u8);
        let kind = CUmemAllocationHandleType(props::POSIX_FD);
        let descriptor = rights(device(0), READ_WRITE);
        let mut flags = 0;
        call!(gpu, cuMemGetAllocationGranularity(&mut size, &properties, option) => NOT_INITIALIZED);
        call!(gpu, cuMemAddressReserve(&mut base, g, 0, 0, 0) => NOT_INITIALIZED);
        call!(gpu, cuMemCreate(&mut handle, g, &properties, 0) => NOT_INITIALIZED);
        call!(gpu, cuMemMap(range.at(1), g, 0, memory.raw, 0) => NOT_INITIALIZED);
        call!(gpu, cuMemSetAccess(range.base, g, &descriptor, 1) => NOT_INITIALIZED);
        call!(gpu, cuMemGetAccess(&mut flags, &device(0), range.base) => NOT_INITIALIZED);
        call!(gpu, cuMemRetainAllocationHandle(&mut handle, range.base as *mut c_void) => NOT_INITIALIZED);
        call!(gpu, cuMemExportToShareableHandle((&raw mut fd).cast(), memory.raw, kind, 0) => NOT_INITIALIZED);
        call!(gpu, cuMemcpyDtoH_v2((&raw mut byte).cast(), range.base, 1) => NOT_INITIALIZED);
        call!(gpu, cuMemsetD8_v2(range.base, 1, g) => NOT_INITIALIZED);
        call!(gpu, cuMemUnmap(range.base, g) => NOT_INITIALIZED);
        call!(gpu, cuMemRelease(memory.raw) => NOT_INITIALIZED);
        call!(gpu, cuMemAddressFree(range.base, range.size) => NOT_INITIALIZED);
        call!(gpu, cuInit(0) => NOT_INITIALIZED);
    });
    assert_eq!(wait(child), 0, "the child was answered otherwise");

    assert_eq!(gpu.rights(range.base), Ok(READ_WRITE));
    assert_eq!(gpu.bytes(range.base, memory.size), vec![0x07; memory.size]);
    call!(gpu, cuMemUnmap(range.base, memory.size) => SUCCESS);
    memory.release();
    range.free();
}

/// How many granules the exporter shares.
const SHARED: usize = 4;

/// Imports what another process exported, on the given device, and reads it when that process was killed.
pub fn import_of_a_killed_process(which: Which, ordinal: i32) {
    let devices = ordinal as usize + 1;
    let (mut here, there) = UnixStream::pair().expect("a socket pair");
    // Before the first driver call of this process, so that both can initialise the driver.
    let exporter = fork(|| export_and_wait(which, devices, &there));
    drop(there);

    let gpu = Gpu::open(Driver::open(which, devices));
    gpu.make_current(ordinal);
    let import = gpu.import(&receive(&here), SHARED);
    let range = gpu.reserve(SHARED);
    gpu.map(range.base, &import);
    let descriptor = rights(device(ordinal), READ_WRITE);
    call!(gpu, cuMemSetAccess(range.base, range.size, &descriptor, 1) => SUCCESS);
    assert_eq!(gpu.bytes(range.base, range.size), vec![0x5c; range.size]);

    here.write_all(b"k").expect("the exporter is still there");
    assert_eq!(unsafe { libc::kill(exporter, libc::SIGKILL) }, 0);
    let status = wait(exporter);
    assert!(
        libc::WIFSIGNALED(status),
        "the exporter ended by itself: {status:#x}"
    );
    assert_eq!(gpu.bytes(range.base, range.size), vec![0x5c; range.size]);
    gpu.fill(range.base, 0x11, range.size);
    assert_eq!(gpu.byte(range.end() - 1), 0x11);
}

/// The exporter: makes memory, sends its descriptor, and waits to be killed.
fn export_and_wait(which: Which, devices: usize, socket: &UnixStream) {
    let gpu = Gpu::open(Driver::open(which, devices));
    let range = gpu.reserve(SHARED);
    let memory = gpu.create_exportable(SHARED);
    gpu.map(range.base, &memory);
    gpu.grant(range.base, range.size, READ_WRITE);
    gpu.fill(range.base, 0x5c, range.size);
    send(socket, &gpu.export(&memory));
    // Ends at the importer's death at the latest, when the socket closes.
    let mut bytes = Vec::new();
    let mut reader = socket;
    let _ = reader.read_to_end(&mut bytes);
}

/// Room for the header and one file descriptor, aligned as the header must be.
#[repr(C)]
struct OneDescriptor {
    header: libc::cmsghdr,
    fd: i32,
}

/// A message of one byte with room for a descriptor beside it.
fn message(byte: &mut libc::iovec, control: &mut OneDescriptor) -> libc::msghdr {
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(control).cast();
    message.msg_controllen = mem::size_of::<OneDescriptor>() as _;
    message
}

fn control(fd: i32) -> OneDescriptor {
    let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
    header.cmsg_len = unsafe { libc::CMSG_LEN(mem::size_of::<i32>() as u32) } as _;
    header.cmsg_level = libc::SOL_SOCKET;
    header.cmsg_type = libc::SCM_RIGHTS;
    OneDescriptor { header, fd }
}

fn send(socket: &UnixStream, fd: &OwnedFd) {
    let mut payload = b'm';
    let mut byte = libc::iovec {
        iov_base: (&raw mut payload).cast(),
        iov_len: 1,
    };
    let mut control = control(fd.as_raw_fd());
    let message = message(&mut byte, &mut control);
    assert_eq!(unsafe { libc::sendmsg(socket.as_raw_fd(), &message, 0) }, 1);
}

fn receive(socket: &UnixStream) -> OwnedFd {
    let mut payload = 0_u8;
    let mut byte = libc::iovec {
        iov_base: (&raw mut payload).cast(),
        iov_len: 1,
    };
    let mut control = control(-1);
    let mut message = message(&mut byte, &mut control);
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    assert_eq!(received, 1, "the exporter sent nothing");
    assert!(control.fd >= 0, "no descriptor came with the message");
    unsafe { OwnedFd::from_raw_fd(control.fd) }
}
