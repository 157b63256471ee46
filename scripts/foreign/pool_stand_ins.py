"""Stand-ins for what the file of SGLang's shared pool imports, and the loading of that file beside them.

The pool, its tickets and the reservation below it are SGLang's own. What is replaced is what the pool's file imports
from the rest of the package; each replacement has the values of a server with default settings and one tensor-
parallel rank.
"""

import enum
import hashlib
import importlib.util
import os
import sys
import types

import stand_ins

# The files of sglang 0.5.23, by their SHA-256.
FILES = {
    "cuda_vmm_utils": "575c69d04736549f0337c9bb6a5484727578fffceeca82ff504907a0b84a7c7b",
    "cuda_vmm_transport_utils": "b3116a9e730ff0518abe5004f8c39f8b87a71c677f15e762ec838d5740783850",
}

# The default recycle interval of sglang 0.5.23, in seconds.
DEFAULT_INTERVAL = 0.05

# One line for each replacement, to be printed with the figures.
REPLACED = (
    "sglang.srt.utils.log_info_on_rank0: writes to the logger",
    "sglang.srt.managers.schedule_batch: empty classes; the pool itself uses none of them",
    "sglang.srt.multimodal.transport.memory_pool: a consumer count of 1; not called, each pool gets its count",
    "sglang.srt.runtime_context: rank 0 of 1; not called, the one consumer acknowledges for all",
    "sglang.srt.utils.cuda_ipc_transport_utils: the default settings, and an empty base class of the tickets",
)


def install():
    """Makes all that the two files import from SGLang importable."""
    stand_ins.install_sglang()
    module = stand_ins.module
    module("sglang.srt.managers")
    module(
        "sglang.srt.managers.schedule_batch",
        Modality=enum.Enum("Modality", ("IMAGE", "VIDEO")),
        MultimodalDataItem=type("MultimodalDataItem", (), {}),
        MultimodalProcessorOutput=type("MultimodalProcessorOutput", (), {}),
    )
    module("sglang.srt.multimodal")
    module("sglang.srt.multimodal.transport")
    module("sglang.srt.multimodal.transport.memory_pool", get_mm_feature_consumer_count=lambda: 1)
    parallel = types.SimpleNamespace(tp_rank=0, tp_size=1, attn_tp_size=1, attn_cp_rank=0, nnodes=1)
    module(
        "sglang.srt.runtime_context",
        get_mm=lambda: types.SimpleNamespace(mm_feature_transport="cuda_vmm"),
        get_parallel=lambda: parallel,
        get_serving=lambda: types.SimpleNamespace(tokenizer_worker_num=1),
    )
    module(
        "sglang.srt.utils.cuda_ipc_transport_utils",
        DEFER_CUDA_IPC_FEATURE_RECONSTRUCTION_KEY="defer",
        MM_FEATURE_CACHE_SIZE=1 << 30,
        MM_ITEM_MEMORY_POOL_RECYCLE_INTERVAL=DEFAULT_INTERVAL,
        CudaIpcTensorTransportProxy=type("CudaIpcTensorTransportProxy", (), {}),
        get_mm_feature_pool_size_per_worker=lambda size, workers: size // workers,
    )


def load(folder):
    """The module of the pool. Tickets are pickled by the module's name, so it is registered under SGLang's own."""
    install()
    for name in FILES:
        path = os.path.join(folder, f"{name}.py")
        spec = importlib.util.spec_from_file_location(f"sglang.srt.utils.{name}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


def origin(folder):
    """One line for each file: whether it is the one of sglang 0.5.23."""
    lines = []
    for name, expected in FILES.items():
        with open(os.path.join(folder, f"{name}.py"), "rb") as file:
            found = hashlib.sha256(file.read()).hexdigest()
        published = "sglang 0.5.23" if found == expected else f"NOT THE FILE OF sglang 0.5.23: {found}"
        lines.append(f"{name}.py: {published}")
    return lines
