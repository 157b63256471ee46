//! The ledger-only driver asks nothing of the system but memory for its books, so that it runs where there is no
//! system: under Miri.
//!
//! A process confines itself to the system calls that an allocator, the standard library's maps and an ending process
//! make, then uses the crate on the driver. The kernel kills it at the first other one, as it must kill one that uses
//! the driver with real memory.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;

use cuda_vmm::sim::{Simulation, SimulationBuilder};
use cuda_vmm::{Access, AllocationProps, Driver, Fence, HandleTypes, Reservation};
use libc::sock_filter;
use libtest_mimic::{Arguments, Failed, Trial};

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "support/mod.rs"]
mod support;

const G: usize = 2 << 20;

/// What an allocator, a hash map's seed, a panic and the end of a process need. `mmap` is looked at more closely.
const ALLOWED: [libc::c_long; 14] = [
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_getrandom,
    libc::SYS_write,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit_group,
];

/// Where the kernel lays the number and the fourth argument of a call, for a filter to see.
const NUMBER: u32 = 0;
const FLAGS: u32 = 16 + 3 * 8;

fn confine() {
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let answer = |what| statement(libc::BPF_RET | libc::BPF_K, what);
    // Goes on with the next statement where equal, else skips that many.
    let unless_equal_skip = |value: u32, skip| sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: skip,
        k: value,
    };
    let mut filter = vec![load(NUMBER)];
    for call in ALLOWED {
        filter.push(unless_equal_skip(call as u32, 1));
        filter.push(answer(libc::SECCOMP_RET_ALLOW));
    }
    // Private memory of no file, where the system likes: what an allocator asks for.
    filter.push(unless_equal_skip(libc::SYS_mmap as u32, 3));
    filter.push(load(FLAGS));
    filter.push(unless_equal_skip(
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u32,
        1,
    ));
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    filter.push(answer(libc::SECCOMP_RET_KILL_PROCESS));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// A bit of everything.
fn use_the_crate(builder: SimulationBuilder) {
    let sim = builder.build().unwrap();
    let driver = Driver::simulated(&sim).unwrap();
    let device = driver.device(0).unwrap();
    let props = AllocationProps::on(&device);
    let mut kv = Reservation::builder(16 * G)
        .access(&device, Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    let first = kv.map(0, 2 * G, &props).unwrap();
    let refused = props.clone().shareable_as(HandleTypes::FABRIC).create(G);
    assert!(refused.unwrap_err().is_not_permitted());
    let page = props.create(G).unwrap();
    for offset in [2 * G, 3 * G] {
        kv.map_existing(offset, &page).unwrap();
    }
    kv.write(G, &[7; 4096]).unwrap();
    kv.copy_within(3 * G, G, 4096).unwrap();
    let mut bytes = [0; 4096];
    kv.read(2 * G, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
    kv.fill(0, 4 * G, 9).unwrap();
    kv.set_access(0, 2 * G, &device, Access::Read).unwrap();
    assert_eq!(kv.access_of(0, &device).unwrap(), Access::Read);
    assert!(driver.is_vmm(kv.base()).unwrap());
    kv.unmap_after(first, Fence::default_stream(&device))
        .unwrap();
    drop(page);
    kv.close().unwrap();
    drop((props, device, driver));
    assert!(sim.snapshot().is_empty(), "{}", sim.snapshot());
}

const LEDGER: &str = "ledger";
const MEMORY: &str = "memory";

fn asks_the_system_for_nothing() -> Result<(), Failed> {
    Ok(support::play(LEDGER)?)
}

fn real_memory_is_noticed() -> Result<(), Failed> {
    let ended = support::perform(MEMORY)?;
    match ended.status.signal() {
        Some(libc::SIGSYS) => Ok(()),
        _ => Err(format!("it ended with {}", ended.status).into()),
    }
}

fn main() -> ExitCode {
    let builder = match support::role().as_deref() {
        Some(LEDGER) => Simulation::builder().ledger_only(),
        Some(MEMORY) => Simulation::builder(),
        Some(other) => unreachable!("no part is called {other}"),
        None => {
            let trials = vec![
                Trial::test("asks_the_system_for_nothing", asks_the_system_for_nothing),
                Trial::test("real_memory_is_noticed", real_memory_is_noticed),
            ];
            return libtest_mimic::run(&Arguments::from_args(), trials).exit_code();
        }
    };
    confine();
    use_the_crate(builder);
    // Without what a process usually does at its end.
    unsafe { libc::_exit(0) }
}
