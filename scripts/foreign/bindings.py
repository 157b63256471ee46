"""NVIDIA's cuda-bindings on the simulated driver: every answer, and what the driver holds afterwards."""

import os

from check import check, finish
from cuda.bindings import driver as cu
from simcuda import GRANULE as G
from simcuda import memory, misuses

OK = cu.CUresult.CUDA_SUCCESS
INVALID_VALUE = cu.CUresult.CUDA_ERROR_INVALID_VALUE
NOT_SUPPORTED = cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
NOT_PERMITTED = cu.CUresult.CUDA_ERROR_NOT_PERMITTED
OUT_OF_MEMORY = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
POSIX_FD = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
FABRIC = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC
READ = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
READ_WRITE = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
MINIMUM = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM

NOTHING_HELD = "free on device 0: 8 GiB"


def answer(what, returned, want, *values):
    """Checks a call's code and values, and gives the values."""
    check(what, (returned[0], *returned[1:]) if values else returned[0], (want, *values) if values else want)
    return returned[1:]


def on_device_0(handle_types=POSIX_FD):
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    properties.requestedHandleTypes = handle_types
    return properties


def rights(flags):
    descriptor = cu.CUmemAccessDesc()
    descriptor.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    descriptor.location.id = 0
    descriptor.flags = flags
    return descriptor


def start():
    print("start")
    properties = on_device_0()
    answer("granularity before cuInit", cu.cuMemGetAllocationGranularity(properties, MINIMUM),
           cu.CUresult.CUDA_ERROR_NOT_INITIALIZED)
    answer("cuInit", cu.cuInit(0), OK)
    answer("version", cu.cuDriverGetVersion(), OK, 13000)
    answer("devices", cu.cuDeviceGetCount(), OK, 1)
    (device,) = answer("device", cu.cuDeviceGet(0), OK)
    code, name = cu.cuDeviceGetName(64, device)
    check("name", (code, name.split(b"\0")[0]), (OK, b"NVIDIA H200 (simulated)"))
    code, uuid = cu.cuDeviceGetUuid(device)
    check("UUID", (code, bytes(uuid.bytes)), (OK, b"cuda-vmm sim\0\0\0\0"))
    attribute = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    answer("supports virtual memory", cu.cuDeviceGetAttribute(attribute, device), OK, 1)
    answer("total memory", cu.cuDeviceTotalMem(device), OK, 8 << 30)
    answer("free bytes without a context", cu.cuMemGetInfo(), cu.CUresult.CUDA_ERROR_INVALID_CONTEXT)
    (context,) = answer("context", cu.cuDevicePrimaryCtxRetain(device), OK)
    answer("current", cu.cuCtxSetCurrent(context), OK)
    answer("free bytes", cu.cuMemGetInfo(), OK, 8 << 30, 8 << 30)
    answer("granularity", cu.cuMemGetAllocationGranularity(properties, MINIMUM), OK, G)
    answer("name of an error", cu.cuGetErrorName(INVALID_VALUE), OK, b"CUDA_ERROR_INVALID_VALUE")
    check("held", memory(), NOTHING_HELD)
    return device


def one_mapping():
    print("reserve, create, map, grant")
    (base,) = answer("reserve", cu.cuMemAddressReserve(8 * G, 0, 0, 0), OK)
    (handle,) = answer("create", cu.cuMemCreate(2 * G, on_device_0(), 0), OK)
    base = int(base)
    answer("map", cu.cuMemMap(base, 2 * G, 0, handle, 0), OK)
    full = rights(READ_WRITE)  # Kept: its location is a view of it.
    answer("access before a grant", cu.cuMemGetAccess(full.location, base), OK, 0)
    answer("grant", cu.cuMemSetAccess(base, 2 * G, [full], 1), OK)
    answer("access", cu.cuMemGetAccess(full.location, base), OK, int(READ_WRITE))
    check("held", memory(base),
          "reserved base+0 16 MiB\n"
          "mapped base+0 4 MiB handle h1, device 0: read-write\n"
          "handle h1 created, memory m1 (4 MiB on device 0, types 1), count 1, mapped 1\n"
          "free on device 0: 8188 MiB")
    return base, handle


def bytes_move(base):
    print("fill and copy")
    answer("fill", cu.cuMemsetD8(base, 0x5A, 2 * G), OK)
    written = bytes(range(256))
    answer("copy in", cu.cuMemcpyHtoD(base + G - 100, written, 256), OK)
    answer("copy within", cu.cuMemcpyDtoD(base, base + G - 100, 256), OK)
    read = bytearray(300)
    answer("copy out", cu.cuMemcpyDtoH(read, base, 300), OK)
    check("bytes", bytes(read), written + b"\x5a" * 44)
    answer("copy into a hole", cu.cuMemcpyHtoD(base + 2 * G, written, 256), INVALID_VALUE)
    answer("read only", cu.cuMemSetAccess(base, 2 * G, [rights(READ)], 1), OK)
    answer("write where only reading is allowed", cu.cuMemsetD8(base, 1, 16), INVALID_VALUE)
    answer("read-write", cu.cuMemSetAccess(base, 2 * G, [rights(READ_WRITE)], 1), OK)
    code, start, size = cu.cuMemGetAddressRange(base + G)
    check("extent", (code, int(start) - base, size), (OK, 0, 2 * G))


def share(base, handle):
    print("retain, export, import")
    (retained,) = answer("retain", cu.cuMemRetainAllocationHandle(base + G), OK)
    check("same handle", int(retained) == int(handle), True)
    answer("release the retained count", cu.cuMemRelease(retained), OK)
    answer("retain in a hole", cu.cuMemRetainAllocationHandle(base + 4 * G), INVALID_VALUE)
    (fd,) = answer("export", cu.cuMemExportToShareableHandle(handle, POSIX_FD, 0), OK)
    answer("export with a flag", cu.cuMemExportToShareableHandle(handle, POSIX_FD, 1), INVALID_VALUE)
    (imported,) = answer("import", cu.cuMemImportFromShareableHandle(fd, POSIX_FD), OK)
    check("another handle", int(imported) != int(handle), True)
    os.close(fd)
    answer("export the import", cu.cuMemExportToShareableHandle(imported, POSIX_FD, 0), INVALID_VALUE)
    answer("map the import", cu.cuMemMap(base + 4 * G, 2 * G, 0, imported, 0), OK)
    answer("grant", cu.cuMemSetAccess(base + 4 * G, 2 * G, [rights(READ_WRITE)], 1), OK)
    answer("fill through it", cu.cuMemsetD8(base + 5 * G, 0x77, G), OK)
    read = bytearray(4)
    answer("copy out through the first", cu.cuMemcpyDtoH(read, base + 2 * G - 4, 4), OK)
    check("bytes", bytes(read), b"\x77" * 4)
    with open("/dev/null") as null:
        answer("import of /dev/null", cu.cuMemImportFromShareableHandle(null.fileno(), POSIX_FD),
               cu.CUresult.CUDA_ERROR_UNKNOWN)
    answer("unmap the import", cu.cuMemUnmap(base + 4 * G, 2 * G), OK)
    answer("release the import", cu.cuMemRelease(imported), OK)


def refusals(base, handle):
    print("what is refused, and what is not")
    before = memory(base)
    answer("map past a part of the handle", cu.cuMemMap(base + 2 * G, G, 0, handle, 0), NOT_SUPPORTED)
    answer("map at an offset", cu.cuMemMap(base + 2 * G, G, G, handle, 0), NOT_SUPPORTED)
    answer("map over a mapping", cu.cuMemMap(base + G, 2 * G, 0, handle, 0), INVALID_VALUE)
    answer("unmap a part", cu.cuMemUnmap(base, G), INVALID_VALUE)
    answer("grant a part", cu.cuMemSetAccess(base, G, [rights(READ)], 1), INVALID_VALUE)
    answer("free with a mapping inside", cu.cuMemAddressFree(base, 8 * G), INVALID_VALUE)
    answer("free a part", cu.cuMemAddressFree(base, 4 * G), INVALID_VALUE)
    answer("reserve an odd size", cu.cuMemAddressReserve(G + 4096, 0, 0, 0), INVALID_VALUE)
    answer("create more than there is", cu.cuMemCreate(1 << 40, on_device_0(), 0), OUT_OF_MEMORY)
    answer("create with a fabric handle", cu.cuMemCreate(G, on_device_0(FABRIC), 0), NOT_PERMITTED)
    answer("unmap where nothing is mapped", cu.cuMemUnmap(base + 4 * G, 2 * G), OK)
    check("nothing changed", memory(base), before)
    answer("map over the end", cu.cuMemMap(base + 7 * G, 2 * G, 0, handle, 0), OK)
    answer("and unmap it", cu.cuMemUnmap(base + 7 * G, 2 * G), OK)
    check("nothing is left of it", memory(base), before)


def give_back(base, handle, device):
    print("give back")
    answer("release while mapped", cu.cuMemRelease(handle), OK)
    answer("release twice", cu.cuMemRelease(handle), INVALID_VALUE)
    answer("unmap", cu.cuMemUnmap(base, 2 * G), OK)
    answer("free", cu.cuMemAddressFree(base, 8 * G), OK)
    answer("free twice", cu.cuMemAddressFree(base, 8 * G), INVALID_VALUE)
    check("held", memory(), NOTHING_HELD)
    check("misuse on record", misuses(),
          f"cuMemRelease: {int(handle):#x} was released more often than it was taken\n")
    answer("release the context", cu.cuDevicePrimaryCtxRelease(device), OK)


device = start()
base, handle = one_mapping()
bytes_move(base)
share(base, handle)
refusals(base, handle)
give_back(base, handle, device)
finish("cuda-bindings")
