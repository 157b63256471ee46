"""Measures SGLang's shared pool over CUDA VMM on one GPU, as the peer of this crate's pool, and plain copies beside it.

    python3 pool_peer.py FOLDER [OUT.tsv]
    python3 pool_peer.py FOLDER --dry-run        without a GPU: imports, both processes, the mailbox, and the plan

FOLDER holds cuda_vmm_utils.py and cuda_vmm_transport_utils.py of sglang 0.5.23, as published. pool_consumer.py,
pool_stand_ins.py, raw_copies.py, stand_ins.py and mailbox.py are beside this script. Needs Linux on x86-64, a GPU
with 8 GiB free, PyTorch and cuda-bindings. Prints lines of name and figure, separated by a tab: microseconds, or GB/s
(1e9 bytes a second) where the name ends with GB/s. Lines with # name the machine and what of SGLang is replaced. The
status is 0 only if every figure of the plan is measured and the consumer read the bytes that the producer wrote.

Every figure is a median, unless stated. Before it, the same round runs at least 3 times and for at least 0.2 s; this
is not counted. There are two processes: this one is the producer, and it starts the consumer as a new interpreter.
Each has its own CUDA context on the same GPU. Both spin on the mailbox while they wait. How each figure is taken:

publish               A CUDA tensor of bytes is filled, and the device is synchronised. Timed: wrap_tensor of the
                      pool, which returns a ticket after the copy into the pool is complete. Each slice is cancelled
                      afterwards, so that every round finds the pool empty.
pickle, unpickle      pickle.dumps of a ticket, and pickle.loads of its bytes, in the producer. Each ticket that is
                      sent costs both.
first reconstruct     The first ticket of the pool at the consumer. Timed like reconstruct. It includes the file
                      descriptor from the broker thread, the import, the mapping, and the first use of PyTorch's
                      kernels. One measurement, no median. The producer sleeps meanwhile, so that its broker thread
                      can run.
reconstruct           Timed in the consumer, from the unpickled ticket until reconstruct_on_target_device(0) returned
                      and the current stream is synchronised: a tensor from PyTorch's cache, the copy, the
                      acknowledgement.
visible               The producer reads CLOCK_MONOTONIC, publishes, and sends the ticket through the mailbox. The
                      consumer reads the same clock when the ticket is unpickled ("has the ticket"), and when the data
                      is reconstructed and the stream is synchronised ("usable"). Both figures count from the
                      producer's first reading. After each round, untimed, one recycle pass must free the slice.
recycle pass, live    The given number of 4 KiB slices is published and none is acknowledged. Timed: one call of
                      _recycle_chunks in the main thread. It frees nothing.
recycle pass, freed   The same, after the producer wrote the acknowledgement word of every slice. The pass frees all.
host memory           No pool. Timed like "visible, usable": cuMemcpyDtoHAsync into the shared block and
                      cuStreamSynchronize, one small message through the mailbox, then cuMemcpyHtoDAsync and
                      cuStreamSynchronize in the consumer, into device memory that is reused. First pageable, then
                      with the block registered by cudaHostRegister in both processes.
raw                   In the producer alone: one copy on a stream of its own and a wait for that stream, by
                      Tensor.copy_ of PyTorch, and by cuMemcpyDtoDAsync and cuStreamSynchronize of cuda-bindings.

A rate is the size of the data, counted once, divided by the median time. The recycler thread never runs: it waits its
interval before each pass, the first one included, and the pools have an interval of one hour. Passes are made by
calls.
"""

import ctypes
import faulthandler
import os
import pickle
import signal
import statistics
import sys
import time

import mailbox
import pool_consumer
import pool_stand_ins
import raw_copies
import stand_ins
from pool_consumer import must

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SMALL, LARGE = 4 * KIB, (64 * MIB, GIB)
HOST_SIZES = (4 * KIB, 64 * KIB, MIB)
LIVE = (1, 64, 1024)
POOL, POOL_OF_THREE = 2304 * MIB, 256 * MIB
# What `exchange` returns, in its order.
THROUGH_POOL = ("reconstruct", "visible, has the ticket", "visible, usable")
ASLEEP = 3600.0  # Seconds between two passes of the recycler thread: none while this runs.
MANY, FEW = 300, 11
WARM = 0.2
WHOLE = 110  # Seconds until each process ends itself.


def named(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def plan():
    """The names of all figures, in their order."""
    names = [f"sglang pool, publish {named(SMALL)}, {count}" for count in ("1 consumer", "3 consumers")]
    names += ["sglang pool, pickle a ticket", "sglang pool, unpickle a ticket"]
    for count in LIVE:
        names += [f"sglang pool, recycle pass, {count} {state}" for state in ("live", "freed")]
    names += [f"sglang pool, first reconstruct {named(SMALL)}, maps the pool"]
    names += [f"sglang pool, {what} {named(SMALL)}" for what in THROUGH_POOL]
    for size in LARGE:
        names += [f"sglang pool, publish {named(size)}, GB/s", f"sglang pool, reconstruct {named(size)}, GB/s"]
    for kind in ("pageable", "pinned"):
        names += [f"host memory, {kind}, visible, usable {named(size)}" for size in HOST_SIZES]
    names += [f"raw, torch copy {named(SMALL)}", f"raw, cuMemcpyDtoDAsync {named(SMALL)}"]
    names += [f"raw, {how} {named(size)}, GB/s" for size in LARGE for how in ("torch copy", "cuMemcpyDtoDAsync")]
    return names


def medians(one, rounds):
    """Of each of the figures, in nanoseconds, that one round returns."""
    until, warm = time.monotonic() + WARM, 0
    while warm < 3 or time.monotonic() < until:
        one()
        warm += 1
    return [statistics.median(column) for column in zip(*(one() for _ in range(rounds)))]


class Producer:
    def __init__(self, transport, consumer):
        import torch
        from cuda.bindings import driver

        self.transport, self.consumer, self.torch, self.driver = transport, consumer, torch, driver
        self.rows = {}
        self.value = 0
        torch.cuda.set_device(0)
        self.source = torch.zeros(max(LARGE), dtype=torch.uint8, device="cuda:0")
        self.stream = torch.cuda.Stream(device=0)
        self.handle = driver.CUstream(self.stream.cuda_stream)
        torch.cuda.synchronize(0)
        self.pool = self.open(POOL, 1)
        self.pool_of_three = self.open(POOL_OF_THREE, 3)

    def open(self, size, consumers):
        return self.transport.CudaVmmMemoryPool(
            memory_size=size,
            recycle_interval=ASLEEP,
            base_gpu_id=0,
            consumer_count=consumers,
            allow_posix_fallback=True,
        )

    def note(self, name, figure):
        self.rows[name] = figure
        print(f"{name}\t{figure:.3f}", flush=True)

    def time(self, name, one, rounds=MANY):
        """Notes the median of the first figure of each round, in microseconds."""
        self.note(name, medians(one, rounds)[0] / 1e3)

    def rate(self, name, size, one, rounds=FEW):
        """Bytes a nanosecond are GB/s."""
        self.note(name, size / medians(one, rounds)[0])

    def fresh(self, size):
        """A tensor of so many bytes, ready, with other contents than the last time."""
        self.value = self.value % 250 + 1
        tensor = self.source[:size].fill_(self.value)
        self.torch.cuda.synchronize(0)
        return tensor

    def ticket(self, pool, tensor):
        ticket = pool.wrap_tensor(tensor)
        if not isinstance(ticket, self.transport.CudaVmmTensorTransportProxy):
            raise RuntimeError("the pool was full and fell back to a copy on the host")
        return ticket

    # ---- the pool, in this process ----

    def publish(self, pool, size):
        tensor = self.fresh(size)
        start = time.perf_counter_ns()
        ticket = pool.wrap_tensor(tensor)
        took = time.perf_counter_ns() - start
        pool.cancel_proxy(ticket)
        return (took,)

    def pickles(self):
        ticket = self.ticket(self.pool, self.fresh(SMALL))
        data = pickle.dumps(ticket)
        print(f"# a pickled ticket: {len(data)} bytes")

        def timed(run, argument):
            start = time.perf_counter_ns()
            run(argument)
            return (time.perf_counter_ns() - start,)

        self.time("sglang pool, pickle a ticket", lambda: timed(pickle.dumps, ticket))
        self.time("sglang pool, unpickle a ticket", lambda: timed(pickle.loads, data))
        self.pool.cancel_proxy(ticket)

    def recycle(self):
        start = time.perf_counter_ns()
        self.pool._recycle_chunks()
        return (time.perf_counter_ns() - start,)

    def expect_live(self, count):
        if len(self.pool.occupied_chunks) != count:
            raise RuntimeError(f"{len(self.pool.occupied_chunks)} slices are live, expected {count}")

    def recycle_live(self, count):
        tensor = self.fresh(SMALL)
        tickets = [self.ticket(self.pool, tensor) for _ in range(count)]
        self.time(f"sglang pool, recycle pass, {count} live", self.recycle, 50)
        self.expect_live(count)
        for ticket in tickets:
            self.pool.cancel_proxy(ticket)

    def recycle_freed(self, count):
        def one():
            for _ in range(count):
                ticket = self.ticket(self.pool, self.source[:SMALL])
                word = self.pool.memory_pool[ticket.control_offset : ticket.control_offset + 4]
                word.view(self.torch.int32).fill_(1)
            self.torch.cuda.synchronize(0)
            self.expect_live(count)
            took = self.recycle()
            self.expect_live(0)
            return took

        self.time(f"sglang pool, recycle pass, {count} freed", one, FEW)

    # ---- with the consumer ----

    def exchange(self, size, publish, pause=None):
        """One round: from message to data at the consumer, from publishing to message, and from publishing to data."""
        tensor = self.fresh(size)
        start = time.monotonic_ns()
        message = publish(tensor)
        received, usable, smallest, largest = self.consumer.ask(message, pause)
        if (smallest, largest) != (self.value, self.value):
            raise RuntimeError(f"the consumer read bytes from {smallest} to {largest}, expected {self.value}")
        return usable - received, received - start, usable - start

    def through_pool(self, size, pause=None):
        times = self.exchange(size, lambda tensor: self.ticket(self.pool, tensor), pause)
        self.pool._recycle_chunks()
        self.expect_live(0)
        return times

    def through_host(self, size):
        pointer, address = self.driver.CUdeviceptr(self.source.data_ptr()), self.consumer.shared.address

        def publish(_tensor):
            must(self.driver.cuMemcpyDtoHAsync(address, pointer, size, self.handle), "copy to the host")
            must(self.driver.cuStreamSynchronize(self.handle), "synchronise")
            return ("host", size)

        return self.exchange(size, publish)[2:]

    def small_through_pool(self):
        first = self.through_pool(SMALL, pause=0.001)[0]
        self.note(f"sglang pool, first reconstruct {named(SMALL)}, maps the pool", first / 1e3)
        figures = medians(lambda: self.through_pool(SMALL), MANY)
        for what, figure in zip(THROUGH_POOL, figures):
            self.note(f"sglang pool, {what} {named(SMALL)}", figure / 1e3)

    def host(self, kind):
        for size in HOST_SIZES:
            self.time(f"host memory, {kind}, visible, usable {named(size)}", lambda: self.through_host(size))

    # ---- raw copies ----

    def raw(self):
        target = self.torch.zeros(max(LARGE), dtype=self.torch.uint8, device="cuda:0")
        self.torch.cuda.synchronize(0)
        copies = raw_copies.Copies(self.driver, self.stream, target, self.source)
        with self.torch.cuda.stream(self.stream):
            self.time(f"raw, torch copy {named(SMALL)}", copies.by_torch(SMALL))
            self.time(f"raw, cuMemcpyDtoDAsync {named(SMALL)}", copies.by_driver(SMALL))
            for size in LARGE:
                self.rate(f"raw, torch copy {named(size)}, GB/s", size, copies.by_torch(size))
                self.rate(f"raw, cuMemcpyDtoDAsync {named(size)}, GB/s", size, copies.by_driver(size))

    # ---- all of it ----

    def measure(self):
        small = named(SMALL)
        self.time(f"sglang pool, publish {small}, 1 consumer", lambda: self.publish(self.pool, SMALL))
        self.time(f"sglang pool, publish {small}, 3 consumers", lambda: self.publish(self.pool_of_three, SMALL))
        self.pickles()
        for count in LIVE:
            self.recycle_live(count)
            self.recycle_freed(count)
        self.small_through_pool()
        for size in LARGE:
            self.rate(f"sglang pool, publish {named(size)}, GB/s", size, lambda: self.publish(self.pool, size))
            self.rate(f"sglang pool, reconstruct {named(size)}, GB/s", size, lambda: self.through_pool(size))
        self.host("pageable")
        pool_consumer.pin(self.torch, self.consumer.shared)
        self.consumer.ask(("pin",))
        self.host("pinned")
        self.consumer.ask(("unpin",))
        pool_consumer.unpin(self.torch, self.consumer.shared)
        self.raw()

    def close(self):
        self.torch.cuda.synchronize(0)
        self.pool.shutdown()
        self.pool_of_three.shutdown()

    def machine(self):
        torch = self.torch
        yield f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
        yield f"{torch.cuda.get_device_name(0)}, pool handles: {'FABRIC' if self.pool.use_fabric else 'POSIX_FD'}"


def dry_run(transport, consumer):
    """What needs no GPU: a ticket and other messages there and back."""
    fields = {
        "fabric_handle": None, "posix_socket_path": "\0none", "allocation_size": POOL, "data_offset": 256,
        "data_nbytes": SMALL, "control_offset": 0, "consumer_count": 1, "shape": (SMALL,), "dtype": "uint8",
    }
    ticket = transport.CudaVmmTensorTransportProxy(**fields)
    got = consumer.ask(ticket)[1]
    if got != vars(ticket):
        raise RuntimeError(f"a ticket arrived as {got}")

    def there():
        start = time.monotonic_ns()
        received, value = consumer.ask(("echo", start))
        if value != start:
            raise RuntimeError(f"sent {start}, and {value} came back")
        return (received - start,)

    took = medians(there, MANY)[0] / 1e3
    print(f"# dry run: a ticket arrives unchanged; a small message takes {took:.1f} us to arrive")
    for name in plan():
        print(f"# would measure: {name}")


def consume(folder, descriptor, dry):
    """The role of the consumer. The kernel ends the process when its parent ends; a timer ends it in any case."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit("the producer ended")
    faulthandler.dump_traceback_later(WHOLE, exit=True)
    transport = load(folder, dry)
    shared = mailbox.Shared(descriptor)
    pool_consumer.serve(transport, shared, None if dry else pool_consumer.Device(transport, shared))


def load(folder, dry):
    try:
        import torch  # noqa: F401
    except ImportError:
        if not dry:
            raise
        stand_ins.install()
    return pool_stand_ins.load(folder)


def produce(folder, out, dry):
    faulthandler.dump_traceback_later(WHOLE, exit=True)
    consumer = pool_consumer.Consumer(os.path.abspath(__file__), folder, dry)
    try:
        transport = load(folder, dry)
        for line in [*pool_stand_ins.origin(folder), *(f"replaced: {line}" for line in pool_stand_ins.REPLACED)]:
            print(f"# {line}")
        if consumer.receive(pool_consumer.START) != "ready":
            raise RuntimeError("the consumer is not ready")
        if dry:
            dry_run(transport, consumer)
            consumer.end()
            return
        producer = Producer(transport, consumer)
        for line in producer.machine():
            print(f"# {line}", flush=True)
        producer.measure()
        consumer.end()
        producer.close()
    finally:
        consumer.kill()
    if list(producer.rows) != plan():
        raise RuntimeError(f"the figures differ from the plan: {sorted(set(producer.rows) ^ set(plan()))}")
    if out:
        with open(out, "w", encoding="utf-8") as file:
            file.writelines(f"{name}\t{figure:.3f}\n" for name, figure in producer.rows.items())
    print(f"# pool_peer: {len(producer.rows)} figures")


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--consumer"] and len(arguments) == 4:
        return consume(arguments[1], int(arguments[2]), arguments[3] == "1")
    dry = "--dry-run" in arguments
    arguments = [argument for argument in arguments if argument != "--dry-run"]
    if len(arguments) not in (1, 2):
        sys.exit(__doc__)
    produce(os.path.abspath(arguments[0]), arguments[1] if len(arguments) == 2 else None, dry)
    return None


if __name__ == "__main__":
    main()
