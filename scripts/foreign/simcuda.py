"""The controls of the simulated driver's library. See examples/simcuda/lib.rs."""

import ctypes
import re

_library = ctypes.CDLL("libcuda.so.1")
for _name in ("simcuda_snapshot", "simcuda_misuses"):
    _tell = getattr(_library, _name)
    _tell.restype = ctypes.c_size_t
    _tell.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
_library.simcuda_fault.argtypes = (ctypes.c_char_p,)

GRANULE = 2 << 20


def _told(tell):
    length = tell(None, 0)
    text = ctypes.create_string_buffer(length + 1)
    tell(text, length + 1)
    return text.value.decode()


def fault(*faults):
    """Makes calls fail: CALL[:N[:CODE[:TIMES]]], as in SIMCUDA_FAULT."""
    if _library.simcuda_fault(",".join(faults).encode()) != 0:
        raise ValueError(f"refused: {faults}")


def misuses():
    """What a real driver would have died of."""
    return _told(_library.simcuda_misuses)


def memory(base=0):
    """What the driver holds of addresses and memory, one fact a line.

    Numbers that change from run to run are given by place: addresses from `base` on as granules behind it, handles and
    memory by the order in which they appear.
    """
    kinds = ("reserved", "mapped", "handle", "exported", "allocated", "free on device")
    lines = [line for line in _told(_library.simcuda_snapshot).splitlines() if line.startswith(kinds)]
    text = "\n".join(lines)
    handles, memories = {}, {}
    text = re.sub(r"(reserved|mapped|allocated) (0x[0-9a-f]+)", lambda m: f"{m[1]} {_place(m[2], base)}", text)
    text = re.sub(r"handle (0x[0-9a-f]+)", lambda m: "handle " + _nth(handles, m[1], "h"), text)
    return re.sub(r"memory (\d+)", lambda m: "memory " + _nth(memories, m[1], "m"), text)


def _place(address, base):
    offset = int(address, 16) - base
    if offset % GRANULE:
        return f"base{offset:+#x}"
    return f"base{offset // GRANULE:+d}"


def _nth(known, value, letter):
    return known.setdefault(value, f"{letter}{len(known) + 1}")
