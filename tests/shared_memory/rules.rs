//! What sharing asks of the system: no right to look into another process; and what programs that are started get of
//! it: nothing.

use std::process::Command;

use cuda_vmm::share::wire::{pair, SocketKind};

use crate::side::Side;
use crate::span::{attached_read_only, checked, made, parcel, receive, send, stdin};
use crate::surroundings::Other;
use crate::{Case, Part};

pub const CASES: &[Case] = &[
    ("rules::no_right_to_look_into_other_processes", confined),
    (
        "rules::a_program_that_is_started_has_none_of_it",
        nothing_inherited,
    ),
];

pub const PARTS: &[Part] = &[
    ("confined_importer", |side, _| confined_importer(side)),
    ("confined_exporter", |side, _| confined_exporter(side)),
];

/// The ways into another process that containers deny.
const DENIED: [libc::c_long; 5] = [
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
];

/// From here on these calls are answered EPERM, as a container's filter does.
fn confine() {
    let statement = |code: u32, k, jf| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let answer = |what| statement(libc::BPF_RET | libc::BPF_K, what, 0);
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in DENIED {
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(statement(equal, call as u32, 1));
        filter.push(answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    unsafe {
        // Nor may anybody look into this one.
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0), -1);
    }
}

fn confined(side: &Side) {
    let (here, there) = pair(SocketKind::Packets).unwrap();
    let exporter = Other::with_stdin(&side.role("confined_exporter"), here);
    let importer = Other::with_stdin(&side.role("confined_importer"), there);
    let sum = exporter.ends();
    assert!(!sum.is_empty());
    assert_eq!(importer.ends(), sum);
}

fn confined_exporter(side: &Side) {
    confine();
    let kv = made(side, 3, side.g);
    send(stdin(), &kv).unwrap();
    println!("{:x}", checked(&kv, 0));
    kv.close().unwrap();
}

fn confined_importer(side: &Side) {
    confine();
    let span = attached_read_only(side, receive(stdin()));
    println!("{:x}", checked(&span, 0));
    span.close().unwrap();
}

/// Neither what was exported, nor what was received, nor what was imported is open in a child.
fn nothing_inherited(side: &Side) {
    // What this process has inherited itself, a child of it inherits too.
    let inherited = || {
        let child = Command::new("ls")
            .args(["-l", "/proc/self/fd"])
            .output()
            .unwrap();
        let links = String::from_utf8(child.stdout).unwrap();
        let leads_to = links.lines().filter_map(|line| line.split_once("-> "));
        // The pipes and the folder are the child's own.
        let leads_to =
            leads_to.filter(|(_, to)| !to.contains("/proc/") && !to.starts_with("pipe:"));
        leads_to.map(|(_, to)| to.to_owned()).collect::<Vec<_>>()
    };
    let before = inherited();
    let kv = made(side, 3, side.g);
    let exported = parcel(&kv, cuda_vmm::Access::Read);
    let (here, there) = pair(SocketKind::Stream).unwrap();
    let exporter = Other::with_stdin(&side.role("honest_exporter"), there);
    let received = receive(here);
    assert_eq!(received.parcel().fds.len(), 4);
    assert_eq!(inherited(), before, "with descriptors");
    let span = attached_read_only(side, received);
    assert_eq!(inherited(), before, "with an import");
    drop(exported);
    let sum = checked(&span, 0);
    span.close().unwrap();
    assert_eq!(exporter.ends(), format!("{sum:x}"));
    kv.close().unwrap();
}
