//! Work that is still running when the case goes on.

use cuda_vmm::sys::{CUresult, CUstream, CUstream_flags};

use crate::codes::call;
use crate::gpu::Gpu;
use crate::owned::{Handle, Range};

/// How often the range is written over: on a device of 4 TB/s, some 40 ms for the bytes below.
const ROUNDS: u8 = 10;

/// A stream that writes to a range, and goes on doing so until [`finish`](Busy::finish) is called or, on real
/// hardware, the many bytes are written.
pub struct Busy<'g> {
    gpu: &'g Gpu,
    pub stream: CUstream,
    pub range: Range<'g>,
    pub memory: Handle<'g>,
}

impl<'g> Busy<'g> {
    pub fn start(gpu: &'g Gpu) -> Self {
        let granules = match gpu.driver().simulated() {
            true => 4,
            false => (16 << 30).min(gpu.free_bytes() / 2) / gpu.granularity,
        };
        let range = gpu.reserve(granules);
        let memory = gpu.back(range.base, granules);
        // The first fill loads what fills need, which would otherwise wait for the stream.
        gpu.fill(range.base, 1, gpu.granularity);

        let mut stream: CUstream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        call!(gpu, cuStreamCreate(&mut stream, flags) => SUCCESS);
        gpu.driver().hold_stream(stream);
        for round in 0..ROUNDS {
            call!(gpu, cuMemsetD8Async(range.base, round, range.size, stream) => SUCCESS);
        }
        Busy {
            gpu,
            stream,
            range,
            memory,
        }
    }

    /// Lets the work run and says how it ended.
    pub fn finish(&self) -> CUresult {
        self.gpu.driver().release_stream(self.stream);
        unsafe { self.gpu.calls().cuStreamSynchronize(self.stream) }
    }
}
