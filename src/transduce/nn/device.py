"""Where to compute."""

import torch

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
    return torch.device(name)
