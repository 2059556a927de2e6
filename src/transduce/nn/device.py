"""Where to compute."""

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from transduce.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is a CUDA GPU where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        known = name.partition(":")[0] in ("cpu", "cuda", "mps")
        reason = str(error).splitlines()[0] if known else "there are auto, cpu, cuda, cuda:1 ..."
        raise ConfigError(f"device {name} cannot be used: {reason}") from None
    device = torch.device(name)
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)  # kernels, streams and graphs go to the current one
    return device


def send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """An array on its way to the device; the CPU does not wait for a GPU to have it."""
    found = torch.from_numpy(array)
    return found.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else found.to(device)
