//! Suspending and resuming against the raw driver calls, taken in turns in one run.
//!
//! On a machine with a GPU the driver is the real one and the figures are those of the README; without one it says so
//! and goes through the same motions on the simulated driver with little memory, whose times mean nothing. Figures are
//! medians, ratios are of medians of the same run.
#![allow(clippy::undocumented_unsafe_blocks, missing_docs)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::suspend::{Backup, Group, Key};
use cuda_vmm::sys::{
    CUmemAccessDesc, CUmemAccess_flags, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUresult, CUstream, DriverCalls,
};
use cuda_vmm::{Access, AllocationProps, Driver, Reservation};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

struct Machine {
    driver: Driver,
    /// What a real machine's sizes are divided by here.
    less: usize,
    rounds: usize,
}

impl Machine {
    /// The size of a handle: a granule at least.
    fn fewer(&self, handle: usize) -> usize {
        (handle / self.less).max(2 * MIB)
    }
}

fn main() -> ExitCode {
    let machine = match Driver::load() {
        Ok(driver) if driver.device_count() > 0 => Machine {
            driver,
            less: 1,
            rounds: 7,
        },
        missing => {
            if std::env::var_os("CUDA_VMM_REQUIRE_GPU").is_some_and(|value| value == "1") {
                eprintln!("suspend: CUDA_VMM_REQUIRE_GPU is 1, but there is no GPU");
                return ExitCode::FAILURE;
            }
            println!("SKIPPED: what follows is the simulated driver, and its times mean nothing: {missing:?}");
            let device = SimDevice::new().memory(GIB as u64);
            let sim = Simulation::builder().device(device).build().unwrap();
            Machine {
                driver: Driver::simulated(&sim).unwrap(),
                less: 128,
                rounds: 3,
            }
        }
    };
    let device = machine.driver.device(0).unwrap();
    let _context = device.make_current().unwrap();
    println!("device: {}", device.name().unwrap());
    for handle in [GIB, 64 * MIB, 2 * MIB] {
        nothing_kept(&machine, 16 * GIB / machine.less, machine.fewer(handle));
    }
    for handle in [GIB, 64 * MIB, 2 * MIB] {
        kept(&machine, 4 * GIB / machine.less, machine.fewer(handle));
    }
    for block in [32, 64, 128, 256, 512, 4096] {
        first_cycle(
            &machine,
            4 * GIB / machine.less,
            (block * MIB / machine.less).max(2 * MIB),
        );
    }
    ExitCode::SUCCESS
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn ok(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

/// A reservation that is mapped throughout, in handles of this size.
fn full(machine: &Machine, size: usize, handle: usize) -> Reservation {
    let device = machine.driver.device(0).unwrap();
    let props = AllocationProps::on(&device);
    let mut kv = Reservation::builder(size)
        .access(&device, Access::ReadWrite)
        .reserve(&machine.driver)
        .unwrap();
    for at in (0..size).step_by(handle) {
        kv.map(at, handle, &props).unwrap();
    }
    kv
}

fn grouped(
    machine: &Machine,
    size: usize,
    handle: usize,
    backup: Backup,
) -> (Group, Key<Reservation>) {
    let mut group = Group::new(&machine.driver);
    let kv = full(machine, size, handle);
    let key = group.add(kv, "all", backup).unwrap();
    (group, key)
}

/// The same handles by raw calls: one unmap and the releases, then create, map, and one access call.
struct Raw<'a> {
    calls: &'a Arc<dyn DriverCalls>,
    base: u64,
    size: usize,
    handle: usize,
    handles: Vec<u64>,
}

impl<'a> Raw<'a> {
    fn new(machine: &'a Machine, size: usize, handle: usize) -> Self {
        let calls = machine.driver.calls_raw();
        let mut base = 0;
        ok(unsafe { calls.cuMemAddressReserve(&mut base, size, 0, 0, 0) });
        let mut raw = Raw {
            calls,
            base,
            size,
            handle,
            handles: Vec::new(),
        };
        raw.fill();
        raw
    }

    fn fill(&mut self) {
        let location = CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: 0,
        };
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location,
            ..Default::default()
        };
        for at in (0..self.size).step_by(self.handle) {
            let mut handle = 0;
            unsafe {
                ok(self
                    .calls
                    .cuMemCreate(&mut handle, self.handle, &properties, 0));
                ok(self
                    .calls
                    .cuMemMap(self.base + at as u64, self.handle, 0, handle, 0));
            }
            self.handles.push(handle);
        }
        let access = CUmemAccessDesc {
            location,
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        ok(unsafe { self.calls.cuMemSetAccess(self.base, self.size, &access, 1) });
    }

    fn empty(&mut self) {
        ok(unsafe { self.calls.cuMemUnmap(self.base, self.size) });
        for handle in self.handles.drain(..) {
            ok(unsafe { self.calls.cuMemRelease(handle) });
        }
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        self.empty();
        ok(unsafe { self.calls.cuMemAddressFree(self.base, self.size) });
    }
}

fn nothing_kept(machine: &Machine, size: usize, handle: usize) {
    let (mut group, key) = grouped(machine, size, handle, Backup::None);
    let mut raw = Raw::new(machine, size, handle);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..machine.rounds {
        ours.push(timed(|| {
            group.suspend(&key).unwrap();
            group.resume(&key).unwrap();
        }));
        theirs.push(timed(|| {
            raw.empty();
            raw.fill();
        }));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "suspend and resume {} MiB in handles of {} MiB, nothing kept: {:.3} ms, the raw calls {:.3} ms: {:.3}x (target 1.1x)",
        size / MIB,
        handle / MIB,
        ours * 1e3,
        theirs * 1e3,
        ours / theirs
    );
    drop(raw);
    group.close().unwrap();
}

/// Memory of the host, registered, as a pinned copy has it.
struct Pinned<'a> {
    calls: &'a Arc<dyn DriverCalls>,
    bytes: Vec<u8>,
    stream: CUstream,
}

impl<'a> Pinned<'a> {
    fn new(machine: &'a Machine, size: usize) -> Self {
        let calls = machine.driver.calls_raw();
        let mut bytes = vec![1; size];
        let mut stream = std::ptr::null_mut();
        unsafe {
            ok(calls.cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), size, 1));
            ok(calls.cuStreamCreate(&mut stream, 1));
        }
        Pinned {
            calls,
            bytes,
            stream,
        }
    }

    fn download(&mut self, from: u64) {
        let (to, size) = (self.bytes.as_mut_ptr().cast(), self.bytes.len());
        unsafe {
            ok(self.calls.cuMemcpyDtoHAsync_v2(to, from, size, self.stream));
            ok(self.calls.cuStreamSynchronize(self.stream));
        }
    }

    fn upload(&mut self, to: u64) {
        let (from, size) = (self.bytes.as_ptr().cast(), self.bytes.len());
        unsafe {
            ok(self.calls.cuMemcpyHtoDAsync_v2(to, from, size, self.stream));
            ok(self.calls.cuStreamSynchronize(self.stream));
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        unsafe {
            ok(self.calls.cuStreamDestroy_v2(self.stream));
            ok(self
                .calls
                .cuMemHostUnregister(self.bytes.as_mut_ptr().cast()));
        }
    }
}

fn kept(machine: &Machine, size: usize, handle: usize) {
    let (group, key) = grouped(machine, size, handle, Backup::Host);
    let mut group = group.keep_host_memory(true);
    // The first cycle makes the host's memory.
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let mut pinned = Pinned::new(machine, size);
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..machine.rounds {
        let base = group.get(&key).unwrap().base();
        times[2].push(timed(|| pinned.download(base)));
        times[3].push(timed(|| pinned.upload(base)));
        times[0].push(timed(|| drop(group.suspend(&key).unwrap())));
        times[1].push(timed(|| drop(group.resume(&key).unwrap())));
    }
    let [suspend, resume, to_host, to_device] = times.map(median);
    let rate = |seconds: f64| size as f64 / seconds / 1e9;
    println!(
        "{} MiB in handles of {} MiB with a host copy, second cycle on: suspend {:.1} ms ({:.1} GB/s, pinned copy {:.1} GB/s), resume {:.1} ms ({:.1} GB/s, pinned copy {:.1} GB/s): {:.0} % of the pinned rate (target 90 %)",
        size / MIB,
        handle / MIB,
        suspend * 1e3,
        rate(suspend),
        rate(to_host),
        resume * 1e3,
        rate(resume),
        rate(to_device),
        (to_host + to_device) / (suspend + resume) * 100.0
    );
    drop(pinned);
    group.close().unwrap();
}

/// Host memory made from nothing, by blocks of several sizes; torch_memory_saver's time for the same is taken by
/// scripts/foreign/memory_saver.py.
fn first_cycle(machine: &Machine, size: usize, block: usize) {
    let (mut suspends, mut resumes) = (Vec::new(), Vec::new());
    for _ in 0..machine.rounds.min(5) {
        let (group, key) = grouped(machine, size, size.min(64 * MIB), Backup::Host);
        let mut group = group.host_block(block);
        suspends.push(timed(|| drop(group.suspend(&key).unwrap())));
        resumes.push(timed(|| drop(group.resume(&key).unwrap())));
        group.close().unwrap();
    }
    let (suspend, resume) = (median(suspends), median(resumes));
    println!(
        "{} MiB with a host copy, first cycle, blocks of {} MiB: suspend {:.1} ms, resume {:.1} ms, both {:.1} ms",
        size / MIB,
        block / MIB,
        suspend * 1e3,
        resume * 1e3,
        (suspend + resume) * 1e3
    );
}
