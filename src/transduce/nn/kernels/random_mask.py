"""Which numbers dropout keeps, without a stored mask: forward and backward work it out alike."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def draw_seeds(p: float, device: torch.device) -> Tensor:
    """Two words from torch's generator, so that `torch.manual_seed` decides every mask; any will do where p is 0."""
    return torch.randint(1 << 31, (2,), device=device) if p else torch.empty(2, dtype=torch.int64, device=device)


@triton.jit
def kept(place, seeds, p):
    """Scale of the number at each place: 0 with probability p, else 1 / (1 - p).

    A hash of the place decides: two rounds of multiply and xor-shift (constants of the "lowbias32" hash), with one word
    of the seed before each.
    """
    x = place.to(tl.uint32) ^ tl.load(seeds).to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = x ^ tl.load(seeds + 1).to(tl.uint32)
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return tl.where((x >> 8).to(tl.float32) * (1 / (1 << 24)) >= p, 1 / (1 - p), 0.0)
