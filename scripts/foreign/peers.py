"""What others take for what `benches/elastic` measures, on the same GPU: SGLang's VmmReservation, PyTorch's expandable
segments.

    python3 peers.py CUDA_VMM_UTILS_PY [TSV]

Needs a GPU, PyTorch and cuda-bindings; the file is SGLang's as published, in the version that scripts/run-foreign names.
A peer that is not at hand is said to be missing. Medians; written to TSV as lines of name and microseconds.
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import time

GIB = 1 << 30
MIB = 1 << 20
ROUNDS = 7


def rest():
    """As between the rounds of the benchmark: long enough for the driver to clear what it got back, and awake."""
    until = time.perf_counter() + 0.04
    while time.perf_counter() < until:
        pass


def median(run, rounds=ROUNDS):
    """Microseconds of the median run, each after a rest; the first, which warms up, is not counted."""
    run()
    times = []
    for _ in range(rounds):
        rest()
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def sglang(path):
    """4 GiB in chunks of 2 MiB: reserved, mapped, closed."""
    import torch

    import stand_ins

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    stand_ins.install_sglang()
    spec = importlib.util.spec_from_file_location("sglang.srt.utils.cuda_vmm_utils", path)
    vmm = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(vmm)
    props = vmm.make_device_allocation_prop(0)

    def cycle():
        kv = vmm.VmmReservation(4 * GIB, props, 0)
        for offset in range(0, 4 * GIB, 2 * MIB):
            kv.map(offset, 2 * MIB, retain_handle=False)
        kv.close()

    return {"sglang VmmReservation, 4 GiB in 2 MiB chunks": median(cycle, 3)}


def expandable():
    """4 GiB of a tensor, and given back."""
    import torch

    def cycle():
        tensor = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
        del tensor
        torch.cuda.empty_cache()

    torch.zeros(1, device="cuda")
    return {"torch expandable segments, 4 GiB": median(cycle)}


def first():
    """The first 4 GiB of a process. As in the benchmark, after some memory and a rest."""
    import torch

    torch.zeros(1, device="cuda")
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    del tensor
    torch.cuda.empty_cache()
    time.sleep(0.3)
    start = time.perf_counter()
    tensor = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
    return {"first growth": (time.perf_counter() - start) * 1e6}


def elsewhere(name, *arguments, **environment):
    """Runs one of the functions above in a process of its own, since each wants its own surroundings."""
    command = [sys.executable, __file__, "--only", name, *arguments]
    ended = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    if ended.returncode != 0:
        print(f"{name}: NOT MEASURED: {(ended.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        return {}
    lines = [line.split("\t") for line in ended.stdout.splitlines() if "\t" in line]
    return {what: float(figure) for what, figure in lines}


def main():
    if sys.argv[1] == "--only":
        for what, figure in globals()[sys.argv[2]](*sys.argv[3:]).items():
            print(f"{what}\t{figure}")
        return
    figures = elsewhere("sglang", sys.argv[1])
    figures |= elsewhere("expandable", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    for what, figure in figures.items():
        print(f"{what}: {figure:.1f} us")
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            out.writelines(f"{what}\t{figure}\n" for what, figure in figures.items())


if __name__ == "__main__":
    main()
