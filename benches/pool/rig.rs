//! A pool with one consumer in this process, memory to copy from and to, and raw copies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Consumer, Payload, Pool, Published, Publisher, Source};
use cuda_vmm::sys::{CUresult, CUstream, DriverCalls};
use cuda_vmm::wire::Name;
use cuda_vmm::{Access, AllocationProps, Driver, HandleType, Reservation};

use crate::Bench;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

pub(crate) fn ok(status: CUresult) {
    assert_eq!(status, CUresult::CUDA_SUCCESS);
}

/// Mapped memory of at least so many bytes.
pub(crate) fn memory(bench: &Bench, size: usize, props: &AllocationProps) -> Reservation {
    let size = size.next_multiple_of(bench.granule);
    let mut memory = Reservation::builder(size)
        .access(&bench.device, Access::ReadWrite)
        .reserve(&bench.driver)
        .expect("reserve");
    memory.map(0, size, props).expect("map");
    memory
}

/// Memory as the pool's own is: shareable.
pub(crate) fn shareable(bench: &Bench, size: usize) -> Reservation {
    let props = AllocationProps::on(&bench.device).shareable_as(HandleType::PosixFd.into());
    memory(bench, size, &props)
}

pub(crate) fn plain(bench: &Bench, size: usize) -> Reservation {
    memory(bench, size, &AllocationProps::on(&bench.device))
}

pub(crate) fn serve(bench: &Bench, size: usize, slices: usize) -> (Pool, String) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("cuda-vmm bench pool {} {number}", std::process::id());
    let pool = Pool::builder(&bench.device, size, 1)
        .slices(slices)
        .serve(&Name::new(&name))
        .expect("serve");
    (pool, name)
}

/// The end of every wait: none of them takes as long.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

pub(crate) struct Rig {
    pub pool: Pool,
    /// Behind the default stream.
    pub publisher: Publisher,
    /// Its sources are ready.
    pub ready: Publisher,
    pub consumer: Consumer,
    pub source: Reservation,
}

impl Rig {
    pub fn open(bench: &Bench, size: usize, slices: usize, source: usize) -> Rig {
        let (pool, name) = serve(bench, size, slices);
        Rig {
            publisher: pool.publisher(),
            ready: pool.publisher().with_ready_sources(),
            consumer: Consumer::attach(&bench.device, &Name::new(&name), 0).expect("attach"),
            source: plain(bench, source),
            pool,
        }
    }

    pub fn payload(&self, offset: usize, size: usize) -> Payload<'_> {
        let view = self.source.view(offset, size).expect("mapped");
        Payload::bytes(Source::view(&view))
    }

    pub fn cancel(&self, published: &[Published]) {
        for published in published {
            let open = self.publisher.cancel(published.id()).expect("of this pool");
            assert_eq!(open, 0);
        }
    }

    pub fn close(self) {
        self.consumer.close().expect("no lease is open");
        let counters = self.pool.close(soon()).expect("close");
        assert_eq!(counters.busy, 0);
        self.source.close().expect("close");
    }
}

/// The driver's own copies, on a stream of their own.
pub(crate) struct Raw {
    pub calls: Arc<dyn DriverCalls>,
    pub stream: CUstream,
}

impl Raw {
    /// A context must be current.
    pub fn new(driver: &Driver) -> Raw {
        let calls = driver.calls_raw().clone();
        let mut stream = std::ptr::null_mut();
        ok(unsafe { calls.cuStreamCreate(&mut stream, NON_BLOCKING) });
        Raw { calls, stream }
    }

    pub fn enqueue(&self, to: u64, from: u64, size: usize) {
        ok(unsafe { self.calls.cuMemcpyDtoDAsync_v2(to, from, size, self.stream) });
    }

    pub fn wait(&self) {
        ok(unsafe { self.calls.cuStreamSynchronize(self.stream) });
    }

    pub fn copy(&self, to: u64, from: u64, size: usize) {
        self.enqueue(to, from, size);
        self.wait();
    }

    /// Fills memory, and waits for it.
    pub fn fill(&self, address: u64, value: u8, size: usize) {
        ok(unsafe { self.calls.cuMemsetD8_v2(address, value, size) });
        ok(unsafe { self.calls.cuCtxSynchronize() });
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        ok(unsafe { self.calls.cuStreamDestroy_v2(self.stream) });
    }
}
