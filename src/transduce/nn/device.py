"""Choosing a device, and copying arrays to it."""

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from transduce.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """The device of this name; "auto" is a CUDA GPU if there is one, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        known = name.partition(":")[0] in ("cpu", "cuda", "mps")
        reason = str(error).splitlines()[0] if known else "use auto, cpu, cuda, cuda:1 ..."
        raise ConfigError(f"device {name} cannot be used: {reason}") from None
    device = torch.device(name)
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)  # streams and graphs use the current device
    return device


def send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to the device; on a GPU without waiting for the copy."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def staging(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Integers on the CPU, to be filled, whose copy to the device nobody waits for (`non_blocking=True`)."""
    return torch.empty(shape, dtype=torch.int32, pin_memory=device.type == "cuda")
