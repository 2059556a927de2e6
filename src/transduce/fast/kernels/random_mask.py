"""Dropout without a stored mask: forward and backward compute the same mask from a seed."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def draw_seeds(p: float, device: torch.device) -> Tensor:
    """Two random integers from torch's generator, so that masks depend on `torch.manual_seed`; unused if p is 0."""
    return torch.randint(1 << 31, (2,), device=device) if p else torch.empty(2, dtype=torch.int64, device=device)


@triton.jit
def dropout_scale(index, seeds, p):
    """The factor of each element: 0 with probability p, otherwise 1 / (1 - p).

    It depends on a hash of the element's index: two rounds of multiply and xor-shift (constants of the "lowbias32"
    hash), each preceded by a xor with one of the seeds.
    """
    x = index.to(tl.uint32) ^ tl.load(seeds).to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = x ^ tl.load(seeds + 1).to(tl.uint32)
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return tl.where((x >> 8).to(tl.float32) * (1 / (1 << 24)) >= p, 1 / (1 - p), 0.0)
