"""The consumer process of pool_peer.py, and the producer's handle on it.

The process answers each message with two times of its clock and the bytes that it read.

A message is a ticket of SGLang's pool, or a tuple that begins with a word:

    ("host", size)   copies size bytes from the shared block to the device
    ("pin",)         registers the shared block with CUDA
    ("unpin",)       unregisters it
    ("echo", value)  answers the value and the time
    ("end",)         releases what was imported, and ends

The answer to a ticket and to "host" is (received, usable, smallest byte, largest byte), both times in nanoseconds of
CLOCK_MONOTONIC: received is when the message is unpickled, usable is when the data is in the device memory of this
process and the stream is synchronised. The bytes are read after both.
"""

import subprocess
import sys
import time

import mailbox

# Seconds to wait: the consumer for a message, the producer for the consumer's start and for an answer.
SECONDS, START, ANSWER = 60, 60, 20


class Consumer:
    """The producer's handle on the consumer process: starts it by `script`, asks it, ends it."""

    def __init__(self, script, folder, dry):
        self.shared = mailbox.Shared()
        descriptor = self.shared.descriptor
        command = [sys.executable, script, "--consumer", folder, str(descriptor), str(int(dry))]
        self.process = subprocess.Popen(command, pass_fds=(descriptor,))

    def receive(self, seconds=ANSWER, pause=None):
        return self.shared.to_producer.receive(seconds, lambda: self.process.poll() is None, pause)

    def ask(self, message, pause=None):
        self.shared.to_consumer.send(message)
        return self.receive(pause=pause)

    def end(self):
        self.shared.to_consumer.send(("end",))
        status = self.process.wait(timeout=ANSWER)
        if status != 0:
            raise RuntimeError(f"the consumer ended with {status}")

    def kill(self):
        """By its process id. Does nothing if the process has ended."""
        self.process.kill()
        self.process.wait()


class Device:
    """What the consumer does with a GPU."""

    def __init__(self, transport, shared):
        import torch
        from cuda.bindings import driver

        self.transport, self.shared, self.torch, self.driver = transport, shared, torch, driver
        torch.cuda.set_device(0)
        # One target for all host copies.
        self.target = torch.zeros(mailbox.HOST_BLOCK, dtype=torch.uint8, device="cuda:0")
        self.stream = torch.cuda.current_stream(0)
        self.handle = driver.CUstream(self.stream.cuda_stream)
        self.pointer = driver.CUdeviceptr(self.target.data_ptr())
        torch.cuda.synchronize(0)

    def reconstruct(self, ticket):
        """Copies the slice out and acknowledges it; both are done on return."""
        tensor = ticket.reconstruct_on_target_device(0)
        self.stream.synchronize()
        return time.monotonic_ns(), tensor

    def from_host(self, size):
        """Copies from the shared block; done on return."""
        must(self.driver.cuMemcpyHtoDAsync(self.pointer, self.shared.address, size, self.handle), "copy from the host")
        must(self.driver.cuStreamSynchronize(self.handle), "synchronise")
        return time.monotonic_ns(), self.target[:size]

    def end(self):
        self.torch.cuda.synchronize(0)
        self.transport._imported_pool_cache_clear()


def must(result, what):
    """Raises if a call of cuda-bindings failed."""
    if int(result[0]) != 0:
        raise RuntimeError(f"{what}: {result[0]}")


def pin(torch, shared):
    """Registers the shared block in this process, with the runtime that PyTorch has loaded."""
    status = int(torch.cuda.cudart().cudaHostRegister(shared.address, mailbox.HOST_BLOCK, 0))
    if status != 0:
        raise RuntimeError(f"cudaHostRegister: {status}")


def unpin(torch, shared):
    status = int(torch.cuda.cudart().cudaHostUnregister(shared.address))
    if status != 0:
        raise RuntimeError(f"cudaHostUnregister: {status}")


def serve(transport, shared, device):
    """Answers until ("end",). `device` is None in a dry run, whose tickets belong to no pool."""
    ticket = transport.CudaVmmTensorTransportProxy
    inbox, outbox = shared.to_consumer, shared.to_producer
    outbox.send("ready")
    while True:
        message = inbox.receive(SECONDS)
        received = time.monotonic_ns()
        if isinstance(message, ticket) and device is not None:
            usable, tensor = device.reconstruct(message)
            outbox.send((received, usable, int(tensor.min()), int(tensor.max())))
            # PyTorch's cache reuses this memory for the next ticket.
            del tensor, message
        elif isinstance(message, ticket):
            outbox.send((received, vars(message)))
        elif message[0] == "host":
            usable, tensor = device.from_host(message[1])
            outbox.send((received, usable, int(tensor.min()), int(tensor.max())))
            del tensor
        elif message[0] == "pin":
            pin(device.torch, shared)
            outbox.send("pinned")
        elif message[0] == "unpin":
            unpin(device.torch, shared)
            outbox.send("unpinned")
        elif message[0] == "echo":
            outbox.send((received, message[1]))
        elif message[0] == "end":
            if device is not None:
                device.end()
            return
        else:
            raise ValueError(f"no such message: {message[0]}")
