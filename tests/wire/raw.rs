//! Messages made by hand, for what no honest peer sends.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

pub const ANNOUNCEMENT: u8 = 1;
pub const CONSENT: u8 = 2;
pub const PIECE: u8 = 3;
pub const ACCEPTED: u8 = 4;
pub const REFUSED: u8 = 5;
pub const JOIN: u8 = 6;
pub const HELLO: u8 = 9;

/// The identity of this host, read anew.
pub fn host() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    u128::from_str_radix(&digits, 16).unwrap().to_be_bytes()
}

pub fn message(kind: u8, fds: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"CVMW\x01".to_vec();
    bytes.push(kind);
    bytes.extend(fds.to_le_bytes());
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(payload);
    bytes
}

pub fn announcement(pieces: u32, bytes: u64, fds: u32) -> Vec<u8> {
    announcement_of(0, pieces, bytes, fds, host())
}

pub fn announcement_of(topic: u32, pieces: u32, bytes: u64, fds: u32, host: [u8; 16]) -> Vec<u8> {
    let mut payload = topic.to_le_bytes().to_vec();
    payload.extend(pieces.to_le_bytes());
    payload.extend(bytes.to_le_bytes());
    payload.extend(fds.to_le_bytes());
    payload.extend(host);
    message(ANNOUNCEMENT, 0, &payload)
}

pub fn consent() -> Vec<u8> {
    message(CONSENT, 0, &host())
}

pub fn hello(bytes: &[u8]) -> Vec<u8> {
    message(HELLO, 0, bytes)
}

pub fn join(rank: u32, count: u32) -> Vec<u8> {
    let mut payload = rank.to_le_bytes().to_vec();
    payload.extend(count.to_le_bytes());
    payload.extend(host());
    message(JOIN, 0, &payload)
}

/// A piece whose header says `said` descriptors.
pub fn piece(index: u32, said: u16, bytes: &[u8]) -> Vec<u8> {
    let mut payload = index.to_le_bytes().to_vec();
    payload.extend(bytes);
    message(PIECE, said, &payload)
}

/// Sends bytes as they are, with descriptors.
#[track_caller]
pub fn send(socket: &OwnedFd, bytes: &[u8], fds: &[OwnedFd]) {
    let mut control = [0_u64; 130];
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    if !fds.is_empty() {
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let length = (fds.len() * 4) as u32;
        header.msg_control = control.as_mut_ptr().cast();
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(length) as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(length) as _;
            ptr::copy_nonoverlapping(
                fds.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(message),
                length as usize,
            );
        }
    }
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
    assert_eq!(
        sent,
        bytes.len() as isize,
        "{}",
        std::io::Error::last_os_error()
    );
}

/// Sends bytes, if the other end still reads.
pub fn try_send(socket: &OwnedFd, bytes: &[u8]) -> bool {
    send_with(socket, bytes, libc::MSG_NOSIGNAL)
}

/// Sends bytes, if the other end still reads and there is room.
pub fn try_send_now(socket: &OwnedFd, bytes: &[u8]) -> bool {
    send_with(socket, bytes, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
}

fn send_with(socket: &OwnedFd, bytes: &[u8], flags: i32) -> bool {
    let (at, length) = (bytes.as_ptr().cast(), bytes.len());
    unsafe { libc::send(socket.as_raw_fd(), at, length, flags) == length as isize }
}

/// A socket's address of an abstract name, and its length.
pub fn address(name: &[u8]) -> (libc::sockaddr_un, u32) {
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    for (place, byte) in address.sun_path[1..].iter_mut().zip(name) {
        *place = *byte as _;
    }
    (address, (3 + name.len()) as u32)
}

/// A new socket of packets.
pub fn socket() -> OwnedFd {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, kind, 0)) }
}

/// A server of an abstract name.
pub fn listen(name: &[u8]) -> OwnedFd {
    let socket = socket();
    let (address, length) = address(name);
    let number = socket.as_raw_fd();
    let bound = unsafe { libc::bind(number, (&raw const address).cast(), length) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    assert_eq!(unsafe { libc::listen(number, 8) }, 0);
    socket
}

pub fn accept(listener: &OwnedFd) -> OwnedFd {
    let (number, null) = (listener.as_raw_fd(), ptr::null_mut());
    let accepted = unsafe { libc::accept4(number, null, ptr::null_mut(), libc::SOCK_CLOEXEC) };
    assert!(accepted >= 0, "{}", std::io::Error::last_os_error());
    unsafe { OwnedFd::from_raw_fd(accepted) }
}

/// Reads up to 4,096 bytes; none at the end.
pub fn receive(socket: &OwnedFd) -> Vec<u8> {
    receive_some(socket, 4096)
}

pub fn receive_some(socket: &OwnedFd, most: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; most];
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            0,
        )
    };
    assert!(got >= 0, "{}", std::io::Error::last_os_error());
    bytes[..got as usize].to_vec()
}

/// The reason in the refusal that is received.
#[track_caller]
pub fn refusal(socket: &OwnedFd) -> String {
    let bytes = receive(socket);
    assert_eq!(bytes.get(5), Some(&REFUSED), "{bytes:?}");
    String::from_utf8(bytes[12..].to_vec()).unwrap()
}
