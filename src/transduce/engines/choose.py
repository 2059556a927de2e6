"""Which engine to use: the one named, or the fastest there is."""

import torch

from transduce.engines.engine import Engine
from transduce.engines.plain import PlainEngine
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn import kernels

ENGINES = ("auto", "plain", "gpu")


def pick_engine(name: str, model: EncoderDecoder) -> Engine:
    """`auto` takes the fastest that this machine can run."""
    if name not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    weight_VD = model.embedding.weight_VD
    on_gpu = kernels.HAS_TRITON and weight_VD.is_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "gpu" and not on_gpu:
        raise ConfigError("engine gpu needs a CUDA GPU that computes in bfloat16, and Triton; use auto or plain")
    if name == "gpu" or (name == "auto" and on_gpu):
        from transduce.engines.gpu import GpuEngine

        return GpuEngine(model)
    return PlainEngine(model)
