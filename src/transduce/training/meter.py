"""How fast and how well training goes, measured without slowing it down."""

import math
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Meter:
    """Adds up the losses on the device, and reads them rarely: reading makes a GPU wait."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._clear()

    def add(self, sums: Tensor, tokens: int) -> None:
        """Count one batch by its sums of loss and plain loss."""
        self.sums += sums
        self.tokens += tokens

    def read(self) -> dict[str, float]:
        """Means since the last reading."""
        loss, nll = (self.sums / max(1, self.tokens)).tolist()
        seconds = time.monotonic() - self.began
        values = {
            "loss": loss,
            "perplexity": math.exp(min(nll, 50)),
            "tokens_per_second": self.tokens / seconds,
            "memory_gb": _memory_gb(self.device),
            "seconds": seconds,
        }
        self._clear()
        return values

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time inside does not count as training."""
        since = time.monotonic()
        yield
        self.began += time.monotonic() - since

    def _clear(self) -> None:
        self.sums, self.tokens, self.began = torch.zeros(2, device=self.device), 0, time.monotonic()


def _memory_gb(device: torch.device) -> float:
    """Most memory used so far: the GPU's, or the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
