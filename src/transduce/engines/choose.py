"""Choosing an engine: the named one, or the fastest that this machine can run."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch

from transduce.config import MAX_THREADS, require
from transduce.engines.engine import Engine
from transduce.engines.plain import PlainEngine
from transduce.errors import ConfigError
from transduce.models.decoder_only import DecoderOnly
from transduce.models.model import Model
from transduce.nn import kernels
from transduce.search.decoder import Decoder
from transduce.search.options import SearchConfig

if TYPE_CHECKING:
    from transduce.engines.gpu.engine import GpuEngine
    from transduce.engines.native.engine import NativeEngine

ENGINES = ("auto", "plain", "native", "gpu")
_NEEDS = {
    "gpu": "a CUDA GPU, and Triton",
    "native": "a model on the CPU, and a C compiler (cc)",
}


def pick_engine(name: str, model: Model, threads: int | None = None, batch_tokens: int | None = None) -> Engine:
    """The engine of this name; `auto` is the fastest that this machine can run."""
    if name not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    if threads is not None:
        require(1 <= threads <= MAX_THREADS, f"threads must be between 1 and {MAX_THREADS}")
        torch.set_num_threads(threads)
    options: dict[str, Any] = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
    engine = None if name == "plain" else _fast_engine(name, model, options)
    if engine is None and name in _NEEDS:
        if reason := _ENGINES[name]().supports(model, SearchConfig()):
            raise ConfigError(f"engine {name} has {reason}; use auto or plain")
        raise ConfigError(f"engine {name} needs {_NEEDS[name]}; use auto or plain")
    return engine or PlainEngine(model, **options)


def pick_decoder(name: str, model: Model) -> Decoder:
    """What computes the next tokens of a language model: `native` on a CPU, otherwise the model itself."""
    if name not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    assert isinstance(model, Decoder)
    if name in ("auto", "native") and model.device.type == "cpu" and isinstance(model, DecoderOnly):
        from transduce.engines.native.language_model import NativeLanguageModel
        from transduce.engines.native.library import load_library

        if library := load_library():
            return NativeLanguageModel(model, library, torch.get_num_threads())
    if name == "native":
        if not isinstance(model, DecoderOnly):
            raise ConfigError(f"engine native generates no text with {model.config.architecture} models; use plain")
        raise ConfigError(f"engine native needs {_NEEDS[name]}; use auto or plain")
    return model


def _fast_engine(name: str, model: Model, options: dict[str, Any]) -> Engine | None:
    if name in ("auto", "gpu") and model.device.type == "cuda" and kernels.HAS_TRITON:
        engine = _gpu_engine()
        return engine(cast(Any, model), **options) if engine.supports(model, SearchConfig()) is None else None
    if name in ("auto", "native") and model.device.type == "cpu":
        from transduce.engines.native.library import load_library

        native = _native_engine()
        if native.supports(model, SearchConfig()) is None and (library := load_library()):
            return native(cast(Any, model), library, torch.get_num_threads(), **options)
    return None


def _gpu_engine() -> "type[GpuEngine]":
    from transduce.engines.gpu.engine import GpuEngine

    return GpuEngine


def _native_engine() -> "type[NativeEngine]":
    from transduce.engines.native.engine import NativeEngine

    return NativeEngine


_ENGINES: dict[str, Callable[[], type[Engine]]] = {"gpu": _gpu_engine, "native": _native_engine}
