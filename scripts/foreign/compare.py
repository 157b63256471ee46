"""`benches/elastic` and its peers in one go on one GPU: each ratio, with its target.

    python3 compare.py . [CUDA_VMM_UTILS_PY]

in the folder that scripts/gather has laid out, unpacked (`run --unpack`). Needs what peers.py and memory_saver.py need,
which it starts; without SGLang's file, that peer is not measured, which is said. The figures stay beside it in
elastic.tsv, peers.tsv and saver.tsv, for scripts/plot. The status is 1 if a target was missed or a program failed.
"""

import os
import statistics
import subprocess
import sys

import peers

FILES = BENCH, PEERS, SAVER = "elastic.tsv", "peers.tsv", "saver.tsv"
SECONDS = 570
FIRST_GROWTHS = 7

AT_ONCE = "commit 4096 MiB at once and give back, after a rest"
FIRST = "suspend (crate) and resume (raw) 4096 MiB with a host copy, first cycle, host blocks of 128 MiB"
GROWN = "the first 4 GiB of a process, elastic range"
GROWN_TORCH = "the first 4 GiB of a process, torch expandable segments"
SAVED = "torch_memory_saver, 4 GiB with a host copy, first "

# What the peer's time is divided by, and how often that is to go into it; times in microseconds.
AGAINST = [
    ("commit 4 GiB and give back, against SGLang's VmmReservation in chunks of 2 MiB", [(AT_ONCE, 1)],
     [("sglang VmmReservation, 4 GiB in 2 MiB chunks", 1)], 40),
    ("commit 4 GiB and give back, against PyTorch's expandable segments", [(AT_ONCE, 1)],
     [("torch expandable segments, 4 GiB", 1)], 10),
    ("grow by 4 GiB for the first time in a process, against PyTorch's expandable segments", [(GROWN, 1)],
     [(GROWN_TORCH, 1)], 10),
    ("suspend and resume 4 GiB with a host copy, first cycle, against torch_memory_saver",
     [(FIRST, 1), (FIRST + "\traw", 1)],
     [(SAVED + "suspend", 1000), (SAVED + "resume", 1000)], 5),
]


def start(command, **environment):
    """Whether a program ended well. Its figures are read from what it writes."""
    print("$", " ".join(command), flush=True)
    try:
        status = subprocess.run(command, env=os.environ | environment, timeout=SECONDS, check=False).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        status = error
    if status != 0:
        print(f"FAILED: {command[0]}: {status}")
    return status == 0


def rows(path):
    """The lines of a file of figures, if it was written."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file]


def first_growths(bench):
    """The first growth by 4 GiB in a process, the crate's and PyTorch's, by processes in turns: the medians. Later ones
    pay for what was released before them, here as there."""
    ours, theirs = [], []
    for _ in range(FIRST_GROWTHS):
        one = subprocess.run([bench], env=os.environ | {"CUDA_VMM_BENCH_FIRST": "1", "CUDA_VMM_REQUIRE_GPU": "1"},
                             capture_output=True, text=True, timeout=SECONDS, check=False)
        ours += [float(line.split("\t")[1]) for line in one.stdout.splitlines() if line.startswith("first growth\t")]
        other = peers.elsewhere("first", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        theirs += other.values()
    return {name: statistics.median(times) for name, times in ((GROWN, ours), (GROWN_TORCH, theirs)) if times}


def add_up(figures, terms):
    """None if a figure is missing."""
    return sum(figures[name] * factor for name, factor in terms) if all(name in figures for name, _ in terms) else None


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.abspath(sys.argv[1])
    files = dict(zip(FILES, (os.path.join(folder, name) for name in FILES)))
    for path in files.values():
        if os.path.exists(path):
            os.remove(path)  # Else figures of an earlier run could be taken for this one's.
    utils = os.path.abspath(sys.argv[2]) if len(sys.argv) == 3 else "(no file of SGLang's was given)"

    well = start([os.path.join(folder, "bench-elastic")], CUDA_VMM_BENCH_TSV=files[BENCH], CUDA_VMM_REQUIRE_GPU="1")
    well &= start([sys.executable, os.path.join(here, "peers.py"), utils, files[PEERS]])
    well &= start([sys.executable, os.path.join(here, "memory_saver.py"), files[SAVER]])

    with open(files[PEERS], "a", encoding="utf-8") as file:
        for name, figure in first_growths(os.path.join(folder, "bench-elastic")).items():
            file.write(f"{name}\t{figure}\n")

    figures = {}
    for name, ours, theirs, ratio, target, _ in rows(files[BENCH])[1:]:
        figures[name], figures[name + "\traw"] = float(ours), float(theirs)
        sign, _, bound = target.removeprefix("target ").partition(" ")
        if sign not in ("<=", ">="):
            continue
        holds = float(ratio) <= float(bound) if sign == "<=" else float(ratio) >= float(bound)
        well &= holds
        print(f"{'ok' if holds else 'MISSED':<7} {float(ratio):8.3f}  {target:<14}  {name}")
    for path in (files[PEERS], files[SAVER]):
        figures.update((name, float(figure)) for name, figure in rows(path))
    for name, ours, theirs, least in AGAINST:
        ours, theirs = add_up(figures, ours), add_up(figures, theirs)
        if ours is None or theirs is None:
            print(f"{'-':<7} {'':>8}  {f'target >= {least}':<14}  {name}: NOT MEASURED")
            continue
        holds = theirs / ours >= least
        well &= holds
        print(f"{'ok' if holds else 'MISSED':<7} {theirs / ours:8.3f}  {f'target >= {least}':<14}  {name}")
    print("compare:", "all targets of what was measured are kept" if well else "FAILED, or a target was missed")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
