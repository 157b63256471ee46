"""SGLang's own `VmmReservation` on the simulated driver: what it answers, and what the driver holds afterwards.

    python3 sglang_reservation.py CUDA_VMM_UTILS_PY

The file is SGLang's as published; only what it imports is stood in for.
"""

import importlib.util
import logging
import sys

import stand_ins
from check import check, finish, raised
from cuda.bindings import driver as cu
from simcuda import GRANULE as G
from simcuda import fault, memory, misuses

OK = cu.CUresult.CUDA_SUCCESS
UNKNOWN = cu.CUresult.CUDA_ERROR_UNKNOWN
INVALID_VALUE = cu.CUresult.CUDA_ERROR_INVALID_VALUE
OUT_OF_MEMORY = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
NOT_SUPPORTED = cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
NOT_PERMITTED = cu.CUresult.CUDA_ERROR_NOT_PERMITTED

NOTHING_HELD = "free on device 0: 8 GiB"

# One mapping that kept its handle, one that did not, and one more of the first one's memory.
THREE_MAPPINGS = """\
reserved base+0 16 MiB
mapped base+0 2 MiB handle h1, device 0: read-write
mapped base+1 4 MiB handle h2, device 0: read-write
mapped base+4 2 MiB handle h1, device 0: read-write
handle h1 created, memory m1 (2 MiB on device 0, types 1), count 1, mapped 2
handle h2 created, memory m2 (4 MiB on device 0, types 1), count 0, mapped 1
free on device 0: 8186 MiB"""


class Warnings(logging.Handler):
    """What SGLang logs as a warning, to be asked for."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self._texts = []

    def emit(self, record):
        self._texts.append(record.getMessage())

    def take(self):
        texts, self._texts = self._texts, []
        return texts


def load(path):
    stand_ins.install()
    spec = importlib.util.spec_from_file_location("sglang.srt.utils.cuda_vmm_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.logger.addHandler(warnings)
    module.logger.propagate = False
    return module


def probe():
    print("choose a handle type")
    kind = vmm.get_device_allocation_handle_type(0)
    check("chosen", vmm.allocation_handle_type_name(kind), "POSIX_FD")
    check("warned", warnings.take(),
          ["CUDA VMM FABRIC backing unavailable on device 0; trying fallback: "
           f"cuMemCreate(FABRIC probe): {NOT_PERMITTED}"])
    check("granularity", vmm.get_device_granularity(0), G)
    check("held", memory(), NOTHING_HELD)


def reserve():
    return vmm.VmmReservation(8 * G, vmm.make_device_allocation_prop(0), 0)


def three_mappings():
    kv = reserve()
    handle = kv.map(0, G, retain_handle=True)
    check("a handle that is not kept", kv.map(G, 2 * G, retain_handle=False), None)
    kv.map_existing(4 * G, G, handle)
    check("held", memory(kv.base), THREE_MAPPINGS)
    return kv


def maps_and_closes():
    print("map, map_existing, close")
    kv = three_mappings()
    check("written through one", cu.cuMemsetD8(kv.base + 4 * G, 0x21, G), (OK,))
    read = bytearray(3)
    check("copied", cu.cuMemcpyDtoH(read, kv.base, 3), (OK,))
    check("read through the other", bytes(read), b"!!!")
    check("is VMM memory", vmm.is_vmm_pointer(kv.base), True)
    check("a hole is not", vmm.is_vmm_pointer(kv.base + 6 * G), False)
    check("bases of what lies across two mappings", vmm.compute_graph_capture_bases([(kv.base + G - 8, 16)]),
          ([(kv.base, G), (kv.base + G, 2 * G)], [[0, 1]], [G - 8]))
    check("asking took nothing", memory(kv.base), THREE_MAPPINGS)
    kv.close()
    kv.close()
    check("held after close", memory(), NOTHING_HELD)
    raised("map after close", RuntimeError, "VmmReservation.map after close",
           lambda: kv.map(0, G, retain_handle=True))
    raised("map_existing after close", RuntimeError, "VmmReservation.map_existing after close",
           lambda: kv.map_existing(0, G, None))
    check("held", memory(), NOTHING_HELD)


def closes_without_releasing():
    print("close without releasing")
    kv = reserve()
    handle = kv.map(0, G, retain_handle=True)
    kv.close(release_handles=False)
    check("held", memory(),
          "handle h1 created, memory m1 (2 MiB on device 0, types 1), count 1, mapped 0\n"
          "free on device 0: 8190 MiB")
    check("released by its owner", cu.cuMemRelease(handle), (OK,))
    check("held", memory(), NOTHING_HELD)


def out_of_range():
    print("out of range")
    kv = three_mappings()
    cases = [
        ("over the end", 7 * G, 2 * G, "mapping [14680064, 18874368) is outside reservation [0, 16777216)"),
        ("behind the end", 8 * G, G, "mapping [16777216, 18874368) is outside reservation [0, 16777216)"),
        ("before the start", -G, G, "mapping [-2097152, 0) is outside reservation [0, 16777216)"),
        ("nothing", 0, 0, "mapping [0, 0) is outside reservation [0, 16777216)"),
    ]
    for what, offset, size, text in cases:
        raised(what, ValueError, text, lambda: kv.map(offset, size, retain_handle=True))
    invalid = f"cuMemMap(local): {INVALID_VALUE}"
    raised("over a mapping", RuntimeError, invalid, lambda: kv.map(0, G, retain_handle=True))
    create = f"cuMemCreate(local): {INVALID_VALUE}"
    raised("half a granule", RuntimeError, create, lambda: kv.map(5 * G, G // 2, retain_handle=True))
    check("nothing changed", memory(kv.base), THREE_MAPPINGS)
    kv.close()
    check("held after close", memory(), NOTHING_HELD)


def failing_map():
    print("a map that fails half-way")
    kv = three_mappings()
    steps = [
        ("cuMemCreate:1:2", f"cuMemCreate(local): {OUT_OF_MEMORY}"),
        ("cuMemMap:1:999", f"cuMemMap(local): {UNKNOWN}"),
        ("cuMemSetAccess:1:801", f"cuMemSetAccess(local): {NOT_SUPPORTED}"),
        ("cuMemRelease:1:999", f"cuMemRelease(local): {UNKNOWN}"),
    ]
    for step, text in steps:
        fault(step)
        raised(step, RuntimeError, text, lambda: kv.map(5 * G, G, retain_handle=False))
        check("nothing changed", memory(kv.base), THREE_MAPPINGS)
    handle = kv._mappings[0][2]
    fault("cuMemSetAccess:1:2")
    raised("map_existing", RuntimeError, f"cuMemSetAccess(existing): {OUT_OF_MEMORY}",
           lambda: kv.map_existing(5 * G, G, handle))
    check("nothing changed", memory(kv.base), THREE_MAPPINGS)
    kv.close()
    check("held after close", memory(), NOTHING_HELD)


def failing_map_whose_undo_fails():
    print("a map that fails, and its undo too")
    kv = reserve()
    fault("cuMemSetAccess:1:2", "cuMemUnmap:1:999")
    error = raised("map", RuntimeError, f"cuMemSetAccess(local): {OUT_OF_MEMORY}",
                   lambda: kv.map(0, G, retain_handle=True))
    check("noted", error.__notes__, ["1 CUDA VMM rollback operation(s) also failed"])
    check("cause", str(error.__cause__), f"cuMemUnmap(local rollback): {UNKNOWN}")
    leaked = (
        "reserved base+0 16 MiB\n"
        "mapped base+0 2 MiB handle h1\n"
        "handle h1 created, memory m1 (2 MiB on device 0, types 1), count 0, mapped 1\n"
        "free on device 0: 8190 MiB"
    )
    check("held", memory(kv.base), leaked)
    kv.close()
    check("warned at close", warnings.take(),
          [f"cuMemAddressFree(local) -> {INVALID_VALUE}"])
    if check("held after close", memory(kv.base), leaked):
        finding("a map whose undo fails leaves a mapping that the reservation does not know of: close cannot free "
                "the addresses, and 2 MiB of memory and 16 MiB of addresses are lost")
    clean_up(kv)


def over_the_end_by_map_existing():
    print("map_existing over the end")
    kv = reserve()
    page = kv.map(0, 2 * G, retain_handle=True)
    kv.map_existing(7 * G, 2 * G, page)
    over_the_end = (
        "reserved base+0 16 MiB\n"
        "mapped base+0 4 MiB handle h1, device 0: read-write\n"
        "mapped base+7 4 MiB handle h1, device 0: read-write\n"
        "handle h1 created, memory m1 (4 MiB on device 0, types 1), count 1, mapped 2\n"
        "free on device 0: 8188 MiB"
    )
    if check("held", memory(kv.base), over_the_end):
        finding("map_existing checks no range, and the driver checks only where a mapping starts: this one runs 2 MiB "
                "over the end of its reservation")
    kv.close()
    check("held after close", memory(), NOTHING_HELD)


def failing_close():
    print("a close that fails")
    kv = three_mappings()
    fault("cuMemUnmap:3:999")
    kv.close()
    check("warned", warnings.take(),
          [f"cuMemUnmap(local) -> {UNKNOWN}",
           f"cuMemAddressFree(local) -> {INVALID_VALUE}"])
    leaked = (
        "reserved base+0 16 MiB\n"
        "mapped base+0 2 MiB handle h1, device 0: read-write\n"
        "handle h1 created, memory m1 (2 MiB on device 0, types 1), count 0, mapped 1\n"
        "free on device 0: 8190 MiB"
    )
    check("held after close", memory(kv.base), leaked)
    kv.close()
    if check("a second close does nothing", memory(kv.base), leaked):
        finding("a close that fails once says so in the log alone, counts as closed, and cannot be tried again: 2 MiB "
                "of memory and 16 MiB of addresses are lost")
    clean_up(kv)


def failing_release():
    print("a release that fails in close")
    kv = reserve()
    handle = kv.map(0, G, retain_handle=True)
    fault("cuMemRelease:1:999")
    kv.close()
    check("warned", warnings.take(), [f"cuMemRelease(local) -> {UNKNOWN}"])
    leaked = (
        "handle h1 created, memory m1 (2 MiB on device 0, types 1), count 1, mapped 0\n"
        "free on device 0: 8190 MiB"
    )
    if check("held after close", memory(), leaked):
        finding("a release that fails in close drops the handle: 2 MiB of memory are lost, unless the caller kept the "
                "handle that map returned")
    check("released by hand", cu.cuMemRelease(handle), (OK,))
    check("held", memory(), NOTHING_HELD)


def clean_up(kv):
    """Gives back by hand what SGLang lost, which shows that it could have been."""
    check("unmapped by hand", cu.cuMemUnmap(kv.base, G), (OK,))
    check("freed by hand", cu.cuMemAddressFree(kv.base, kv.size), (OK,))
    check("held", memory(), NOTHING_HELD)


def finding(text):
    findings.append(text)
    print(f"  FINDING: {text}")


warnings = Warnings()
findings = []
vmm = load(sys.argv[1])
check("cuInit", cu.cuInit(0), (OK,))
code, context = cu.cuDevicePrimaryCtxRetain(0)
check("context", code, OK)
check("current", cu.cuCtxSetCurrent(context), (OK,))
probe()
maps_and_closes()
closes_without_releasing()
out_of_range()
failing_map()
failing_map_whose_undo_fails()
over_the_end_by_map_existing()
failing_close()
failing_release()
check("held at the end", memory(), NOTHING_HELD)
check("warnings nobody asked for", warnings.take(), [])
check("misuse on record", misuses(), "")
print("what SGLang's reservation loses or lets happen, seen above:")
for number, text in enumerate(findings, 1):
    print(f"  {number}. {text}")
finish("SGLang's VmmReservation")
