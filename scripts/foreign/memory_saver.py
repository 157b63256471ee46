"""What torch_memory_saver and PyTorch take for what `benches/elastic/suspend.rs` measures, on the same GPU.

    python3 memory_saver.py [TSV]

Needs a GPU and PyTorch; torch_memory_saver is preloaded the way its own documentation says. A peer that is not at hand is
said to be missing. Written to TSV as lines of name and milliseconds.
"""

import os
import statistics
import subprocess
import sys
import time

GIB = 1 << 30
SIZE = 4 * GIB


def milliseconds(run):
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def saver(backup):
    """4 GiB paused and resumed: the first cycle, and the median of four more."""
    import torch
    from torch_memory_saver import torch_memory_saver

    with torch_memory_saver.region(enable_cpu_backup=backup):
        tensor = torch.arange(SIZE // 8, dtype=torch.int64, device="cuda")
    torch.cuda.empty_cache()
    pauses, resumes = [], []
    for _ in range(5):
        pauses.append(milliseconds(torch_memory_saver.pause))
        resumes.append(milliseconds(torch_memory_saver.resume))
        if backup:
            assert tensor[-1].item() == SIZE // 8 - 1, "the contents did not come back"
    kind = "with a host copy" if backup else "nothing kept"
    return {
        f"torch_memory_saver, 4 GiB {kind}, first suspend": pauses[0],
        f"torch_memory_saver, 4 GiB {kind}, first resume": resumes[0],
        f"torch_memory_saver, 4 GiB {kind}, later suspends": statistics.median(pauses[1:]),
        f"torch_memory_saver, 4 GiB {kind}, later resumes": statistics.median(resumes[1:]),
    }


def pinned():
    """4 GiB copied to pinned memory and back."""
    import torch

    device = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
    host = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
    down = [milliseconds(lambda: host.copy_(device, non_blocking=True)) for _ in range(5)]
    up = [milliseconds(lambda: device.copy_(host, non_blocking=True)) for _ in range(5)]
    return {
        "torch, 4 GiB to pinned memory": statistics.median(down),
        "torch, 4 GiB from pinned memory": statistics.median(up),
    }


KINDS = {
    "saver": lambda: saver(False),
    "saver-backup": lambda: saver(True),
    "pinned": pinned,
}


def elsewhere(name):
    """Runs one of the above in a process of its own, since the saver has to be there before PyTorch is."""
    environment = dict(os.environ)
    if name.startswith("saver"):
        try:
            from torch_memory_saver.utils import get_binary_path_from_package

            library = get_binary_path_from_package("torch_memory_saver_hook_mode_preload")
        except Exception as error:  # Whatever keeps it away, it is not measured.
            print(f"{name}: NOT MEASURED: {error}")
            return {}
        environment["LD_PRELOAD"] = str(library)
    command = [sys.executable, __file__, "--only", name]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    if ended.returncode != 0:
        print(f"{name}: NOT MEASURED: {(ended.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        return {}
    lines = [line.split("\t") for line in ended.stdout.splitlines() if "\t" in line]
    return {what: float(time) for what, time in lines}


def main():
    if sys.argv[1:2] == ["--only"]:
        for what, time in KINDS[sys.argv[2]]().items():
            print(f"{what}\t{time:.3f}")
        return
    measured = {}
    for name in KINDS:
        measured.update(elsewhere(name))
    for what, time in measured.items():
        print(f"{what}: {time:.1f} ms")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.writelines(f"{what}\t{time:.3f}\n" for what, time in measured.items())


if __name__ == "__main__":
    main()
