"""Copies within the memory of one device, by PyTorch and by the driver: each returns a round that copies and waits."""

import time

from pool_consumer import must


class Copies:
    """From one tensor to another, on one stream. The rounds return the nanoseconds of copy and wait."""

    def __init__(self, driver, stream, target, source):
        self.driver, self.stream, self.tensors = driver, stream, (target, source)
        self.handle = driver.CUstream(stream.cuda_stream)
        self.pointers = [driver.CUdeviceptr(tensor.data_ptr()) for tensor in self.tensors]

    def by_torch(self, size):
        """Must run with the stream as PyTorch's current one."""
        target, source = (tensor[:size] for tensor in self.tensors)

        def one():
            start = time.perf_counter_ns()
            target.copy_(source, non_blocking=True)
            self.stream.synchronize()
            return (time.perf_counter_ns() - start,)

        return one

    def by_driver(self, size):
        target, source = self.pointers

        def one():
            start = time.perf_counter_ns()
            copied = self.driver.cuMemcpyDtoDAsync(target, source, size, self.handle)
            waited = self.driver.cuStreamSynchronize(self.handle)
            took = time.perf_counter_ns() - start
            must(copied, "copy")
            must(waited, "synchronise")
            return (took,)

        return one
