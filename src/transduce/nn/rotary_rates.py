"""The rates of rotary positions, and how later models scale them for longer texts, without torch."""

import math
from dataclasses import dataclass

from transduce.nn.kinds import RotaryScaling


@dataclass(frozen=True)
class RotaryRates:
    """Dimension i of a query or key is rotated by position * rate[i]."""

    d_k: int
    base: float
    scaling: RotaryScaling = "none"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def rates(self) -> list[float]:
        """The rate of each pair of dimensions."""
        return [self._scaled(self.base ** (-i / self.d_k)) for i in range(0, self.d_k, 2)]

    def _scaled(self, rate: float) -> float:
        """Linear scaling slows all rotations; that of Llama 3 only those that take longer than the first context."""
        if self.scaling == "none":
            return rate
        if self.scaling == "linear":
            return rate / self.factor
        turns = self.original * rate / (2 * math.pi)
        share = min(1.0, max(0.0, (turns - self.low) / (self.high - self.low)))
        return (1 - share) * rate / self.factor + share * rate
