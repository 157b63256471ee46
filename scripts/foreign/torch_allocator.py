"""The allocator for PyTorch without PyTorch: its C functions, and the driver's own copies to see what memory holds.

    python3 scripts/foreign/torch_allocator.py LIB

LIB is libcuda_vmm_torch.so. On whatever driver the dynamic linker finds as libcuda.so.1: the simulated one as a
library, as scripts/run-foreign has it, or a GPU's.
"""

import ctypes
import os
import sys

from check import check, finish

MIB = 1 << 20
UNIT = 32 * MIB
KEEP, DROP = 1, 0

vmm = ctypes.CDLL(os.path.abspath(sys.argv[1]))
for name, result, arguments in (
    ("malloc", ctypes.c_void_p, (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)),
    ("free", None, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)),
    ("suspend", ctypes.c_int64, (ctypes.c_int,)),
    ("resume", ctypes.c_int, ()),
    ("trim", ctypes.c_int64, ()),
    ("bytes", ctypes.c_int64, (ctypes.c_int,)),
    ("error", ctypes.c_size_t, (ctypes.c_char_p, ctypes.c_size_t)),
):
    function = getattr(vmm, "cuda_vmm_" + name)
    function.restype, function.argtypes = result, arguments

cuda = ctypes.CDLL("libcuda.so.1")


def driver(call, *arguments):
    status = getattr(cuda, call)(*arguments)
    if status != 0:
        check(call, status, 0)
        finish("torch_allocator")


def start_driver():
    driver("cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver("cuDeviceGet", ctypes.byref(device), 0)
    driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver("cuCtxSetCurrent", context)


def write(address, contents):
    driver("cuMemcpyHtoD_v2", ctypes.c_uint64(address), contents, ctypes.c_size_t(len(contents)))


def read(address, size):
    contents = ctypes.create_string_buffer(size)
    driver("cuMemcpyDtoH_v2", contents, ctypes.c_uint64(address), ctypes.c_size_t(size))
    return contents.raw


def free_memory():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def counts():
    return tuple(vmm.cuda_vmm_bytes(which) for which in range(3))


def error():
    text = ctypes.create_string_buffer(1024)
    vmm.cuda_vmm_error(text, len(text))
    return text.value.decode()


def main():
    start_driver()
    check("nothing at first", (counts(), error()), ((0, 0, 0), ""))
    one = vmm.cuda_vmm_malloc(5 * MIB, 0, None)
    two = vmm.cuda_vmm_malloc(40 * MIB, 0, None)
    check("two pieces", (two - one, counts()), (5 * MIB, (2 * UNIT, 2 * UNIT, 45 * MIB)))
    first, second = bytes(range(256)) * 4096, bytes(reversed(range(256))) * 4096
    write(one, first)
    write(two + 39 * MIB, second)

    awake = free_memory()
    check("suspended", vmm.cuda_vmm_suspend(KEEP), 2 * UNIT)
    check("counts while suspended", counts(), (2 * UNIT, 0, 45 * MIB))
    check("the device has that much more", free_memory() - awake >= 2 * UNIT - 4 * MIB, True)
    check("no memory meanwhile", (vmm.cuda_vmm_malloc(1, 0, None), error()),
          (None, "no memory is given out while it is suspended"))
    check("resumed", (vmm.cuda_vmm_resume(), counts()), (0, (2 * UNIT, 2 * UNIT, 45 * MIB)))
    check("contents", (read(one, MIB) == first, read(two + 39 * MIB, MIB) == second), (True, True))

    check("suspended without contents", (vmm.cuda_vmm_suspend(DROP), vmm.cuda_vmm_resume()), (2 * UNIT, 0))
    check("zeroes", read(one, MIB) == bytes(MIB), True)
    vmm.cuda_vmm_free(two, 40 * MIB, 0, None)
    check("a second free is told", (vmm.cuda_vmm_free(two, 40 * MIB, 0, None), error()),
          (None, f"{two:#x} with {40 * MIB} bytes cannot be freed on device 0: no piece in use starts there"))
    check("trimmed", (vmm.cuda_vmm_trim(), counts()), (UNIT, (UNIT, UNIT, 5 * MIB)))
    check("resume of what is awake", (vmm.cuda_vmm_resume(), error()),
          (-1, "it is not suspended: there is nothing to resume"))
    finish("torch_allocator")


main()
