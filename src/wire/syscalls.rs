//! The system calls on sockets that the standard library lacks: sequenced packets, passed descriptors, credentials.
//!
//! # Safety
//!
//! The only `unsafe` of the transport. What the kernel is handed lives on the caller's stack for as long as the call;
//! every descriptor that it hands over becomes an [`OwnedFd`] before anything else can fail. Each function is one call,
//! repeated where a signal interrupted it, and close-on-exec is asked for in the call itself, so that no `fork` of
//! another thread comes between.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Instant;

use super::address::Address;
use super::faults::{due, Syscall};
use super::socket_kind::SocketKind;

/// The most descriptors that one message carries: SCM_MAX_FD of the kernel.
pub(super) const MESSAGE_FDS: usize = 253;

/// Makes the call until no signal interrupts it; its answer, or the reason.
fn call<T>(what: Syscall, mut make: impl FnMut() -> T) -> io::Result<T>
where
    T: Copy + PartialOrd + Default,
{
    loop {
        if let Some(error) = due(what) {
            return Err(error);
        }
        let answer = make();
        if answer >= T::default() {
            return Ok(answer);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes over a descriptor that a call has just made.
fn own(fd: c_int) -> OwnedFd {
    // SAFETY: the kernel gave the descriptor to this process a moment ago, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// An unconnected socket, which never blocks.
pub(super) fn socket(kind: SocketKind) -> io::Result<OwnedFd> {
    let kind = kind.raw() | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: three numbers.
    call(Syscall::Socket, || unsafe {
        libc::socket(libc::AF_UNIX, kind, 0)
    })
    .map(own)
}

/// Two sockets connected with each other.
pub(super) fn socket_pair(kind: SocketKind) -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = kind.raw() | libc::SOCK_CLOEXEC;
    let mut fds = [-1; 2];
    // SAFETY: the kernel writes two descriptors to the array.
    call(Syscall::Socketpair, || unsafe {
        libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr())
    })?;
    Ok((own(fds[0]), own(fds[1])))
}

pub(super) fn bind(socket: BorrowedFd<'_>, address: &Address) -> io::Result<()> {
    let (address, length) = address.raw();
    // SAFETY: the address is a `sockaddr_un` of which `length` bytes are filled in, and `length` is no more than it
    // has.
    call(Syscall::Bind, || unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(address).cast::<libc::sockaddr>(),
            length,
        )
    })
    .map(drop)
}

pub(super) fn connect(socket: BorrowedFd<'_>, address: &Address) -> io::Result<()> {
    let (address, length) = address.raw();
    // SAFETY: as for `bind`.
    call(Syscall::Connect, || unsafe {
        libc::connect(
            socket.as_raw_fd(),
            ptr::from_ref(address).cast::<libc::sockaddr>(),
            length,
        )
    })
    .map(drop)
}

pub(super) fn listen(socket: BorrowedFd<'_>, backlog: c_int) -> io::Result<()> {
    // SAFETY: two numbers.
    call(Syscall::Listen, || unsafe {
        libc::listen(socket.as_raw_fd(), backlog)
    })
    .map(drop)
}

/// The next connection, which never blocks.
pub(super) fn accept(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is asked for, so both pointers may be null.
    call(Syscall::Accept, || unsafe {
        libc::accept4(socket.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags)
    })
    .map(own)
}

/// Nothing further goes either way; what was sent before can still be read.
pub(super) fn shutdown(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: two numbers.
    call(Syscall::Shutdown, || unsafe {
        libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR)
    })
    .map(drop)
}

/// Takes the advisory lock of an open file or folder, if nobody has it; it goes with the descriptor.
pub(super) fn try_lock(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: two numbers.
    call(Syscall::Flock, || unsafe {
        libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB)
    })
    .map(drop)
}

/// An option of a socket, as a value for which any bytes are good.
fn option<T: Copy>(socket: BorrowedFd<'_>, name: c_int, initial: T) -> io::Result<T> {
    let mut value = initial;
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the value, and the callers' types are made of integers alone.
    call(Syscall::Getsockopt, || unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &mut length,
        )
    })?;
    Ok(value)
}

/// The family and the type of a socket, as numbers.
pub(super) fn family_and_type(socket: BorrowedFd<'_>) -> io::Result<(c_int, c_int)> {
    let family = option(socket, libc::SO_DOMAIN, -1)?;
    Ok((family, option(socket, libc::SO_TYPE, -1)?))
}

/// Who was at the other end when the connection was made.
pub(super) fn peer(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let nobody = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    option(socket, libc::SO_PEERCRED, nobody)
}

/// A descriptor of a process, which is readable once the process has ended. Close-on-exec.
pub(super) fn open_process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: two numbers.
    call(Syscall::PidfdOpen, || unsafe {
        libc::syscall(libc::SYS_pidfd_open, pid, 0) as c_int
    })
    .map(own)
}

/// This process's effective user.
pub(super) fn user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// What to wait for on one descriptor, and what came of it.
pub(super) use libc::pollfd as Watched;

/// Waits until something is ready, or until the instant; how many are ready. `None` waits for ever.
pub(super) fn poll(watched: &mut [Watched], until: Option<Instant>) -> io::Result<usize> {
    let ready = call(Syscall::Poll, || {
        // Worked out anew when a signal interrupted the wait.
        let timeout = milliseconds(until);
        // SAFETY: the kernel reads and writes as many structs as the slice has.
        unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, timeout) }
    })?;
    Ok(ready as usize)
}

/// The time left, rounded up, so that no wait ends before its time; -1 for ever.
fn milliseconds(until: Option<Instant>) -> c_int {
    until.map_or(-1, |until| {
        let left = until.saturating_duration_since(Instant::now());
        c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    })
}

/// A set of descriptors to wait for, which the kernel keeps.
pub(super) fn epoll_create() -> io::Result<OwnedFd> {
    // SAFETY: one number.
    call(Syscall::EpollCreate, || unsafe {
        libc::epoll_create1(libc::EPOLL_CLOEXEC)
    })
    .map(own)
}

/// Adds a descriptor to a set, changes what it is watched for, or takes it out: `operation` is EPOLL_CTL_ADD, _MOD or
/// _DEL.
pub(super) fn epoll_control(
    set: BorrowedFd<'_>,
    operation: c_int,
    fd: BorrowedFd<'_>,
    events: u32,
    name: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: name };
    // SAFETY: the kernel reads the struct.
    call(Syscall::EpollCtl, || unsafe {
        libc::epoll_ctl(set.as_raw_fd(), operation, fd.as_raw_fd(), &mut event)
    })
    .map(drop)
}

/// Waits until something in a set is ready, or until the instant; the names of what is ready, as far as the buffer
/// goes.
pub(super) fn epoll_wait(
    set: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    until: Option<Instant>,
) -> io::Result<usize> {
    let room = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let ready = call(Syscall::EpollWait, || {
        let timeout = milliseconds(until);
        // SAFETY: the kernel writes to no more structs than `room`, and the slice has as many.
        unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), room, timeout) }
    })?;
    Ok(ready as usize)
}

/// Room for control data, aligned as its headers must be.
#[repr(C, align(8))]
struct Control([u8; 4096]);

/// Sends bytes and, with the first of them, descriptors; how many bytes went. Never blocks, and raises no signal.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    assert!(fds.len() <= MESSAGE_FDS, "a message of {} fds", fds.len());
    let mut control = Control([0; 4096]);
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeroes are an empty message header.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut vector;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let length = size_of_val(fds) as u32;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: arithmetic alone.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as _;
        // SAFETY: the control buffer is aligned, holds zeroes, and its 4,096 bytes are more than the space for 253
        // descriptors.
        let header = unsafe { &mut *libc::CMSG_FIRSTHDR(&message) };
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: arithmetic alone.
        header.cmsg_len = unsafe { libc::CMSG_LEN(length) } as _;
        // SAFETY: the data behind the header lies within the space counted above, and a `BorrowedFd` is the number
        // of its descriptor (`repr(transparent)`).
        unsafe {
            ptr::copy_nonoverlapping(
                fds.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(header),
                length as usize,
            );
        }
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the message points to the bytes and to the control buffer, which outlive the call and are only read.
    let sent = call(Syscall::Sendmsg, || unsafe {
        libc::sendmsg(socket.as_raw_fd(), &message, flags)
    })?;
    Ok(sent as usize)
}

/// What one call received.
pub(super) struct Got {
    /// How many bytes; none at the end of a connection.
    pub bytes: usize,
    /// The packet was longer than the buffer, and its rest is lost.
    pub cut: bool,
    /// The kernel had descriptors that it could not hand over, and closed them.
    pub control_cut: bool,
}

/// Receives bytes and the descriptors that came with them, which are added to `fds` at once. Never blocks.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<Got> {
    // Reserved before the call: between it and the owners of what came there is nothing that can fail.
    fds.reserve(MESSAGE_FDS);
    let mut control = Control([0; 4096]);
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeroes are an empty message header.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the message points to the bytes and to the control buffer, which outlive the call, with their true
    // lengths.
    let received = call(Syscall::Recvmsg, || unsafe {
        libc::recvmsg(socket.as_raw_fd(), &mut message, flags)
    })?;
    take_descriptors(&message, fds);
    Ok(Got {
        bytes: received as usize,
        cut: message.msg_flags & libc::MSG_TRUNC != 0,
        control_cut: message.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// Owns every descriptor in the control data, whatever else is in there.
fn take_descriptors(message: &libc::msghdr, fds: &mut Vec<OwnedFd>) {
    // SAFETY: the kernel has filled in the control data and its length, which is within the buffer.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: a header that is not null lies wholly in the control data.
    while let Some(header) = unsafe { next.as_ref() } {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: arithmetic alone.
            let before = unsafe { libc::CMSG_LEN(0) } as usize;
            let length: usize = header.cmsg_len as _; // Of another type with another C library.
            let count = length.saturating_sub(before) / size_of::<c_int>();
            // SAFETY: the data begins there.
            let data = unsafe { libc::CMSG_DATA(header) }.cast::<c_int>();
            for index in 0..count {
                // SAFETY: the header counts so many descriptors behind it; they need not be aligned.
                fds.push(own(unsafe { data.add(index).read_unaligned() }));
            }
        }
        // SAFETY: the message and the header are those of this loop.
        next = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}
