"""A training run whose memory is taken away between two steps, and which never notices.

    cargo build --release --examples
    python3 scripts/foreign/torch_train.py target/release/examples/libcuda_vmm_torch.so

or `python3 torch_train.py ./libcuda_vmm_torch.so` in the folder that scripts/gather has laid out, unpacked. Needs
PyTorch with CUDA, a GPU with 10 GiB free, and 5 GiB of the host's memory; written for PyTorch 2.11.

The same steps are trained three times, each in a process of its own: with PyTorch's own allocator, with this one, and
with this one suspended after every third step, contents kept. Losses, weights and the optimiser's state must be the
same, bit for bit. While suspended, another process tries to take more memory than was free before; it must get it
then, and not before. A shortage, and an allocation while suspended, must be errors that training survives. A graph that
was captured before must replay after.

The last line says how it went; the status is 0 if all was as it should be, else 1.
"""

import ctypes
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

MIB, GIB = 1 << 20, 1 << 30
STEPS, SUSPEND_EVERY = 9, 3
# What lies in memory beside the model, for the sake of its size.
BALLAST = 4 * GIB
# What another process leaves free while the allocator is awake, and then tries to take.
LEFT, WANTED = 2 * GIB, 3 * GIB
# What the driver may take for itself between two looks at free memory.
SLACK = 64 * MIB
SECONDS = 400

OWN, PLUGGED, SUSPENDED = "PyTorch's allocator", "cuda-vmm, undisturbed", "cuda-vmm, suspended between steps"


class Wrong(Exception):
    """Something is not as it should be."""


def must(what, holds):
    if not holds:
        raise Wrong(what)
    print(f"  ok: {what}", flush=True)


def mib(size):
    return f"{size / MIB:,.0f} MiB"


# ---- the library ----


class Vmm:
    def __init__(self, path):
        self.symbols = ctypes.CDLL(path)
        for name, result, arguments in (
            ("suspend", ctypes.c_int64, (ctypes.c_int,)),
            ("resume", ctypes.c_int, ()),
            ("trim", ctypes.c_int64, ()),
            ("bytes", ctypes.c_int64, (ctypes.c_int,)),
            ("error", ctypes.c_size_t, (ctypes.c_char_p, ctypes.c_size_t)),
        ):
            function = getattr(self.symbols, "cuda_vmm_" + name)
            function.restype, function.argtypes = result, arguments

    def error(self):
        text = ctypes.create_string_buffer(4096)
        self.symbols.cuda_vmm_error(text, len(text))
        return text.value.decode(errors="replace")

    def answer(self, value):
        if value < 0:
            raise Wrong(self.error())
        return value

    def suspend(self, keep):
        return self.answer(self.symbols.cuda_vmm_suspend(1 if keep else 0))

    def resume(self):
        self.answer(self.symbols.cuda_vmm_resume())

    def trim(self):
        return self.answer(self.symbols.cuda_vmm_trim())

    def counts(self):
        return [self.answer(self.symbols.cuda_vmm_bytes(which)) for which in range(3)]


# ---- another process, which wants memory ----


class Neighbour:
    """This program again, as `--neighbour`: takes memory by the driver's own calls, and says whether it got it."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--neighbour"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise Wrong("the other process ended")
        return answer

    def free(self):
        return int(self.ask("free"))

    def takes(self, size):
        """Whether it gets so much."""
        answer = self.ask("take", size)
        if answer not in ("taken", "out of memory"):
            raise Wrong(f"the other process: {answer}")
        return answer == "taken"

    def end(self):
        self.process.stdin.close()
        if self.process.wait(timeout=60) != 0:
            raise Wrong("the other process failed")


def neighbour():
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        status = getattr(cuda, name)(*arguments)
        if status != 0:
            raise Wrong(f"{name} answered {status}")

    call("cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "free":
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            print(free.value, flush=True)
        else:
            address = ctypes.c_uint64()
            status = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(words[1])))
            print({0: "taken", 2: "out of memory"}.get(status, f"status {status}"), flush=True)


# ---- one training run ----


def digest(torch, tensors):
    """Of the bytes of all tensors, in order."""
    sums = hashlib.sha256()
    for tensor in tensors:
        host = tensor.detach().cpu().contiguous()
        sums.update(ctypes.string_at(host.data_ptr(), host.numel() * host.element_size()))
    torch.cuda.synchronize()
    return sums.hexdigest()


def sums_of(torch, ballast):
    """Of each part, added up on the device, which takes less time than bringing all of it here."""
    sums = [int(part.view(torch.int64).sum().item()) for part in ballast.split(16 * MIB)]
    torch.cuda.synchronize()
    return sums


def raises(what, text, run):
    """Runs what must end in a RuntimeError with this in it."""
    try:
        run()
    except RuntimeError as error:
        must(f"{what} raises: {str(error).splitlines()[0]}", text in str(error))
        return
    raise Wrong(f"{what} raised nothing")


class Training:
    """A model, its optimiser and its data, all from fixed seeds."""

    def __init__(self, torch):
        self.torch = torch
        torch.manual_seed(20)
        nn = torch.nn
        self.model = nn.Sequential(
            nn.Linear(1024, 4096), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(4096, 4096), nn.LayerNorm(4096), nn.GELU(),
            nn.Linear(4096, 16),
        ).to("cuda:0")
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.data = torch.Generator().manual_seed(21)

    def step(self):
        torch = self.torch
        inputs = torch.randn(256, 1024, generator=self.data).to("cuda:0")
        labels = torch.randint(0, 16, (256,), generator=self.data).to("cuda:0")
        self.optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        self.optimiser.step()
        return loss.item().hex()

    def tensors(self):
        """Weights, and the optimiser's state."""
        parameters = list(self.model.parameters())
        states = [self.optimiser.state[parameter] for parameter in parameters if self.optimiser.state.get(parameter)]
        kept = [state[name] for state in states for name in sorted(state) if self.torch.is_tensor(state[name])]
        return parameters + kept


def sleep(torch, vmm, training, ballast):
    """Takes all memory away in the middle of the training, lets another process have it, and brings it back."""
    contents = digest(torch, training.tensors()), sums_of(torch, ballast)
    before = torch.cuda.mem_get_info(0)[0]
    counts = vmm.counts()
    neighbour = Neighbour()
    must("another process takes what is free", neighbour.takes(neighbour.free() - LEFT))
    must(f"and does not get {mib(WANTED)} more", not neighbour.takes(WANTED))

    start = time.monotonic()
    given_back = vmm.suspend(keep=True)
    seconds = time.monotonic() - start
    print(f"  suspended in {seconds:.3f} s: {mib(given_back)} given back", flush=True)
    must(f"all that was retained went ({mib(counts[1])})", given_back == counts[1] and vmm.counts()[1] == 0)
    raises("allocating while suspended", "no memory is given out while it is suspended",
           lambda: torch.empty(MIB, dtype=torch.uint8, device="cuda:0"))
    must(f"the other process gets {mib(WANTED)} more", neighbour.takes(WANTED))
    neighbour.end()
    during = torch.cuda.mem_get_info(0)[0]

    start = time.monotonic()
    vmm.resume()
    seconds = time.monotonic() - start
    after = torch.cuda.mem_get_info(0)[0]
    print(f"  resumed in {seconds:.3f} s; free: {mib(before)} before, {mib(during)} suspended, {mib(after)} after")
    must("free memory rose by what was given back, and fell by what came back",
         during - before >= given_back - SLACK and during - after >= vmm.counts()[1] - SLACK)
    resumed = digest(torch, training.tensors()), sums_of(torch, ballast)
    must("every tensor is at its address with its contents", resumed == contents)


def drop_contents(torch, vmm):
    """Contents that are not kept."""
    tensor = torch.full((MIB,), 7, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize()
    vmm.suspend(keep=False)
    vmm.resume()
    must("contents that were not kept are zero", int(tensor.sum().item()) == 0)


def graph_replays(torch, vmm):
    """A captured graph holds addresses: what lies there after the memory was replaced is what it computes on."""
    source = torch.arange(MIB, dtype=torch.int32, device="cuda:0")
    target = torch.add(source, 1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(source, 1, out=target)
    vmm.suspend(keep=True)
    vmm.resume()
    source.mul_(3)
    graph.replay()
    torch.cuda.synchronize()
    expected = torch.arange(MIB, dtype=torch.int64) * 3 + 1
    must("a graph captured before computes on what lies there after", torch.equal(target.cpu().long(), expected))


def train(library, mode, result):
    import torch

    vmm = None
    if mode != OWN:
        # Before anything is allocated on a device: it cannot be changed afterwards.
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "cuda_vmm_malloc_or_throw", "cuda_vmm_free")
        torch.cuda.memory.change_current_allocator(allocator)
        vmm = Vmm(library)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    print(f"  PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name(0)}", flush=True)
    training = Training(torch)
    ballast = None
    if mode == SUSPENDED:
        # From a generator of its own: the model's random numbers are to be those of the other runs.
        source = torch.Generator("cuda:0").manual_seed(22)
        ballast = torch.randint(0, 256, (BALLAST,), generator=source, dtype=torch.uint8, device="cuda:0")
    losses = []
    for step in range(STEPS):
        losses.append(training.step())
        if mode == SUSPENDED and step % SUSPEND_EVERY == SUSPEND_EVERY - 1:
            sleep(torch, vmm, training, ballast)
        if mode == PLUGGED and step == STEPS // 2:
            size = torch.cuda.mem_get_info(0)[1]
            raises(f"allocating {mib(size)}, all that there is,", "cuda-vmm: no piece of",
                   lambda: torch.empty(size, dtype=torch.uint8, device="cuda:0"))
    sums = digest(torch, training.tensors())
    if vmm:
        committed, retained, used = vmm.counts()
        print(f"  committed {mib(committed)}, retained {mib(retained)}, in use {mib(used)}; {mib(vmm.trim())} trimmed")
        must("memory came from this allocator", used > 0)
    with open(result, "w", encoding="utf-8") as file:
        json.dump({"losses": losses, "tensors": sums}, file)
    if mode == PLUGGED:
        drop_contents(torch, vmm)
        graph_replays(torch, vmm)


# ---- all of them ----


def compare(library):
    results = {}
    # cuBLAS is deterministic over workspaces of fixed size.
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    with tempfile.TemporaryDirectory() as folder:
        for mode in (OWN, PLUGGED, SUSPENDED):
            print(mode, flush=True)
            result = os.path.join(folder, "result")
            command = [sys.executable, os.path.abspath(__file__), "--train", library, mode, result]
            status = subprocess.run(command, env=environment, timeout=SECONDS, check=False).returncode
            if status != 0:
                raise Wrong(f"{mode}: ended with {status}")
            with open(result, encoding="utf-8") as file:
                results[mode] = json.load(file)
            os.remove(result)
    own = results[OWN]
    print("losses:", " ".join(f"{float.fromhex(loss):.6f}" for loss in own["losses"]))
    print("sha256 of weights and optimiser:", own["tensors"])
    must("the losses differ from step to step, so something was learnt", len(set(own["losses"])) == STEPS)
    for mode in (PLUGGED, SUSPENDED):
        must(f"{mode}: losses, weights and optimiser are those of {OWN}, bit for bit", results[mode] == own)


def main():
    if sys.argv[1:] == ["--neighbour"]:
        return neighbour()
    if len(sys.argv) == 5 and sys.argv[1] == "--train":
        return train(*sys.argv[2:])
    if len(sys.argv) != 2:
        raise Wrong("usage: torch_train.py LIB, which is libcuda_vmm_torch.so")
    library = os.path.abspath(sys.argv[1])
    if not os.path.isfile(library):
        raise Wrong(f"there is no {library}")
    compare(library)
    print("torch_train: passed")
    return None


if __name__ == "__main__":
    try:
        main()
    except Exception as failure:  # Whatever it is, the last line says so.
        print(f"torch_train: FAILED: {type(failure).__name__}: {failure}", flush=True)
        sys.exit(1)
