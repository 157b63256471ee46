//! What a process has open, and what it starts.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::Parcel;

use crate::support;

/// How many descriptors this process has open.
pub fn open_fds() -> usize {
    // The folder that is being read is one of them.
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Runs a case, and looks at what it leaves. A driver that was opened before has threads and descriptors of its own.
pub fn leaves_nothing(case: &dyn Fn()) {
    let (before, running) = (open_fds(), threads());
    case();
    assert_eq!(open_fds(), before, "descriptors are left");
    // A thread that was joined is still listed for a moment.
    let until = soon(2);
    while threads() > running && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(threads(), running, "threads are left");
    let child = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    assert_eq!(child, -1, "children are left");
}

/// So many seconds from now.
pub fn soon(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

pub fn millis(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

/// A file in memory that holds a number.
pub fn numbered(number: u32) -> OwnedFd {
    let fd = unsafe { libc::memfd_create(c"wire".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let bytes = number.to_le_bytes();
    let written = unsafe { libc::pwrite(fd.as_raw_fd(), bytes.as_ptr().cast(), 4, 0) };
    assert_eq!(written, 4);
    fd
}

/// The number in such a file.
pub fn number(fd: &OwnedFd) -> u32 {
    let mut bytes = [0; 4];
    let read = unsafe { libc::pread(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), 4, 0) };
    assert_eq!(read, 4);
    u32::from_le_bytes(bytes)
}

/// Bytes of a pattern, and files numbered from `first`.
pub fn parcel(bytes: usize, first: u32, fds: u32) -> Parcel {
    let bytes = (0..bytes)
        .map(|at| (at * 31 + first as usize) as u8)
        .collect();
    Parcel::new(bytes, (first..first + fds).map(numbered).collect())
}

/// It is the parcel that [`parcel`] makes of the same numbers, and its descriptors do not survive an `exec`.
#[track_caller]
pub fn is_parcel(it: &Parcel, bytes: usize, first: u32, fds: u32) {
    let expected: Vec<u8> = (0..bytes)
        .map(|at| (at * 31 + first as usize) as u8)
        .collect();
    assert!(it.bytes == expected, "{} bytes, or others", it.bytes.len());
    let numbers: Vec<u32> = it.fds.iter().map(number).collect();
    assert_eq!(numbers, (first..first + fds).collect::<Vec<_>>());
    for fd in &it.fds {
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
    }
}

/// A folder that goes with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let mut template = std::env::temp_dir()
            .join("wire-XXXXXX")
            .into_os_string()
            .into_encoded_bytes();
        template.push(0);
        let made = unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) };
        assert!(!made.is_null(), "{}", std::io::Error::last_os_error());
        template.pop();
        Folder(PathBuf::from(String::from_utf8(template).unwrap()))
    }

    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// This program again, in a part; it writes lines.
pub struct Other {
    pub child: Child,
    lines: BufReader<ChildStdout>,
}

impl Other {
    pub fn start(role: &str) -> Other {
        Other::with_stdin(role, Stdio::null())
    }

    /// With something connected to its standard input.
    pub fn with_stdin(role: &str, stdin: impl Into<Stdio>) -> Other {
        let mut command = support::again(role).unwrap();
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Other { child, lines }
    }

    /// The next line, without its end; empty when there is no more.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// All that it has still to say; it ended well.
    #[track_caller]
    pub fn ends(mut self) -> String {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {rest}");
        rest.trim_end().to_owned()
    }
}
