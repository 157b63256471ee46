"""`benches/pool` and SGLang's shared pool in one go on one GPU: each ratio, with its target.

    python3 compare_pool.py . [SGLANG_FOLDER]

in the folder that scripts/gather lays out, unpacked (`run --unpack`). SGLANG_FOLDER holds cuda_vmm_utils.py and
cuda_vmm_transport_utils.py of sglang 0.5.23, which pool_peer.py measures; it needs PyTorch and cuda-bindings. Without
the folder, or with other files in it, SGLang's pool is skipped, which is printed, and each ratio against it is NOT
MEASURED. The figures are kept in pool.tsv and pool_peer.tsv. The status is 1 if a target is missed or a program fails.
"""

import os
import sys

import pool_stand_ins
from compare import rows, start

FILES = BENCH, PEER = "pool.tsv", "pool_peer.tsv"

# What is compared: the row of bench-pool, the figure of pool_peer.py, and the least speed-up, if there is a target. Both
# are microseconds, or with a size in bytes the second one is a rate in GB/s.
AGAINST = [
    ("recycle pass, 1024 live", "sglang pool, recycle pass, 1024 live", 100, None),
    ("recycle pass, 1024 freed", "sglang pool, recycle pass, 1024 freed", None, None),
    ("recycle pass, 64 live", "sglang pool, recycle pass, 64 live", None, None),
    ("recycle pass, 1 live", "sglang pool, recycle pass, 1 live", None, None),
    ("between processes 4 KiB, usable, behind the default stream, against pageable host memory",
     "sglang pool, visible, usable 4 KiB", 4, None),
    ("between processes 4 KiB, usable, sources ready, against pageable host memory",
     "sglang pool, visible, usable 4 KiB", 4, None),
    ("between processes 4 KiB, has the ticket, behind the default stream",
     "sglang pool, visible, has the ticket 4 KiB", None, None),
    ("between processes 4 KiB, from the ticket to usable", "sglang pool, reconstruct 4 KiB", None, None),
    ("publish 4 KiB, behind the default stream", "sglang pool, publish 4 KiB, 1 consumer", None, None),
    ("publish 64 MiB, share of the raw rate", "sglang pool, publish 64 MiB, GB/s", None, 64 << 20),
    ("publish 1 GiB, share of the raw rate", "sglang pool, publish 1 GiB, GB/s", None, 1 << 30),
    ("copy out 64 MiB, share of the raw rate", "sglang pool, reconstruct 64 MiB, GB/s", None, 64 << 20),
    ("copy out 1 GiB, share of the raw rate", "sglang pool, reconstruct 1 GiB, GB/s", None, 1 << 30),
]


def skipped(folder):
    """Why SGLang's pool cannot be measured; None if it can."""
    if folder is None:
        return "no folder with SGLang's files was given"
    absent = [f"{name}.py" for name in pool_stand_ins.FILES if not os.path.isfile(os.path.join(folder, f"{name}.py"))]
    if absent:
        return f"{folder} has no {' and no '.join(absent)}"
    unknown = [line for line in pool_stand_ins.origin(folder) if not line.endswith(": sglang 0.5.23")]
    return "; ".join(unknown) or None


def judge(holds, ratio, target, name):
    print(f"{holds:<12} {ratio:>9}  {target:<9}  {name}")
    return holds != "MISSED"


def verdict(ratio, least):
    if least is None:
        return "-"
    return "ok" if ratio >= least else "MISSED"


def compare(bench, peer):
    """Prints the ratios against SGLang's pool; whether each that has a target and was measured keeps it."""
    well = True
    for ours, theirs, least, size in AGAINST:
        target = "-" if least is None else f">= {least}"
        name = f"{ours.split(', against ')[0].removesuffix(', share of the raw rate')}: {theirs}"
        if ours not in bench or theirs not in peer:
            judge("NOT MEASURED", "", target, name)
            continue
        time = peer[theirs] if size is None else size / peer[theirs] / 1e3
        ratio = time / bench[ours]
        well &= judge(verdict(ratio, least), f"{ratio:.3f}", target, name)
    return well


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.abspath(sys.argv[1])
    files = {name: os.path.join(folder, name) for name in FILES}
    for path in files.values():
        if os.path.exists(path):
            os.remove(path)  # Figures of an earlier run must not be taken for this one's.
    sglang = os.path.abspath(sys.argv[2]) if len(sys.argv) == 3 else None

    require = {"CUDA_VMM_REQUIRE_GPU": os.environ.get("CUDA_VMM_REQUIRE_GPU", "1")}
    well = start([os.path.join(folder, "bench-pool")], CUDA_VMM_BENCH_TSV=files[BENCH], **require)
    why = skipped(sglang)
    if why:
        print(f"SKIPPED: SGLang's pool: {why}")
    else:
        well &= start([sys.executable, os.path.join(here, "pool_peer.py"), sglang, files[PEER]])

    bench = {}
    print(f"{'':<12} {'ratio':>9}  {'target':<9}  against the driver and host memory")
    for name, ours, _, ratio, target, kept, *_ in rows(files[BENCH])[1:]:
        bench[name] = float(ours)
        well &= judge(kept, ratio, target, name)
    print(f"{'':<12} {'ratio':>9}  {'target':<9}  against SGLang's pool, how many times as fast")
    peer = {name: float(figure) for name, figure in rows(files[PEER])}
    well &= compare(bench, peer)
    print("compare_pool:", "all targets of what was measured are kept" if well else "FAILED, or a target was missed")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
