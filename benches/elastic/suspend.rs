//! Suspending and resuming, against the raw calls and against a pinned copy.

use std::cell::RefCell;
use std::sync::Arc;

use cuda_vmm::suspend::{Backup, Group, Key};
use cuda_vmm::sys::{CUstream, DriverCalls};
use cuda_vmm::{Access, AllocationProps, Driver, Reservation};

use crate::raw::{ok, Raw};
use crate::report::{in_turns, median, microseconds, Report, Target};
use crate::Bench;

/// `CU_MEMHOSTREGISTER_PORTABLE` and `CU_STREAM_NON_BLOCKING`.
const PORTABLE: u32 = 1;
const NON_BLOCKING: u32 = 1;

pub(crate) fn compare(bench: &Bench, report: &mut Report) {
    let handles = bench.pick([1 << 30, 64 << 20, 2 << 20], [16 << 20, 4 << 20, 2 << 20]);
    for handle in handles {
        nothing_kept(bench, report, handle);
    }
    for handle in handles {
        with_a_copy(bench, report, handle);
    }
    for block in bench.pick([32, 64, 128, 256, 512, 4096], [2, 4, 6, 8, 16, 32]) {
        first_cycle(bench, report, block << 20);
    }
}

/// A group of one member, mapped throughout in handles of this size.
fn grouped(bench: &Bench, size: usize, handle: usize, backup: Backup) -> (Group, Key<Reservation>) {
    let props = AllocationProps::on(&bench.device);
    let builder = Reservation::builder(size).access(&bench.device, Access::ReadWrite);
    let mut kv = builder.reserve(&bench.driver).expect("reserve");
    for at in (0..size).step_by(handle) {
        kv.map(at, handle, &props).expect("map");
    }
    let mut group = Group::new(&bench.driver);
    let key = group.add(kv, "all", backup).expect("the same driver");
    (group, key)
}

/// Nothing kept, against unmap and release, create, map and access with the same handles.
fn nothing_kept(bench: &Bench, report: &mut Report, handle: usize) {
    let size = bench.pick(16 << 30, 128 << 20);
    let (mut group, key) = grouped(bench, size, handle, Backup::None);
    let raw = Raw::reserve(&bench.driver, size, 0);
    let mut handles = raw.fill(handle);
    let [ours, theirs] = in_turns(
        bench.pick(15, 5),
        [
            &mut || {
                microseconds(|| {
                    group.suspend(&key).expect("suspend");
                    group.resume(&key).expect("resume");
                })
            },
            &mut || {
                microseconds(|| {
                    raw.empty(handles.drain(..));
                    handles = raw.fill(handle);
                })
            },
        ],
    );
    let (mib, each) = (size >> 20, handle >> 20);
    report.row(
        &format!("suspend and resume {mib} MiB in handles of {each} MiB, nothing kept"),
        ours,
        theirs,
        ours / theirs,
        Target::AtMost(1.1),
    );
    raw.empty(handles.drain(..));
    raw.free();
    group.close().expect("close");
}

/// Memory of the host, registered: what a pinned copy goes to.
struct Pinned {
    calls: Arc<dyn DriverCalls>,
    bytes: Vec<u8>,
    stream: CUstream,
}

impl Pinned {
    fn new(driver: &Driver, size: usize) -> Pinned {
        let calls = driver.calls_raw().clone();
        let mut bytes = vec![1; size];
        let mut stream = std::ptr::null_mut();
        unsafe {
            ok(calls.cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), size, PORTABLE));
            ok(calls.cuStreamCreate(&mut stream, NON_BLOCKING));
        }
        Pinned {
            calls,
            bytes,
            stream,
        }
    }

    /// To the host, and back.
    fn round_trip(&mut self, device: u64) {
        let (host, size) = (self.bytes.as_mut_ptr().cast(), self.bytes.len());
        let calls = &self.calls;
        unsafe {
            ok(calls.cuMemcpyDtoHAsync_v2(host, device, size, self.stream));
            ok(calls.cuStreamSynchronize(self.stream));
            ok(calls.cuMemcpyHtoDAsync_v2(device, host, size, self.stream));
            ok(calls.cuStreamSynchronize(self.stream));
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let host = self.bytes.as_mut_ptr().cast();
        unsafe {
            ok(self.calls.cuStreamDestroy_v2(self.stream));
            ok(self.calls.cuMemHostUnregister(host));
        }
    }
}

/// With a host copy, from the second cycle on, against a pinned copy of the same bytes.
fn with_a_copy(bench: &Bench, report: &mut Report, handle: usize) {
    let size = bench.pick(4 << 30, 32 << 20);
    let (group, key) = grouped(bench, size, handle, Backup::Host);
    let group = RefCell::new(group.keep_host_memory(true));
    let mut pinned = Pinned::new(&bench.driver, size);
    let [ours, theirs] = in_turns(
        bench.pick(7, 3),
        [
            &mut || {
                let mut group = group.borrow_mut();
                microseconds(|| {
                    group.suspend(&key).expect("suspend");
                    group.resume(&key).expect("resume");
                })
            },
            &mut || {
                let base = group.borrow().get(&key).expect("it is awake").base();
                microseconds(|| pinned.round_trip(base))
            },
        ],
    );
    let (mib, each) = (size >> 20, handle >> 20);
    report.row(
        &format!("suspend and resume {mib} MiB in handles of {each} MiB with a host copy, second cycle on"),
        ours,
        theirs,
        theirs / ours,
        Target::AtLeast(0.9),
    );
    drop(pinned);
    group.into_inner().close().expect("close");
}

/// With host memory made from nothing, by blocks of this size; `theirs` is the part of it that the resume takes. What
/// torch_memory_saver takes for the same is asked of it by scripts/foreign/memory_saver.py.
fn first_cycle(bench: &Bench, report: &mut Report, block: usize) {
    let size = bench.pick(4 << 30, 32 << 20);
    let (mut suspends, mut resumes) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (group, key) = grouped(bench, size, size.min(64 << 20), Backup::Host);
        let mut group = group.host_block(block);
        suspends.push(microseconds(|| drop(group.suspend(&key).expect("suspend"))));
        resumes.push(microseconds(|| drop(group.resume(&key).expect("resume"))));
        group.close().expect("close");
    }
    let (suspend, resume) = (median(suspends), median(resumes));
    let (mib, each) = (size >> 20, block >> 20);
    report.row(
        &format!("suspend (crate) and resume (raw) {mib} MiB with a host copy, first cycle, host blocks of {each} MiB"),
        suspend,
        resume,
        suspend / resume,
        Target::None,
    );
}
