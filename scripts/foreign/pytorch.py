"""Memory that PyTorch mapped, shared by its address and read in a process of Rust.

    cargo build --release --examples
    python3 scripts/foreign/pytorch.py target/release/examples

or `python3 pytorch.py .` where scripts/gather has laid it all out and `./run --unpack` unpacked it. Needs PyTorch with
CUDA. With `--by-hand` behind the folder the memory is made by the driver's calls in this process instead, so that all
but PyTorch itself can be tried, also on the simulated driver's library:

    scripts/build-simcuda /tmp/simcuda
    LD_LIBRARY_PATH=/tmp/simcuda python3 scripts/foreign/pytorch.py target/debug/examples --by-hand

PyTorch maps memory by itself with expandable segments alone, which this switches on unless PYTORCH_CUDA_ALLOC_CONF
says otherwise. Whether it makes that memory for sharing is its own affair and differs by version; where it does not,
the last line gives the library's reason. The last line says how it went; the status is 0 if all was as it should be.
"""

import ctypes
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20


class ByPyTorch:
    """Tensors."""

    def __init__(self):
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        import torch

        self.torch = torch
        self.tensors = []
        print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}")
        print(f"PYTORCH_CUDA_ALLOC_CONF={os.environ['PYTORCH_CUDA_ALLOC_CONF']}")

    def counting(self, size):
        torch = self.torch
        counted = torch.arange(251, dtype=torch.uint8, device="cuda:0")
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda:0")
        whole = size // 251 * 251
        tensor[:whole].view(-1, 251).copy_(counted)
        tensor[whole:].copy_(counted[: size - whole])
        torch.cuda.synchronize()
        self.tensors.append(tensor)
        return tensor.data_ptr()

    def fill(self, byte):
        self.tensors[-1].fill_(byte)
        self.torch.cuda.synchronize()


class Location(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Driver:
    """The driver's own calls, in this process and its current context."""

    def __init__(self):
        self.symbols = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        code = getattr(self.symbols, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} answered {code}")

    def ordinary(self, size):
        """Memory that no virtual memory management made."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def mapped(self, pieces, size, handle_types):
        """So many allocations of this size side by side, each made for these kinds of handles."""
        u64, size_t = ctypes.c_uint64, ctypes.c_size_t
        properties = Properties(1, handle_types, Location(1, 0))
        base = u64()
        self.call("cuMemAddressReserve", ctypes.byref(base), size_t(pieces * size), size_t(0), u64(0), u64(0))
        for at in range(pieces):
            handle = u64()
            self.call("cuMemCreate", ctypes.byref(handle), size_t(size), ctypes.byref(properties), u64(0))
            self.call("cuMemMap", u64(base.value + at * size), size_t(size), size_t(0), handle, u64(0))
            self.call("cuMemRelease", handle)
        access = (ctypes.c_int * 3)(1, 0, 3)
        self.call("cuMemSetAccess", base, size_t(pieces * size), access, size_t(1))
        return base.value


class ByHand:
    """The same by the driver's own calls: 4 MiB an allocation, the first not from its start."""

    def __init__(self):
        self.driver = Driver()
        context = ctypes.c_void_p()
        self.driver.call("cuInit", 0)
        self.driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.driver.call("cuCtxSetCurrent", context)
        print("memory made by hand")

    def counting(self, size):
        pieces = -(-(size + 4096) // (4 * MIB))
        self.last = self.driver.mapped(pieces, 4 * MIB, 1) + 4096, size
        counted = (bytes(range(251)) * (size // 251 + 1))[:size]
        self.driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.last[0]), counted, ctypes.c_size_t(size))
        return self.last[0]

    def fill(self, byte):
        address, size = self.last
        self.driver.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size))


class Sharing:
    """The library of examples/share_pointers, and the reader."""

    def __init__(self, folder):
        self.symbols = ctypes.CDLL(os.path.join(folder, "libshare_pointers.so"))
        serve, stop = self.symbols.share_pointers_serve, self.symbols.share_pointers_stop
        serve.restype, stop.restype = ctypes.c_void_p, ctypes.c_uint64
        size_t = ctypes.c_size_t
        text = ctypes.c_char_p
        serve.argtypes = (ctypes.c_uint64, size_t, text, ctypes.POINTER(size_t), text, size_t)
        stop.argtypes = (ctypes.c_void_p,)
        names = ("read_pointers", "example-read_pointers")
        readers = [os.path.join(folder, name) for name in names]
        self.reader = next(reader for reader in readers if os.path.exists(reader))
        self.sockets = tempfile.TemporaryDirectory()

    def serve(self, address, size):
        """What is being served, where, and how far into the span; or None, and why."""
        path = os.path.join(self.sockets.name, f"{address:x}")
        lead, text = ctypes.c_size_t(), ctypes.create_string_buffer(1000)
        served = self.symbols.share_pointers_serve(
            address, size, path.encode(), ctypes.byref(lead), text, len(text)
        )
        return served, path, lead.value, text.value.decode()

    def read(self, path, lead, size, contents):
        """Whether another process reads this there."""
        words = [self.reader, path, str(lead), str(size), str(contents)]
        read = subprocess.run(words, capture_output=True, text=True, timeout=120)
        for line in (read.stdout + read.stderr).splitlines():
            print(f"  {line}")
        return read.returncode == 0


def run(memory, sharing):
    # Within one small piece; over several; and large.
    for size in (300_000, 30 * MIB + 12_345, 200 * MIB):
        address = memory.counting(size)
        served, path, lead, words = sharing.serve(address, size)
        if not served:
            return f"not shared: {words}"
        print(words)
        if not sharing.read(path, lead, size, "counting"):
            return "another process reads something else"
        # It is the memory itself, and no copy.
        memory.fill(7)
        if not sharing.read(path, lead, size, 7):
            return "another process does not see what was written later"
        had = sharing.symbols.share_pointers_stop(served)
        if had != 2:
            return f"{had} had it, and not 2"
    driver = Driver()
    for what, address in (
        ("ordinary memory", driver.ordinary(8 * MIB)),
        ("memory that was not made for sharing", driver.mapped(2, 4 * MIB, 0)),
    ):
        served, _, _, words = sharing.serve(address, MIB)
        if served:
            return f"{what} was shared"
        print(f"{what} is refused: {words}")
    return None


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    try:
        memory = ByHand() if "--by-hand" in sys.argv[2:] else ByPyTorch()
        wrong = run(memory, Sharing(folder))
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    print("pytorch: " + (f"FAILED: {wrong}" if wrong else "all as it should be"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
