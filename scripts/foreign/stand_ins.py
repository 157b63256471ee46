"""Stand-ins for what SGLang's file imports and its reservation does not use."""

import sys
import types


def install():
    """Makes `torch`, `torch.distributed` and `sglang.srt.utils` importable, as empty as the file allows."""
    torch = _module("torch", uint8=object(), dtype=object, Tensor=object, device=_Device)
    torch.distributed = _module("torch.distributed", ProcessGroup=object)
    install_sglang()


def install_sglang():
    """Makes `sglang.srt.utils` importable, for a machine that has PyTorch itself."""
    _module("sglang")
    _module("sglang.srt")
    _module("sglang.srt.utils", log_info_on_rank0=lambda logger, text: logger.info(text))


class _Device:
    def __init__(self, kind, index):
        self.type, self.index = kind, index


def _module(name, **contents):
    module = types.ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module
