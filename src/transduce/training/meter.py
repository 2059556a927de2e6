"""Loss, throughput and memory of training, measured without slowing it down."""

import math
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Meter:
    """Sums losses on the device and reads them rarely, because reading synchronizes with the GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=device)
        self._clear()

    def add(self, sums: Tensor, tokens: int, norm: Tensor) -> None:
        """Add one step: the sums of its loss and negative log-likelihood, its target tokens and its gradient norm.

        A step whose norm is not finite was skipped: it is counted as skipped, and its loss is ignored.
        """
        finite = norm.isfinite()
        self._sums += torch.where(finite, sums, 0.0)
        self._counted += finite * tokens
        self._skipped += ~finite
        self._skipped_in_a_row = torch.where(finite, 0, self._skipped_in_a_row + 1)
        self.tokens += tokens

    def read(self) -> dict[str, float]:
        """Means and number of skipped steps since the last call; without a loss if all steps were skipped."""
        values: dict[str, float] = {}
        if tokens := int(self._counted.item()):
            loss, nll = (self._sums / tokens).tolist()
            values = {"loss": loss, "perplexity": math.exp(min(nll, 50))}
        seconds = self.seconds
        values |= {
            "tokens_per_second": self.tokens / seconds,
            "memory_gb": _memory_gb(self.device),
            "skipped": int(self._skipped.item()),
            "seconds": seconds,
        }
        self._clear()
        return values

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time in this context as training."""
        since = time.monotonic()
        yield
        self.began += time.monotonic() - since

    @property
    def seconds(self) -> float:
        """Training time since the last reading."""
        return time.monotonic() - self.began

    def skipped_in_a_row(self) -> int:
        """Number of steps skipped since the last step that was not."""
        return int(self._skipped_in_a_row.item())

    def _clear(self) -> None:
        self._sums = torch.zeros(2, device=self.device)
        self._counted, self._skipped = torch.zeros(2, dtype=torch.int64, device=self.device)
        self.tokens, self.began = 0, time.monotonic()


def _memory_gb(device: torch.device) -> float:
    """Peak memory so far: the GPU's, or the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
