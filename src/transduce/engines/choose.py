"""Which engine to use: the one named, or the fastest there is."""

from typing import Any

import torch

from transduce.engines.engine import Engine
from transduce.engines.plain import PlainEngine
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn import kernels

ENGINES = ("auto", "plain", "native", "gpu")


def pick_engine(
    name: str, model: EncoderDecoder, threads: int | None = None, batch_tokens: int | None = None
) -> Engine:
    """`auto` takes the fastest that this machine can run."""
    given: dict[str, Any] = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
    if name not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    if threads:
        torch.set_num_threads(threads)
    if name == "plain":
        return PlainEngine(model, **given)
    weight_VD = model.embedding.weight_VD
    if name in ("auto", "gpu") and weight_VD.is_cuda:
        if kernels.HAS_TRITON:
            from transduce.engines.gpu.engine import GpuEngine

            return GpuEngine(model, **given)
    elif name in ("auto", "native") and weight_VD.device.type == "cpu":
        from transduce.engines.native.library import load_library

        if library := load_library():
            from transduce.engines.native.engine import NativeEngine

            return NativeEngine(model, library, torch.get_num_threads(), **given)
    if name != "auto":
        raise ConfigError(f"engine {name} needs {_NEEDS[name]}; use auto or plain")
    return PlainEngine(model, **given)


_NEEDS = {
    "gpu": "a model on a CUDA GPU, and Triton",
    "native": "a model on the CPU, and a C compiler (cc)",
}
