"""Messages between two processes through shared memory: one message at a time in each direction, the receiver spins.

The memory is a memfd, which is the same kind of memory as that of `shm_open`, without a name and without the size
limit of /dev/shm. The receiver reads a sequence word until it changes, so a message costs no system call. On x86-64
another core sees the stores of one core in their order, and an aligned store of 8 bytes in one piece: the payload is
complete when the sequence word changes. Other processors do not guarantee this, and are refused.
"""

import ctypes
import mmap
import os
import pickle
import platform
import time

_SEQUENCE, _LENGTH = 0, 8  # Words of 8 bytes, each in a cache line of its own.
_DATA = 128
_MAILBOX = 32 << 10
_SPINS = 50_000
HOST_BLOCK = 1 << 20


class Mailbox:
    """One direction. One process sends only, the other receives only."""

    def __init__(self, view):
        self._words = view[:_DATA].cast("Q")
        self._data = view[_DATA:]
        self._number = 0

    def send(self, message):
        """Pickles the message and shows it. The previous one must have been received: answer each message."""
        data = pickle.dumps(message)
        if len(data) > len(self._data):
            raise ValueError(f"a message of {len(data)} bytes does not fit into {len(self._data)}")
        self._data[: len(data)] = data
        self._words[_LENGTH] = len(data)
        self._number += 1
        self._words[_SEQUENCE] = self._number

    def receive(self, seconds, alive=lambda: True, pause=None):
        """Spins until the next message is there. `alive` says whether it can still come.

        With `pause` it sleeps so many seconds between two looks instead, which leaves the interpreter to other threads.
        """
        words, expected = self._words, self._number + 1
        until = time.monotonic() + seconds
        while True:
            if pause is not None:
                time.sleep(pause)
            for _ in range(_SPINS if pause is None else 1):
                if words[_SEQUENCE] == expected:
                    self._number = expected
                    return pickle.loads(self._data[: words[_LENGTH]])
            if not alive():
                raise RuntimeError("the other process ended")
            if time.monotonic() > until:
                raise TimeoutError(f"no message within {seconds} s")


class Shared:
    """The memory of both directions, and a block of 1 MiB for data."""

    def __init__(self, descriptor=None):
        if platform.machine() != "x86_64":
            raise RuntimeError(f"the mailbox relies on the memory order of x86-64, and this is {platform.machine()}")
        size = 2 * _MAILBOX + HOST_BLOCK
        if descriptor is None:
            descriptor = os.memfd_create("pool_peer")
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, size)
        view = memoryview(self._map)
        self.to_consumer = Mailbox(view[:_MAILBOX])
        self.to_producer = Mailbox(view[_MAILBOX : 2 * _MAILBOX])
        self.block = view[2 * _MAILBOX :]
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map, 2 * _MAILBOX))
