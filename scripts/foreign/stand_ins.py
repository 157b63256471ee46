"""Stand-ins for what SGLang's file imports and its reservation does not use."""

import sys
import types


def install():
    """Makes `torch`, `torch.distributed` and `sglang.srt.utils` importable, as empty as the file allows."""
    torch = module("torch", uint8=object(), dtype=object, Tensor=object, device=_Device)
    torch.distributed = module("torch.distributed", ProcessGroup=object)
    install_sglang()


def install_sglang():
    """Makes `sglang.srt.utils` importable, for a machine that has PyTorch itself."""
    module("sglang")
    module("sglang.srt")
    module("sglang.srt.utils", log_info_on_rank0=lambda logger, text: logger.info(text))


class _Device:
    def __init__(self, kind, index):
        self.type, self.index = kind, index


def module(name, **contents):
    """Makes a module of this name importable, with these contents."""
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    sys.modules[name] = made
    return made
