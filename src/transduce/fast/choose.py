"""Choosing an engine: the named one, or the fastest that this machine can run."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.config import MAX_THREADS, require
from transduce.errors import ConfigError, needs_torch
from transduce.models.any_model import AnyModel
from transduce.search.decoder import Decoder
from transduce.search.engine import Engine
from transduce.search.options import SearchConfig

if TYPE_CHECKING:
    from transduce.fast.native.encoder import NativeEncoder
    from transduce.models.encoder_only import EncoderOnly
    from transduce.models.model import Model

ENGINES = ("auto", "plain", "native", "gpu")
ENCODER_ENGINES = ("auto", "plain", "native")
_NEEDS = {
    "gpu": "a CUDA GPU, and Triton",
    "native": "a model on the CPU, and a wheel for this machine or a C compiler (cc)",
}


def runs_on_cpu(device: str) -> bool:
    """Whether a device is the CPU; torch is asked, and imported, only if there may be a GPU."""
    if device != "auto":
        return device == "cpu"
    if not _may_have_gpu() or find_spec("torch") is None:
        return True
    from transduce.nn.device import pick_device

    return pick_device(device).type == "cpu"


def _may_have_gpu() -> bool:
    """Whether there is a device file of a GPU (CUDA, WSL, Tegra, ROCm) that this process may use."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or sys.platform == "darwin":
        return False
    names = ("nvidiactl", "dxg", "nvhost-gpu", "nvgpu", "kfd")
    return sys.platform != "linux" or any(Path("/dev", name).exists() for name in names)


def pick_engine(name: str, model: AnyModel, threads: int | None = None, batch_tokens: int | None = None) -> Engine:
    """The engine of this name; `auto` is the fastest that this machine can run."""
    if name not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    require(threads is None or 1 <= threads <= MAX_THREADS, f"threads must be between 1 and {MAX_THREADS}")
    options: dict[str, Any] = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
    if threads is not None and model.is_built:
        _set_torch_threads(threads)
    can_be_native = name in ("auto", "native") and model.device_type == "cpu"
    if can_be_native and (engine := _native_engine(model, threads, options)):
        return engine
    if name == "native":
        from transduce.fast.native.engine import NativeEngine

        raise _refusal(name, NativeEngine.supports(model, SearchConfig()))
    with needs_torch():
        if threads is not None:
            _set_torch_threads(threads)
        return _torch_engine(name, model.module(), options)


def pick_decoder(name: str, model: "Model", threads: int | None = None) -> Decoder:
    """What computes the next tokens of a language model: `native` on a CPU, otherwise the model itself."""
    if name not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    from transduce.models.decoder_only import DecoderOnly

    reason = None
    if not isinstance(model, DecoderOnly):
        reason = f"no generation with models of the architecture {model.config.architecture}"
    elif name in ("auto", "native") and model.device_type == "cpu":
        from transduce.fast.native.language_model import NativeLanguageModel, language_model_limits
        from transduce.fast.native.library import load_library

        reason = language_model_limits(model.config)
        if reason is None and (library := load_library()):
            return NativeLanguageModel(model, library, threads or _cores())
    if name == "native":
        raise _refusal(name, reason)
    assert isinstance(model, Decoder)
    return model


def pick_encoder(name: str, model: "EncoderOnly", threads: int | None = None) -> "NativeEncoder | None":
    """What computes the vectors of texts: `native` on a CPU, otherwise None: the model itself."""
    if name not in ENCODER_ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENCODER_ENGINES)}, not {name!r}")
    if name == "plain" or (name == "auto" and model.device_type != "cpu"):
        return None
    from transduce.fast.native.encoder import NativeEncoder, encoder_limits
    from transduce.fast.native.library import load_library

    reason = encoder_limits(model.config)
    if model.device_type == "cpu" and reason is None and (library := load_library()):
        return NativeEncoder(model, library, threads or _cores())
    if name == "native":
        raise _refusal(name, reason)
    return None


def _native_engine(model: AnyModel, threads: int | None, options: dict[str, Any]) -> Engine | None:
    from transduce.fast.native.engine import NativeEngine
    from transduce.fast.native.library import load_library

    if NativeEngine.supports(model, SearchConfig()) is None and (library := load_library()):
        return NativeEngine(model, library, threads or _cores(), **options)
    return None


def _torch_engine(name: str, model: "Model", options: dict[str, Any]) -> Engine:
    from transduce.fast import kernels
    from transduce.search.plain_engine import PlainEngine

    possible = model.device.type == "cuda" and kernels.HAS_TRITON
    if name == "gpu" or (name == "auto" and possible):
        from transduce.fast.gpu.engine import GpuEngine
        from transduce.fast.gpu.slot_batch import SlotModel

        reason = GpuEngine.supports(model, SearchConfig())
        if possible and reason is None:
            assert isinstance(model, SlotModel)
            return GpuEngine(model, **options)
        if name == "gpu":
            raise _refusal(name, reason)
    return PlainEngine(model, **options)


def _set_torch_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _refusal(name: str, reason: str | None) -> ConfigError:
    """The error for an engine that cannot run; `reason` is about the model, None if this machine lacks something."""
    return ConfigError(f"engine {name} {f'has {reason}' if reason else f'needs {_NEEDS[name]}'}; use auto or plain")


def _cores() -> int:
    """Number of threads if none is given: OMP_NUM_THREADS, as in torch, or the cores that this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if wanted.isdecimal() and 1 <= int(wanted) <= MAX_THREADS:
        return int(wanted)
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cpus = os.sched_getaffinity(0)
    topology = Path("/sys/devices/system/cpu")
    siblings = [topology / f"cpu{cpu}" / "topology" / "thread_siblings_list" for cpu in cpus]
    try:
        cores = len({path.read_text(encoding="ascii") for path in siblings})  # hardware threads of a core share it
    except OSError:
        cores = len(cpus)
    return min(cores, MAX_THREADS)
